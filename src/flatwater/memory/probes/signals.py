"""Signal handlers of the program: they run wherever the main thread is, and so within the watch as well."""

import signal
from collections.abc import Collection
from types import CodeType, FunctionType, MethodType, TracebackType


def handlers() -> set[CodeType]:
    """The code of the program's signal handlers, a time limit for example."""
    known = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = [handler.__func__ if type(handler) is MethodType else handler for handler in known]
    return {function.__code__ for function in functions if type(function) is FunctionType}


def passes(trace: TracebackType | None, program: Collection[CodeType]) -> bool:
    """Whether code of the program raised it."""
    while trace is not None:
        if trace.tb_frame.f_code in program:
            return True
        trace = trace.tb_next
    return False
