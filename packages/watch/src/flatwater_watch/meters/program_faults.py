"""A test that tells exceptions of the program, which are raised while the watch runs, from faults of the watch.

Faults of the watch are dropped and reported; exceptions of the program are raised again, so that it gets them.

Signal handlers run wherever the main thread is, and another thread may set an exception in it, as time limits do
(`PyThreadState_SetAsyncExc`): both may be raised in the watch's code just as in the program's.
"""

import os
import sys
from _signal import getsignal, valid_signals  # type: ignore[import-not-found]  # those of `signal` make enums, by functions that a program may replace
from collections.abc import Collection
from types import CodeType, FunctionType, MethodType

from flatwater_watch.installs import is_library_folder
from flatwater_watch.paths import parent_folder

_WATCH_AND_STDLIB_FOLDERS = (__file__.rpartition("/meters/")[0], os.__file__.rpartition("/")[0], "<frozen ")
"""Beginnings of the file names of code that the watch runs: its own code, and the standard library's."""
_LIBRARY_MODULES = sys.stdlib_module_names | {"flatwater", "flatwater_watch", "flatwater_trading"}
_STOP_EXCEPTIONS = (KeyboardInterrupt, SystemExit)
"""Standard exceptions that are never a fault of the watch."""
_class_module = vars(type)["__module__"].__get__
"""Function that returns the name of a class's module, whatever its metaclass says."""


def function_code(callback: object) -> CodeType | None:
    """Return the code of a function or method that is written in Python; None for all other objects."""
    # By type, as an attribute of another class could run code of the program.
    function = callback.__func__ if type(callback) is MethodType else callback
    return function.__code__ if type(function) is FunctionType else None


def signal_handler_codes() -> set[CodeType]:
    """Return the code of the program's signal handlers, such as one that enforces a time limit."""
    return {code for number in valid_signals() if (code := function_code(getsignal(number))) is not None}


def is_program_fault(fault: BaseException, program: Collection[CodeType] = ()) -> bool:
    """Return whether an exception that the watch has caught is the program's, which must get it.

    It is if it ends the program, if its traceback passes a signal handler or a code object of `program` (code of the
    program that the watch calls on purpose), or if it was set from outside and the user has written its class.
    """
    if type(fault) in _STOP_EXCEPTIONS:
        return True
    program_codes = {*program, *signal_handler_codes()}
    passed_foreign_code = False  # code that is neither the watch's nor the standard library's
    trace = fault.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code in program_codes:
            return True
        if not code.co_filename.startswith(_WATCH_AND_STDLIB_FOLDERS):
            passed_foreign_code = True
        trace = trace.tb_next
    # Other foreign code was called by mistake, such as a method of an object that poses as another, or a function of
    # the program in the place of a builtin one: its exceptions are the watch's fault. Without any, another thread has
    # set the exception.
    return not passed_foreign_code and _is_user_class(type(fault))


def _is_user_class(kind: type) -> bool:
    """Return whether a class is defined in the user's own code: in neither a library nor Python."""
    module_name = str(_class_module(kind))
    if module_name == "__main__":
        return True
    module = sys.modules.get(module_name)
    if module is None or module_name.partition(".")[0] in _LIBRARY_MODULES:
        return False
    file = vars(module).get("__file__")
    return type(file) is str and not is_library_folder(parent_folder(file))
