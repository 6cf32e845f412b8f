"""Begins the watch inside the program that the runner started, before its first line, and ends it after its last.

The program's output, arguments, exit code and tracebacks are its own. Whatever happens to the watch, it goes on.
"""

import _thread
import atexit
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, FunctionType, MethodType, ModuleType

from flatwater.memory.probes.mappings import footprint
from flatwater.memory.watch.boundaries import TICK_SECONDS

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
IMPORTING = "<frozen importlib._bootstrap>"
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
    claim = Path(told[FOLDER], "claim")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    spool = Path(told[FOLDER], f"{os.getpid()}.json")
    guarded = Guarded(spool.with_suffix(".fault"))
    guarded.run(_watch, told, claim, spool, guarded)


def _launches() -> bool:
    words = [Path(word).name for word in sys.orig_argv[:4]]
    return any(word in LAUNCHERS for word in words)


def _handed_on(told: dict[str, str]) -> dict[str, str]:
    """The environment as the runner made it, for the processes that this one starts."""
    inject = str(Path(__file__).parent / "inject")
    before = told.get(PYTHONPATH)
    return told | {"PYTHONPATH": inject if before is None else os.pathsep.join((inject, before))}


def _watch(told: dict[str, str], claim: Path, spool: Path, guarded: "Guarded") -> None:
    before = footprint().anonymous
    from flatwater.memory.watch.process import ProcessWatch  # noqa: PLC0415  (measured: it is the watch's cost)
    from flatwater.memory.watch.steps import find_steps, lose_steps  # noqa: PLC0415

    unit = told.get(UNIT)
    limit = int(told[LIMIT]) if LIMIT in told else None
    ticks = unit is None or unit == IN_TIME
    watch = ProcessWatch(None if unit == IN_TIME else unit, None, limit, spool, guarded.run)
    watch.cost_bytes = max(0, footprint().anonymous - before)
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:
            lose_steps()
            guarded.run(watch.close)
            guarded.run(_note_nameless, spool.with_suffix(".unseen"))
            guarded.over = True
            claim.unlink(missing_ok=True)

    def forked() -> None:
        lose_steps()
        guarded.over = True
        if guarded.thread != _thread.get_ident():  # else the watch forked, and asks there for the lines that it traced
            watch.abandon()
        if signal.getsignal(signal.SIGTERM) is terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def terminated(_number: int, _frame: FrameType | None) -> None:
        """Write what is known, then die of the signal as the program would have."""
        end()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    gates = {} if unit == IN_TIME else find_steps(watch.step)
    if ticks:
        watch.boundaries.grant_to_(gates)
        _tick(guarded, watch.tick)
    atexit.register(end)
    os.register_at_fork(after_in_child=forked)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminated)


class Guarded:
    """Runs what the watch does: what goes wrong in it must not go wrong in the program."""

    def __init__(self, faults: Path) -> None:
        """Nothing has gone wrong yet.

        Args:
            faults: file for a traceback, which the runner tells of.
        """
        self.over = False
        """Set at the end, and after a fault."""
        self.thread: int | None = None
        """Where the watch is at work."""
        self._faults = faults

    def run(self, work: Callable[..., None], *given: object) -> None:
        """Work, unless it is over."""
        if self.over:
            return
        outer, self.thread = self.thread, _thread.get_ident()
        try:
            work(*given)
        except Exception as fault:  # whatever it is: the edge between the watch and somebody else's program
            if _of_a_handler(fault):
                raise
            self.over = True
            with suppress(OSError):
                self._faults.write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            self.thread = outer


def _of_a_handler(fault: Exception) -> bool:
    """Whether a signal handler of the program raised it, a time limit for example: they run in the watch as well."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = [handler.__func__ if isinstance(handler, MethodType) else handler for handler in handlers]
    codes = {function.__code__ for function in functions if isinstance(function, FunctionType)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(fault.__traceback__))


def _tick(guarded: Guarded, step: Callable[[int], int]) -> None:
    """Call `step` with the ticks that have passed, again and again; it says after how many it is needed again.

    It is called in the main thread, between two of its instructions. There the frames of the program are whole, and its
    torch operations can be traced. Not while a module is imported: that grows, and is no step. Nor in a fork that was
    made between request and call.
    """
    waiting = _thread.allocate_lock()  # held from the request to the call
    owner = os.getpid()
    passed = needed = 1

    def call() -> bool:
        """Always false, which is 0: any other answer is an error."""
        if guarded.over:  # perhaps the interpreter is half taken down
            return False
        if waiting.locked():
            waiting.release()
        if os.getpid() == owner:
            guarded.run(tick)
        return False

    def tick() -> None:
        nonlocal needed
        busy = _imports(sys._getframe()) or _cannot_fork()  # noqa: SLF001  (the only way up the stack)
        needed = 1 if busy else step(passed)

    # A signal handler of the program may run in here. What it raises must reach the program, and what a ctypes callback
    # raises is lost; this function of Python's own asks an object for its truth, and hands on what that raises.
    asked = type("Asked", (), {"__bool__": lambda _: call()})()
    ask = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(asked))  # a call that was requested may come after all else is gone

    def run() -> None:
        nonlocal passed
        while not guarded.over:
            if waiting.acquire(blocking=False):
                ctypes.pythonapi.Py_AddPendingCall(ask, ctypes.py_object(asked))
            passed = needed
            # Waking up is what costs: a program that often gives the interpreter's lock away fights over it until this
            # thread has it (`bench_watch.py --parts steps`).
            time.sleep(passed * TICK_SECONDS)

    _thread.start_new_thread(run, ())


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
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False


def _note_nameless(note: Path) -> None:
    """Write down which code of the program has no file: what its functions hold cannot be told by file and line."""
    main = vars(sys.modules["__main__"])
    functions = [
        name for name, value in main.items() if isinstance(value, FunctionType) and not value.__code__.co_filename
    ]
    modules: list[tuple[str, object]] = list(sys.modules.items())  # a few libraries put other objects there
    frozen = [
        name
        for name, module in modules
        if isinstance(module, ModuleType)
        and name.partition(".")[0] not in sys.stdlib_module_names
        and (spec := vars(module).get("__spec__")) is not None
        and spec.origin == "frozen"
    ]
    sentences = []
    if functions:
        sentences.append(f"functions without a file name are told by their own names only: {_few(functions)}")
    if frozen:
        sentences.append(f"frozen modules have no file: what they hold is not looked at: {_few(frozen)}")
    if sentences:
        note.write_text("\n".join(sentences), encoding="utf-8")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
