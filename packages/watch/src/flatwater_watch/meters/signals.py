"""Exceptions of the program that are raised within the watch.

Signal handlers run wherever the main thread is, and another thread may set an exception in it, as time limits do
(`PyThreadState_SetAsyncExc`): both may be raised in the watch's code just as in the program's.
"""

import os
import sys
from _signal import getsignal, valid_signals  # type: ignore[import-not-found]  # those of `signal` make enums, by functions that a program may replace
from collections.abc import Collection
from types import CodeType, FunctionType, MethodType

_WATCH_AND_STDLIB_FOLDERS = (__file__.rpartition("/meters/")[0], os.__file__.rpartition("/")[0], "<frozen ")
"""Places of the code that the watch runs: its own, and the standard library's."""
_INSTALL_FOLDERS = ("/site-packages/", "/dist-packages/")
_FOREIGN_MODULES = sys.stdlib_module_names | {"flatwater", "flatwater_watch", "flatwater_trading"}
_STOP_EXCEPTIONS = (KeyboardInterrupt, SystemExit)
"""Standard exceptions that are never a fault of the watch."""
_module_of = vars(type)["__module__"].__get__
"""The name of a class's module, whatever its metaclass says."""


def signal_handler_codes() -> set[CodeType]:
    """The code of the program's signal handlers, a time limit for example."""
    handlers = [getsignal(number) for number in valid_signals()]
    functions = [handler.__func__ if type(handler) is MethodType else handler for handler in handlers]
    return {function.__code__ for function in functions if type(function) is FunctionType}


def is_program_fault(fault: BaseException, program: Collection[CodeType] = ()) -> bool:
    """Whether an exception that came up within the watch was raised for the program, which must get it.

    Args:
        fault: exception with its traceback.
        program: code of the program that the watch calls.
    """
    if type(fault) in _STOP_EXCEPTIONS:
        return True
    program_codes, strange, trace = {*program, *signal_handler_codes()}, False, fault.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code in program_codes:
            return True
        strange = strange or not code.co_filename.startswith(_WATCH_AND_STDLIB_FOLDERS)
        trace = trace.tb_next
    # Strange code: an object that lies, or a function that the program has put in place of a builtin one.
    return not strange and _is_of_the_user(type(fault))


def _is_of_the_user(kind: type) -> bool:
    """Whether a class is of the user's own code; an exception of a library may come from a C function it has."""
    name = str(_module_of(kind))
    if name == "__main__":
        return True
    if name.partition(".")[0] in _FOREIGN_MODULES or (module := sys.modules.get(name)) is None:
        return False
    file = vars(module).get("__file__")
    return type(file) is str and not any(folder in file for folder in _INSTALL_FOLDERS)
