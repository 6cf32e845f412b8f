"""Start of the watch inside the program that the runner started, before its first line, and its end after the last.

Workers that the program forks, or spawns by multiprocessing, are watched as well, each in its own process. The
program's output, arguments, exit code and tracebacks stay its own. Whatever happens to the watch, the program goes on.
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
    PYTHONPATH,
    RUNNER_VARIABLE,
    STAY,
    TIME_UNIT,
    UNIT,
    worker_environment,
)
from flatwater_watch.agent.spool import PROGRAM, WORKER
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.suspended_tracing import frameless_callable
from flatwater_watch.meters.system_calls import names_in, process_id, read_text, system, write_whole
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
"""Programs that only start others: the process of rank 0 below them is the program, the other ranks are workers."""
WORKER_SECONDS = 1.0
"""Age at which a worker is watched: most processes that are forked end, or become another program, at once."""
MAXIMUM_WORKERS = 64
"""Maximum workers of one command that are watched."""
GUEST_CHECK_TICKS = 10
"""Maximum ticks after which a watch that entered a running process checks whether it may stay."""
MAXIMUM_NAMES = 3
"""Maximum names of code without a file that are listed."""


def start_watch(variables: dict[str, str]) -> None:
    """Watch this process: the first of the command that launches no others, and workers that it starts.

    Args:
        variables: variables of the runner.
    """
    # Runs within `sitecustomize`, before any line of the program.
    if _launches():
        os.environ.update(worker_environment(variables, variables.get(PYTHONPATH)))
        return
    if os.environ.get("LOCAL_RANK", "0") != "0":
        ProcessAgent(variables).begin_later()
        _watch_workers(variables)
        return
    claim = os.path.join(variables[FOLDER], CLAIM)  # noqa: PTH118  (texts: programs replace what a Path is made of)
    try:
        # O_EXCL decides between processes that start at the same time: exactly one of them creates the file.
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if _is_worker():
            ProcessAgent(variables).begin_later()
        elif not _starts_workers():
            return
    else:
        ProcessAgent(variables, claim).begin()
    _watch_workers(variables)


def enter(variables: dict[str, str]) -> None:
    """Watch this process, which has run for a while, at ticks, as long as the runner's file `STAY` exists.

    Args:
        variables: variables of the runner.

    Raises:
        RuntimeError: the process is watched already.
    """
    if _agents:
        raise RuntimeError("the process is watched already")
    claim = os.path.join(variables[FOLDER], CLAIM)  # noqa: PTH118  (the same)
    os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    ProcessAgent(variables, claim, guest=True).begin()


def _launches() -> bool:
    words = [file_name(word) for word in sys.orig_argv[:4]]
    return any(word in LAUNCHERS for word in words)


def _is_worker() -> bool:
    """Whether multiprocessing has spawned this process."""
    return sys.orig_argv[-1:] == ["--multiprocessing-fork"]


def _starts_workers() -> bool:
    """Whether this is the process that multiprocessing forks workers from."""
    return any(word.startswith("from multiprocessing.forkserver ") for word in sys.orig_argv)


def _watch_workers(runner_variables: dict[str, str]) -> None:
    """Watch the workers that this process forks or spawns, and the workers that these start."""

    def leave_after_fork() -> None:
        # Runs in the child of any fork, the watch's own included, before other code goes on.
        Guard().run(leave)

    def leave() -> None:
        # A fork of the watch's own stays without a watch, and its forks too.
        if not _agents or _agents[0].leave_in_fork():
            _agents.clear()
            ProcessAgent(runner_variables).begin_later()

    def spawning(module: ModuleType) -> None:
        """Let the function that starts multiprocessing's processes hand the watch's variables on."""
        # `util.spawnv_passfds` starts workers, and the processes that workers are forked from. For this moment alone
        # the variables stand in the environment that C knows: no other process and no line of the program sees them.
        start = vars(module)["spawnv_passfds"]

        @functools.wraps(start)
        def spawnv_passfds(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (of any Python's version)
            """Start a process with the watch's variables in C's environment, for the time of this call."""
            before = os.environ.get("PYTHONPATH")
            variables = worker_environment(runner_variables, before)
            for name, value in variables.items():
                os.putenv(name, value)
            try:
                return start(*args, **kwargs)
            finally:
                for name in variables:
                    os.unsetenv(name)
                if before is not None:
                    os.putenv("PYTHONPATH", before)

        module.spawnv_passfds = spawnv_passfds  # type: ignore[attr-defined]

    from flatwater_watch.agent.step_hooks import prepare_on_import  # noqa: PLC0415  (a process without workers needs it not)

    os.register_at_fork(after_in_child=frameless_callable(leave_after_fork))
    prepare_on_import({"multiprocessing.util": spawning})


_unlink = os.unlink
_agents: list["ProcessAgent"] = []
"""The watch of this process; just after a fork, that of the process it was forked from."""
_lines: dict[str, "AllocationSite"] = {}
"""Allocating lines by owner, kept for later watches: Python before 3.12.5 never frees the stacks of `tracemalloc`."""


class ProcessAgent:
    """The watch of one process; it begins at once, or when a worker has lived for a while."""

    def __init__(self, variables: dict[str, str], claim: str | None = None, *, guest: bool = False) -> None:
        """Prepare the watch without beginning it.

        Args:
            variables: variables of the runner.
            claim: path of the file that says that a process of the command is watched; None in a worker.
            guest: whether the watch ends before the process does, and leaves it as it was.
        """
        self._variables, self._claim, self._owner, self._guest = variables, claim, process_id(), guest
        self._file_prefix = os.path.join(variables[FOLDER], str(process_id()))  # noqa: PTH118  (the same)
        self._main_thread = _thread.get_ident()
        self._guard = Guard(lambda sentence: write_whole(f"{self._file_prefix}.fault", sentence))
        self._watch: ProcessWatch | None = None
        self._ended = frameless_callable(self._end)
        _agents.append(self)

    def begin(self) -> None:
        """Watch from now on."""
        self._guard.run(self._begin)

    def begin_later(self) -> None:
        """Watch from `WORKER_SECONDS` on: most processes that are forked end or become another program at once."""
        start_ticking(self._guard, self._tick, WORKER_SECONDS, self._tick_without_reading)

    def leave_in_fork(self) -> bool:
        """Leave the parent's watch, in a forked child; return whether the program made the fork, and not the watch."""
        # The watch forks only in the thread in which it is at work; any other thread is the program's.
        is_programs_fork = self._guard.thread != _thread.get_ident()
        if self._watch is not None:
            set_listener(None)
            if is_programs_fork:  # a fork of the watch still needs the lines that it traced
                self._guard.run_or_default(None, self._watch.abandon)
        self._guard.has_ended = True
        return is_programs_fork

    def _tick_without_reading(self) -> int:
        """Pass a tick at a place where no reading may be taken; return the ticks until the next. In the main thread."""
        return 1 if self._watch is None else self._watch.end_stale_trace()

    def _tick(self, ticks: int) -> int:
        """Pass ticks in a worker: at the first one the watch begins, if there are not too many workers.

        In the main thread of a worker, or in the watch's own thread while the main thread sleeps.
        """
        if self._watch is None:
            # The main thread waits for work: its own imports would count as the watch's cost.
            if _thread.get_ident() != self._main_thread:
                return 1
            if _worker_files(self._variables[FOLDER]) >= MAXIMUM_WORKERS:
                self._guard.has_ended = True
                return ticks
            self._begin()
        assert self._watch is not None  # noqa: S101  (it has begun)
        return self._watch.tick(ticks)

    def _begin(self) -> None:
        """Begin to watch this process: by the user's boundaries, by those of known libraries, or by ticks alone."""
        before = footprint().anonymous
        from flatwater_watch.agent.process import ProcessWatch  # noqa: PLC0415  (measured: it is the watch's cost)
        from flatwater_watch.agent.step_hooks import hook_steps  # noqa: PLC0415  (the same)

        unit = self._variables.get(UNIT)
        worker = self._claim is None
        if worker and unit != TIME_UNIT:
            unit = None  # workers may repeat other boundaries than the program
        limit = int(self._variables[LIMIT]) if LIMIT in self._variables else None
        kind, spool = None if unit == TIME_UNIT else unit, self._file_prefix + (WORKER if worker else PROGRAM)
        self._watch = watch = ProcessWatch(kind, None, limit, spool, self._guard, lines=_lines)
        watch.cost_bytes = max(0, footprint().anonymous - before)
        counters = {} if unit == TIME_UNIT else hook_steps(watch.step)
        if unit is None or unit == TIME_UNIT:
            watch.boundaries.use_counters_(counters)
            if not worker:
                start_ticking(
                    self._guard,
                    self._tick_as_guest if self._guest else watch.tick,
                    when_forbidden=watch.end_stale_trace,
                )
        if not self._guest:
            self._register_end_of_main()
        atexit.register(self._ended)
        if worker and (util := sys.modules.get("multiprocessing.util")) is not None:
            vars(util)["Finalize"](None, self._ended, exitpriority=1)  # a worker ends by `os._exit`, without `atexit`

    def _tick_as_guest(self, ticks: int) -> int:
        """Watch as long as the runner asks for it, then leave the process as it was."""
        assert self._watch is not None  # noqa: S101  (it has begun)
        folder = self._variables[RUNNER_VARIABLE]
        try:
            notes = names_in(folder)
        except OSError:  # the runner was killed, and its folder removed
            notes = []
        if STAY in notes:
            return min(self._watch.tick(ticks), GUEST_CHECK_TICKS)
        if MAPPED_PAGE_FILE in notes:
            _unmap(read_text(os.path.join(folder, MAPPED_PAGE_FILE)))  # noqa: PTH118  (the same)
        self._end()
        atexit.unregister(self._ended)
        _agents.remove(self)
        return ticks

    def _register_end_of_main(self) -> None:
        """End when the main code has returned and no thread works on, before `atexit`'s callbacks empty containers.

        pyplot closes its figures there, for one. Python calls such functions before it waits for its threads, the first
        registered last: executors have ended theirs.
        """
        import threading  # noqa: PLC0415  (it is loaded by now)

        with suppress(RuntimeError):  # Python ends already: then `atexit` calls
            vars(threading)["_register_atexit"](frameless_callable(self._end_with_main))

    def _end_with_main(self) -> None:
        import threading  # noqa: PLC0415  (the same)

        main = threading.main_thread()
        if all(thread is main or thread.daemon for thread in threading.enumerate()):
            self._end()

    def _end(self) -> None:
        """End the watch at exit, once, and remove its claim; a fork, which has inherited the callback, does nothing."""
        if process_id() == self._owner and self._watch is not None:
            watch, self._watch = self._watch, None
            set_listener(None)
            self._guard.run(watch.close)
            self._guard.run(_note_nameless, f"{self._file_prefix}.unseen")
            self._guard.has_ended = True
            if self._claim is not None:
                self._guard.run_or_default(None, _unlink, self._claim)
                if not self._guest:
                    self._guard.run_or_default(None, _remove_folder, self._variables[FOLDER])


def _remove_folder(folder: str) -> None:
    """Remove the folder of a runner that was killed, which holds no lock on it any more."""
    descriptor = system.open(folder, system.O_RDONLY | system.O_DIRECTORY | system.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # the runner lives
        return
    finally:
        system.close(descriptor)
    for name in names_in(folder):
        system.unlink(f"{folder}/{name}")
    system.rmdir(folder)


def _unmap(page: str) -> None:
    """Give back the page by which this process was entered."""
    ctypes.CDLL(None).munmap(ctypes.c_void_p(int(page)), ctypes.c_size_t(PAGE_BYTES))


def _worker_files(folder: str) -> int:
    return sum(name.endswith(WORKER) for name in names_in(folder))


def _note_nameless(note: str) -> None:
    """Write a note on code of the program without a file: objects that it holds have no file and line to report."""
    from importlib.machinery import ModuleSpec  # noqa: PLC0415  (at the end, when nothing waits for it)

    from flatwater_watch.heap.raw import namespace  # noqa: PLC0415  (the same)

    main = namespace(sys.modules["__main__"])
    functions = [name for name, value in main.items() if type(value) is FunctionType and not value.__code__.co_filename]
    modules: list[tuple[str, object]] = list(sys.modules.items())  # a few libraries put other objects there
    frozen = [
        name
        for name, module in modules
        if issubclass(type(module), ModuleType)
        and name.partition(".")[0] not in sys.stdlib_module_names
        and type(spec := namespace(module).get("__spec__")) is ModuleSpec  # type: ignore[arg-type]  # asked for above
        and spec.origin == "frozen"
    ]
    sentences = []
    if functions:
        sentences.append(f"functions without a file name are told by their own names only: {_short_list(functions)}")
    if frozen:
        sentences.append(f"frozen modules have no file: what they hold is not looked at: {_short_list(frozen)}")
    if sentences:
        write_whole(note, "\n".join(sentences))


def _short_list(names: Sequence[str]) -> str:
    return ", ".join(names[:MAXIMUM_NAMES]) + (
        f" and {len(names) - MAXIMUM_NAMES} more" if len(names) > MAXIMUM_NAMES else ""
    )
