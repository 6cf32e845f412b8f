"""Calls that no debugger, profiler or coverage tool of the program sees, and that leave their state as it was.

CPython counts for each thread whether tracing is suspended (3.11 and later; `sys.monitoring` heeds it too). Neither
`sys.settrace` nor the frames of the program are touched, so a tool that looks finds itself where it was.
"""

import ctypes
import operator
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import TypeVar

R = TypeVar("R")

_thread_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))
_enter_tracing = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThreadState_EnterTracing", ctypes.pythonapi))
_leave_tracing = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThreadState_LeaveTracing", ctypes.pythonapi))

# Made of C functions alone, as a Python function would itself be seen by a tracer. The thread's state is asked for each
# time: in a fork of another thread than the main one, the main thread's is gone.
suspend: Callable[[], None] = partial(next, map(_enter_tracing, map(operator.call, repeat(_thread_state))))
"""Let this thread not be traced until as many calls of `resume`."""
resume: Callable[[], None] = partial(next, map(_leave_tracing, map(operator.call, repeat(_thread_state))))


def run_untraced(work: Callable[..., R], *arguments: object) -> R:
    """Call `work` while tracing is suspended in this thread, and return its result."""
    suspend()
    try:
        return work(*arguments)
    finally:
        resume()


def frameless_callable(work: Callable[[], object]) -> Callable[[], bool]:
    """A function without a frame that calls `work` while tracing is suspended: for callbacks of the interpreter.

    A debugger that steps would stop in a frame, and `trace` would print it. The function returns false.
    """

    def done() -> bool:
        """Call the work; if it raises, resume tracing, as `resume` behind this function is not reached then."""
        ended = False
        try:
            work()
            ended = True
        finally:
            if not ended:
                resume()
        return False

    return untraced_callable(done)


def untraced_callable(*steps: Callable[[], bool | None]) -> Callable[[], bool]:
    """A function, made of C functions alone, that calls others while tracing is suspended.

    The others must not raise, and must return false.
    """
    # `any` stops at a true result, and then tracing would stay suspended.
    turns = map(any, map(partial(map, operator.call), repeat((suspend, *steps, resume))))
    return partial(next, turns)
