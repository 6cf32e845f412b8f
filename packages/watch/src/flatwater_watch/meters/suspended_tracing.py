"""Calls that no debugger, profiler or coverage tool of the program sees, and that leave the tool's state as it was.

Such a tool traces: the interpreter calls its function at each line or call of a frame. A function that is made of C
functions alone has no frame.

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

# Made of C functions alone, as a tracer would see a Python function. Each `next` asks for the thread's state, and calls
# `_enter_tracing` or `_leave_tracing` with it. The state is not kept: in a fork that another thread than the main one
# has made, the state of the main thread is gone.
suspend: Callable[[], None] = partial(next, map(_enter_tracing, map(operator.call, repeat(_thread_state))))
"""Suspend tracing in this thread, until `resume` was called as often as this function."""
resume: Callable[[], None] = partial(next, map(_leave_tracing, map(operator.call, repeat(_thread_state))))


def run_untraced(work: Callable[..., R], *arguments: object) -> R:
    """Call `work` while tracing is suspended in this thread, and return its result."""
    suspend()
    try:
        return work(*arguments)
    finally:
        resume()


def frameless_callable(work: Callable[[], object]) -> Callable[[], bool]:
    """Return a function without a frame that calls `work` while tracing is suspended: for callbacks of the interpreter.

    A debugger that steps would stop in a frame, and `trace` would print it. The function returns False.
    """

    def run_work() -> bool:
        """Call the work, and return False; if it raises, resume tracing, as `untraced_callable` does not then."""
        has_returned = False
        try:
            work()
            has_returned = True
        finally:
            if not has_returned:
                resume()
        return False

    return untraced_callable(run_work)


def untraced_callable(*steps: Callable[[], bool | None]) -> Callable[[], bool]:
    """Return a function, made of C functions alone, that calls the steps in order while tracing is suspended.

    The steps must not raise, and must return a false value. The function returns False.
    """
    calls = (suspend, *steps, resume)
    # An endless iterator, of which each `next` computes an item `any(map(operator.call, calls))`: this makes the calls
    # one after the other. `any` would stop at a true result, and tracing would stay suspended.
    results = map(any, map(partial(map, operator.call), repeat(calls)))
    return partial(next, results)
