"""Work that no debugger, profiler or coverage tool of the program sees, and that leaves their state as it was.

CPython counts for each thread whether tracing is suspended (3.11 and later; `sys.monitoring` heeds it too). Neither
`sys.settrace` nor the frames of the program are touched, so a tool that looks finds itself where it was.
"""

import ctypes
import operator
from collections.abc import Callable, Generator
from functools import partial
from itertools import repeat
from typing import TypeVar

R = TypeVar("R")

_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))
_enter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThreadState_EnterTracing", ctypes.pythonapi))
_leave = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThreadState_LeaveTracing", ctypes.pythonapi))

# Made of C functions alone, as a Python function would itself be seen by a tracer. The thread's state is asked for each
# time: in a fork of another thread than the main one, the main thread's is gone.
suspend: Callable[[], None] = partial(next, map(_enter, map(operator.call, repeat(_state))))
"""Let this thread not be traced until as many calls of `resume`."""
resume: Callable[[], None] = partial(next, map(_leave, map(operator.call, repeat(_state))))


def run_untraced(work: Callable[..., R], *given: object) -> R:
    """What the work returns, done unseen."""
    suspend()
    try:
        return work(*given)
    finally:
        resume()


def frameless_callable(work: Callable[[], object]) -> Callable[[], bool]:
    """A function that does the work unseen, without a frame of its own: for what the interpreter calls by itself.

    A debugger that steps would stop in the frame, and `trace` would print it. It returns false.
    """

    def done() -> bool:
        ended = False
        try:
            work()
            ended = True
        finally:
            if not ended:  # it raised, so that what comes after this function is not reached
                resume()
        return False

    return untraced_callable(done)


def untraced_callable(*done: Callable[[], bool | None]) -> Callable[[], bool]:
    """A function of C functions alone that does while tracing is suspended what raises nothing and returns false."""
    turns = map(any, map(partial(map, operator.call), repeat((suspend, *done, resume))))
    return partial(next, turns)


def run_each_turn(work: Callable[[], object], failed: Callable[[BaseException], object]) -> Generator[bool, None, None]:
    """Work at each turn, and raise nothing: for where the interpreter would print it and go on.

    Python runs signal handlers at the first instruction of a function, where no `try` has begun. It runs none where a
    generator goes on that waits in `yield from`: so this is one, and all of its body lies in a `try`. The first turn
    does nothing. Whoever lets it go closes it, as that runs its last lines.

    Args:
        work: is never called within itself.
        failed: gets what it raises, or a signal handler meanwhile.
    """
    fault: BaseException | None = None
    while True:
        try:
            while True:
                try:
                    if fault is None:
                        yield from repeat(False, 1)  # noqa: FBT003  (its value)
                        work()
                    else:
                        failed(fault)
                        fault = None
                except GeneratorExit:
                    return
                except BaseException as raised:  # noqa: BLE001  (of a signal handler of the program)
                    fault = raised
        except BaseException as raised:  # noqa: BLE001  (the same, from one turn to the next)
            fault = raised
