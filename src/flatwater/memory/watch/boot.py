"""Begins the watch inside the program that the runner started, before its first line, and ends it after its last.

The program's output, arguments, exit code and tracebacks are its own. Whatever happens to the watch, it goes on.
"""

import _thread
import atexit
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType

from flatwater.memory.probes.bound import process_id, sleep, write_whole
from flatwater.memory.probes.mappings import footprint
from flatwater.memory.probes.untraced import hidden
from flatwater.memory.watch.boundaries import TICK_SECONDS
from flatwater.memory.watch.guard import Guard

FOLDER, UNIT, LIMIT = "FLATWATER_WATCH_FOLDER", "FLATWATER_WATCH_UNIT", "FLATWATER_WATCH_LIMIT"
PYTHONPATH, PACKAGE = "FLATWATER_WATCH_PYTHONPATH", "FLATWATER_WATCH_PACKAGE"
"""Variables by which the runner tells the program's process what to do; they are taken away before the program runs."""
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate-launch",
    "accelerate.commands.launch",
)
"""Programs that only start others: the process of rank 0 below them is watched."""
IN_TIME = "second"
"""The unit that asks for readings in time, whatever boundaries the program has."""
IMPORTING = frozenset({"<frozen importlib._bootstrap>", "<frozen site>", "<frozen zipimport>"})
"""Where the interpreter itself is at work: it loads modules, is not ready yet, or looks what the script is."""
NAMED = 3
"""Names of code without a file that are told."""


def begin(told: dict[str, str]) -> None:
    """Watch this process, if no other one of the command is watched and it is not a launcher of others.

    Args:
        told: the runner's variables.
    """
    if _launches() or os.environ.get("LOCAL_RANK", "0") != "0":
        os.environ.update(_handed_on(told))
        return
    claim = os.path.join(told[FOLDER], "claim")  # noqa: PTH118  (texts: programs replace what a Path is made of)
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    own = os.path.join(told[FOLDER], str(process_id()))  # noqa: PTH118
    guard = Guard(lambda sentence: write_whole(f"{own}.fault", sentence))
    guard.run(_watch, told, claim, own, guard)


def _launches() -> bool:
    words = [Path(word).name for word in sys.orig_argv[:4]]
    return any(word in LAUNCHERS for word in words)


def _handed_on(told: dict[str, str]) -> dict[str, str]:
    """The environment as the runner made it, for the processes that this one starts."""
    inject = str(Path(__file__).parent / "inject")
    before = told.get(PYTHONPATH)
    return told | {"PYTHONPATH": inject if before is None else os.pathsep.join((inject, before))}


def _watch(told: dict[str, str], claim: str, own: str, guard: Guard) -> None:
    """Begin.

    Args:
        told: the runner's variables.
        claim: file that says that a process of the command is watched.
        own: path of this process's files in the runner's folder, without their suffixes.
        guard: of all that the watch does here.
    """
    before = footprint().anonymous
    from flatwater.memory.watch.process import ProcessWatch  # noqa: PLC0415  (measured: it is the watch's cost)
    from flatwater.memory.watch.steps import find_steps, lose_steps  # noqa: PLC0415

    unit = told.get(UNIT)
    limit = int(told[LIMIT]) if LIMIT in told else None
    ticks = unit is None or unit == IN_TIME
    watch = ProcessWatch(None if unit == IN_TIME else unit, None, limit, f"{own}.json", guard)
    watch.cost_bytes = max(0, footprint().anonymous - before)
    owner, remove, kill = process_id(), os.unlink, os.kill

    def end() -> None:
        if process_id() == owner:
            lose_steps()
            guard.run(watch.close)
            guard.run(_note_nameless, f"{own}.unseen")
            guard.over = True
            guard.ask(None, remove, claim)

    def forked() -> None:
        lose_steps()
        guard.over = True
        if guard.thread != _thread.get_ident():  # else the watch forked, and asks there for the lines that it traced
            guard.ask(None, watch.abandon)
        if signal.getsignal(signal.SIGTERM) is terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def terminated(_number: int, _frame: FrameType | None) -> None:
        """Write what is known, then die of the signal as the program would have."""
        end()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        kill(process_id(), signal.SIGTERM)

    gates = {} if unit == IN_TIME else find_steps(watch.step)
    if ticks:
        watch.boundaries.grant_to_(gates)
        _tick(guard, watch.tick)
    atexit.register(hidden(end))
    os.register_at_fork(after_in_child=hidden(forked))
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminated)


def _tick(guard: Guard, step: Callable[[int], int]) -> None:
    """Call `step` with the ticks that have passed, again and again; it says after how many it is needed again.

    It is called in the main thread, between two of its instructions. There the frames of the program are whole, and its
    torch operations can be traced. Not while a module is imported: that grows, and is no step. Not in a trace function
    of the program, nor in a fork that was made between request and call. No debugger or coverage tool of the program
    sees it.
    """
    # Held from the request to the end of the call, not to its beginning: while a call is under way, another one that
    # waits makes CPython 3.11 enter a traced function for ever.
    waiting = _thread.allocate_lock()
    owner = process_id()
    passed = needed = 1

    def call() -> None:
        try:
            if not guard.over and process_id() == owner:  # over: perhaps the interpreter is half taken down
                guard.run(tick)
        finally:
            if waiting.locked():
                waiting.release()

    def tick() -> None:
        nonlocal needed
        needed = 1 if _busy(sys._getframe()) else step(passed)  # noqa: SLF001  (the only way up the stack)

    # A signal handler of the program may run in here. What it raises must reach the program, and what a ctypes callback
    # raises is lost; this function of Python's own asks an object for its truth, and hands on what that raises.
    asked = type("Asked", (), {"__bool__": staticmethod(hidden(call))})()
    ask = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
    request = ctypes.pythonapi.Py_AddPendingCall
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(asked))  # a call that was requested may come after all else is gone

    def run() -> None:
        nonlocal passed
        while not guard.over:
            if waiting.acquire(blocking=False) and request(ask, ctypes.py_object(asked)):
                waiting.release()  # the queue is full
            passed = needed
            # Waking up is what costs: a program that often gives the interpreter's lock away fights over it until this
            # thread has it (`bench_watch.py --parts steps`).
            sleep(passed * TICK_SECONDS)

    _thread.start_new_thread(run, ())


def _busy(frame: FrameType) -> bool:
    """Whether the program is where no reading may be taken.

    Args:
        frame: the innermost. It must be no variable of its own function: it would hold itself, and the frames of the
            program with all that is in them, until the next full collection.
    """
    return _imports(frame) or _traces(frame) or _cannot_fork()


def _cannot_fork() -> bool:
    """Whether a fork of the watch could wait for ever for a lock that the interrupted code holds itself.

    `concurrent.futures` takes a lock before each fork, which is no RLock. It is held while work is submitted, and until
    other libraries have done what they do after a fork.
    """
    pools = sys.modules.get("concurrent.futures.thread")
    lock = None if pools is None else vars(pools).get("_global_shutdown_lock")
    return lock is not None and lock.locked()


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename in IMPORTING:
            return True
        frame = frame.f_back
    return False


def _traces(frame: FrameType | None) -> bool:
    """Whether the program is within a trace function of its own: a debugger that waits, or `trace` that prints.

    CPython 3.11 and 3.12 write the traced frame's dict of locals back into its variables when that function returns.
    Whoever asks for the frame's locals meanwhile changes them.
    """
    outer = _code_of(sys.gettrace())
    while frame is not None:
        back = frame.f_back
        if frame.f_code is outer or (back is not None and _code_of(back.f_trace) is frame.f_code):
            return True
        frame = back
    return False


def _code_of(traces: object) -> CodeType | None:
    function = traces.__func__ if type(traces) is MethodType else traces
    return function.__code__ if type(function) is FunctionType else None


def _note_nameless(note: str) -> None:
    """Write down which code of the program has no file: what its functions hold cannot be told by file and line."""
    from importlib.machinery import ModuleSpec  # noqa: PLC0415  (at the end, when nothing waits for it)

    from flatwater.memory.objects.raw import namespace  # noqa: PLC0415

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
        sentences.append(f"functions without a file name are told by their own names only: {_few(functions)}")
    if frozen:
        sentences.append(f"frozen modules have no file: what they hold is not looked at: {_few(frozen)}")
    if sentences:
        write_whole(note, "\n".join(sentences))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
