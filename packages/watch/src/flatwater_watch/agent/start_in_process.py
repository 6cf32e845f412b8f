"""The start of the watch in a program, before the program's first line, and its end after the last line.

The runner (`flatwater-watch run`) gives its orders in environment variables. The first process of its command that is
no launcher claims to be the program, by creating a file. Workers that the program forks, or spawns by multiprocessing,
are watched as well, each in its own process. A guest is a watch that enters a process that runs already, and leaves it.
A program's output, arguments, exit code and tracebacks stay its own. Whatever happens to the watch, the program goes
on.
"""

import _thread
import atexit
import ctypes
import fcntl
import functools
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from flatwater_watch.agent.call_counters import set_listener
from flatwater_watch.agent.guard import Guard
from flatwater_watch.agent.main_thread_timer import start_ticking
from flatwater_watch.agent.runner_protocol import (
    CLAIM,
    FOLDER,
    LIMIT,
    MAPPED_PAGE_FILE,
    PAGE_BYTES,
    RUNNER_VARIABLE,
    STAY,
    TIME_UNIT,
    UNIT,
    USER_PYTHONPATH,
    injected_environment,
)
from flatwater_watch.agent.spool import PROGRAM, WORKER
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.suspended_tracing import frameless_callable
from flatwater_watch.meters.system_calls import list_folder, process_id, read_text, system, write_whole
from flatwater_watch.paths import file_name

if TYPE_CHECKING:
    from flatwater_watch.agent.process import ProcessWatch
    from flatwater_watch.diagnose.finding import AllocationSite

LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate-launch",
    "accelerate.commands.launch",
)
"""Programs that only start others: their process of rank 0 is the program, and the other ranks are workers."""
WORKER_SECONDS = 1.0
"""Age at which the watch of a worker begins: most forked processes end, or become another program, at once."""
MAXIMUM_WORKERS = 64
"""Maximum workers of one command that are watched."""
GUEST_CHECK_TICKS = 10
"""Maximum ticks after which a watch that entered a running process checks whether it may stay."""
MAXIMUM_NAMES = 3
"""Maximum names of code without a file that are listed."""


def start_watch(variables: dict[str, str]) -> None:
    """Watch this process if it is the command's program or one of the workers.

    The program is the first process of the command that is no launcher. `variables` are the runner's orders.
    """
    # Runs within `sitecustomize`, before any line of the program.
    if _is_launcher():  # not watched itself: the processes that it starts inherit the variables
        os.environ.update(injected_environment(variables, variables.get(USER_PYTHONPATH)))
        return
    if os.environ.get("LOCAL_RANK", "0") != "0":  # a worker of a launcher, whose rank 0 is the program
        ProcessAgent(variables).begin_later()
        _watch_workers(variables)
        return
    claim = os.path.join(variables[FOLDER], CLAIM)  # noqa: PTH118  (texts: programs replace what a Path is made of)
    try:
        # O_EXCL decides between processes that start at the same time: exactly one of them creates the file.
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:  # another process is the program
        if _is_spawned_worker():
            ProcessAgent(variables).begin_later()
        elif not _is_fork_server():  # another program of the command, which is not watched
            return
        # A fork server itself is not watched, only the workers that it forks.
    else:
        ProcessAgent(variables, claim).begin()
    _watch_workers(variables)


def watch_running_process(variables: dict[str, str]) -> None:
    """Watch this process, which was not started under the watch, until the runner's file `STAY` is gone.

    `variables` are the runner's orders.

    Raises:
        RuntimeError: the process is watched already.
    """
    if _agents:
        raise RuntimeError("the process is watched already")
    claim = os.path.join(variables[FOLDER], CLAIM)  # noqa: PTH118  (texts: programs replace what a Path is made of)
    # The runner waits for this file as the sign that the watch has begun. O_EXCL: a claim that is there already is an
    # error, as the folder is this watch's alone.
    os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    ProcessAgent(variables, claim, is_guest=True).begin()


def _is_launcher() -> bool:
    """Return whether this process runs a launcher, as in `python -m torch.distributed.run` or `torchrun`."""
    words = [file_name(word) for word in sys.orig_argv[:4]]
    return any(word in LAUNCHERS for word in words)


def _is_spawned_worker() -> bool:
    """Return whether multiprocessing has spawned this process: it ends the command line with a word of its own."""
    return sys.orig_argv[-1:] == ["--multiprocessing-fork"]


def _is_fork_server() -> bool:
    """Return whether this is the process that multiprocessing forks workers from, started by `python -c "from ..."`."""
    return any(word.startswith("from multiprocessing.forkserver ") for word in sys.orig_argv)


def _watch_workers(runner_variables: dict[str, str]) -> None:
    """Watch the workers that this process forks or spawns, and the workers that these start.

    A function is called in the child of each fork, and multiprocessing's function that spawns processes is wrapped.
    """

    def replace_agent() -> None:
        """Leave the parent's watch, and begin a watch of this worker later, unless the watch made the fork."""
        # In a fork: in the child of any fork, the watch's own included, before other code goes on.
        # A fork that the watch has made keeps its entry in `_agents`, so that its own forks have no watch either.
        if not _agents or _agents[0].leave_in_fork():
            _agents.clear()
            ProcessAgent(runner_variables).begin_later()

    def wrap_spawn(module: ModuleType) -> None:
        """Let the function that starts multiprocessing's processes pass the watch's variables on."""
        # `util.spawnv_passfds` starts workers, and the processes that workers are forked from. During its call alone
        # the variables are in C's environment, so that no other process and no line of the program sees them.
        start = vars(module)["spawnv_passfds"]

        @functools.wraps(start)
        def spawnv_passfds(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (of any Python's version)
            """Start a process with the watch's variables in C's environment, for the time of this call."""
            user_pythonpath = os.environ.get("PYTHONPATH")
            variables = injected_environment(runner_variables, user_pythonpath)
            for name, value in variables.items():
                os.putenv(name, value)
            try:
                return start(*args, **kwargs)
            finally:
                for name in variables:
                    os.unsetenv(name)
                if user_pythonpath is not None:
                    os.putenv("PYTHONPATH", user_pythonpath)

        module.spawnv_passfds = spawnv_passfds  # type: ignore[attr-defined]

    from flatwater_watch.agent.import_hook import prepare_on_import  # noqa: PLC0415  (a launcher does not need it)

    os.register_at_fork(after_in_child=frameless_callable(lambda: Guard().run(replace_agent)))
    prepare_on_import({"multiprocessing.util": wrap_spawn})


_unlink = os.unlink
_agents: list["ProcessAgent"] = []
"""The watch of this process; just after a fork, that of the process it was forked from."""
_lines: dict[str, "AllocationSite"] = {}
"""Allocating lines by owner, kept for later watches: Python before 3.12.5 never frees the stacks of `tracemalloc`."""


class ProcessAgent:
    """The watch of one process, which begins at once, or when a worker has lived for a while."""

    def __init__(self, variables: dict[str, str], claim: str | None = None, *, is_guest: bool = False) -> None:
        """Prepare the watch without beginning it.

        Args:
            variables: environment variables that the runner has set for the watch.
            claim: path of the file that says that a process of the command is watched; None in a worker.
            is_guest: whether the watch ends before the process does, and leaves it as it was.
        """
        self._variables, self._claim, self._guest = variables, claim, is_guest
        self._owner_pid = process_id()  # a fork inherits this object, and has another id
        self._file_prefix = os.path.join(variables[FOLDER], str(process_id()))  # noqa: PTH118  (as above)
        self._main_thread = _thread.get_ident()
        self._guard = Guard(lambda sentence: write_whole(f"{self._file_prefix}.fault", sentence))
        self._watch: ProcessWatch | None = None
        self._end_callback = frameless_callable(self._end_watch)
        _agents.append(self)

    def begin(self) -> None:
        """Begin to watch now."""
        self._guard.run(self._begin_watch)

    def begin_later(self) -> None:
        """Begin to watch in `WORKER_SECONDS`, if the process still lives then."""
        start_ticking(self._guard, self._handle_ticks, WORKER_SECONDS, self._tick_without_reading)

    def leave_in_fork(self) -> bool:
        """Leave the parent's watch, in a forked child; return whether the program made the fork, not the watch."""
        # The watch forks only in the thread in which it is at work; any other thread is the program's.
        is_programs_fork = self._guard.thread != _thread.get_ident()
        if self._watch is not None:
            set_listener(None)
            if is_programs_fork:  # a fork that the watch made still needs the allocations that it has traced
                self._guard.run_or_default(None, self._watch.abandon)
        self._guard.has_ended = True
        return is_programs_fork

    def _tick_without_reading(self) -> int:
        """Handle a tick where no reading may be taken, as in an import; return the ticks to the next call."""
        return 1 if self._watch is None else self._watch.suspend_stale_trace()

    def _handle_ticks(self, ticks: int) -> int:
        """Handle ticks in a worker, and return the number of ticks to the next call.

        At the first tick in the main thread the worker's watch begins, unless there are too many workers.
        """
        # In the main thread of a worker, or in the watch's own thread while the main thread sleeps.
        if self._watch is None:
            # Not while the main thread sleeps, as imports that it then makes would count as the watch's memory.
            if _thread.get_ident() != self._main_thread:
                return 1
            # Each worker that is or was watched has a file of its own.
            if sum(name.endswith(WORKER) for name in list_folder(self._variables[FOLDER])) >= MAXIMUM_WORKERS:
                self._guard.has_ended = True  # ends the timer, so that the number returned is not used
                return ticks
            self._begin_watch()
        assert self._watch is not None  # noqa: S101  (it has begun)
        return self._watch.tick(ticks)

    def _begin_watch(self) -> None:
        """Begin to watch this process: at the kind of boundary that the user chose, at any kind, or at ticks alone.

        Boundaries are counted in known libraries; ticks come from a timer.
        """
        bytes_before_import = footprint().anonymous
        from flatwater_watch.agent.process import ProcessWatch  # noqa: PLC0415  (measured: it is the watch's cost)
        from flatwater_watch.agent.step_hooks import hook_steps  # noqa: PLC0415  (measured as well)

        unit_wanted = self._variables.get(UNIT)
        counts_time = unit_wanted == TIME_UNIT
        is_worker = self._claim is None
        # None: at the slowest regular kind, or at ticks. A worker may have other kinds than the user chose.
        kind = None if counts_time or is_worker else unit_wanted
        limit = int(self._variables[LIMIT]) if LIMIT in self._variables else None
        spool = self._file_prefix + (WORKER if is_worker else PROGRAM)
        self._watch = watch = ProcessWatch(kind, roots=None, limit=limit, spool=spool, guard=self._guard, lines=_lines)
        watch.cost_bytes = max(0, footprint().anonymous - bytes_before_import)
        counters = {} if counts_time else hook_steps(watch.step)
        if kind is None:  # frequent boundaries are only counted, and ticks notice when they stop coming
            watch.boundaries.attach_counters_(counters)
            if not is_worker:  # a worker ticks already
                start_ticking(
                    self._guard,
                    self._tick_as_guest if self._guest else watch.tick,
                    tick_if_forbidden=watch.suspend_stale_trace,
                )
        if not self._guest:
            self._register_end_of_main()
        atexit.register(self._end_callback)
        if is_worker and (util := sys.modules.get("multiprocessing.util")) is not None:
            # A worker ends by `os._exit`, which does not call `atexit`'s callbacks. The callback belongs to no object;
            # only one with a priority, of any number, is called at the end.
            vars(util)["Finalize"](None, self._end_callback, exitpriority=1)

    def _tick_as_guest(self, ticks: int) -> int:
        """Pass ticks to the watch as long as the runner asks for it; then end it, and leave the process as it was."""
        assert self._watch is not None  # noqa: S101  (it has begun)
        folder = self._variables[RUNNER_VARIABLE]
        try:
            runner_files = list_folder(folder)
        except OSError:  # the runner was killed, and its folder removed
            runner_files = []
        if STAY in runner_files:
            return min(self._watch.tick(ticks), GUEST_CHECK_TICKS)
        if MAPPED_PAGE_FILE in runner_files:  # the file has the address of the page that the runner has mapped here
            page = int(read_text(os.path.join(folder, MAPPED_PAGE_FILE)))  # noqa: PTH118  (as above)
            ctypes.CDLL(None).munmap(ctypes.c_void_p(page), ctypes.c_size_t(PAGE_BYTES))
        self._end_watch()
        atexit.unregister(self._end_callback)
        _agents.remove(self)
        return ticks  # not used, as the timer has ended

    def _register_end_of_main(self) -> None:
        """Have the watch end when the main code has returned, before `atexit`'s callbacks empty containers.

        Pyplot, for example, closes all figures in such a callback. `threading` calls its own callbacks before it waits
        for threads, the last registered first: the threads of executors, which are registered later, have ended by
        then.
        """
        import threading  # noqa: PLC0415  (it is loaded by now)

        with suppress(RuntimeError):  # Python ends already: then `atexit` ends the watch
            vars(threading)["_register_atexit"](frameless_callable(self._end_with_main))

    def _end_with_main(self) -> None:
        """End the watch, unless a thread of the program still works: then `atexit` ends it."""
        import threading  # noqa: PLC0415  (it is loaded by now)

        main = threading.main_thread()
        if all(thread is main or thread.daemon for thread in threading.enumerate()):
            self._end_watch()

    def _end_watch(self) -> None:
        """End the watch, once; remove the file by which it claimed this process, and the folder of a dead runner."""
        # A fork that has inherited the callback does nothing.
        if process_id() == self._owner_pid and self._watch is not None:
            watch, self._watch = self._watch, None
            set_listener(None)  # first, as no boundary may begin a reading while the watch closes
            self._guard.run(watch.close)
            self._guard.run(_note_code_without_file, f"{self._file_prefix}.unseen")
            self._guard.has_ended = True
            if self._claim is not None:
                self._guard.run_or_default(None, _unlink, self._claim)
                if not self._guest:
                    self._guard.run_or_default(None, _remove_abandoned_folder, self._variables[FOLDER])


def _remove_abandoned_folder(folder: str) -> None:
    """Remove the folder of the runner if nobody holds a lock on it: then the runner was killed."""
    descriptor = system.open(folder, system.O_RDONLY | system.O_DIRECTORY | system.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # the runner lives
        return
    finally:
        system.close(descriptor)
    for name in list_folder(folder):
        system.unlink(f"{folder}/{name}")
    system.rmdir(folder)


def _note_code_without_file(note_path: str) -> None:
    """Write a note that names `__main__`'s functions without a file, and frozen modules outside the standard library.

    They have no line to report. Without any there is no note.
    """
    from importlib.machinery import ModuleSpec  # noqa: PLC0415  (at the end, when nothing waits for it)

    from flatwater_watch.heap.raw import namespace  # noqa: PLC0415  (late, as above)

    # Types are compared by `is`, and namespaces are read past `__getattr__`: no code of the program is called.
    main = namespace(sys.modules["__main__"])
    functions = [name for name, value in main.items() if type(value) is FunctionType and not value.__code__.co_filename]
    frozen = []
    modules: list[tuple[str, Any]] = list(sys.modules.items())
    for name, module in modules:
        is_module = issubclass(type(module), ModuleType)  # a few libraries put other objects there
        if not is_module or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        spec = namespace(module).get("__spec__")
        if type(spec) is ModuleSpec and spec.origin == "frozen":
            frozen.append(name)
    sentences = []
    if functions:
        sentences.append(f"functions without a file name are told by their own names only: {_short_list(functions)}")
    if frozen:
        sentences.append(f"frozen modules have no file: what they hold is not looked at: {_short_list(frozen)}")
    if sentences:
        write_whole(note_path, "\n".join(sentences))


def _short_list(names: Sequence[str]) -> str:
    """Return the first names as a text, with the number of the others: `a, b, c and 2 more`."""
    ending = f" and {len(names) - MAXIMUM_NAMES} more" if len(names) > MAXIMUM_NAMES else ""
    return ", ".join(names[:MAXIMUM_NAMES]) + ending
