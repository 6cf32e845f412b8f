"""Calls of users' code: an error of that code is reported as the user's, with file and line.

A traceback may hold no line of the user's code, as where `reset` is called with a seed that it does not take. So each
`CallGuard` knows the object that it calls as well.
"""

import inspect
import os
import re
import signal
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatwater_watch.errors import FlatwaterError, Terminated, UserCodeError

_OWN_MODULE = re.compile(r"flatwater(_watch|_trading)?(\.|$)")
"""Modules of Flatwater's distributions: their errors are reported as faults of Flatwater, not of the user. A package
`flatwater_acme` of somebody else is not among them."""
# `<` is in the names of code that has no file: `<string>`, `<frozen importlib._bootstrap>`.
_INSTALL_FOLDERS = ("/site-packages/", "/dist-packages/", "<")
_PYTHON_FOLDERS = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


@dataclass(frozen=True)
class CodeLine:
    """A line of a user's code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return text such as `boat.py, line 12, in Boat.step`."""
        return f"{self.file}, line {self.line}, in {self.function}"


class CallGuard:
    """A guard around each call of an object that is not Flatwater's.

        with CallGuard("environment boat:Boat", env, "step"):
            result = env.step(action)

    It may be kept and entered again, and costs a fraction of a microsecond. Errors of Flatwater pass, and so does what
    the handler of a signal raises. Every other exception is raised as a `UserCodeError`: SystemExit as well, which
    would end the run as if it were done, and BrokenPipeError, which would be taken for a fault of our own output.
    """

    def __init__(
        self,
        subject: str,
        owner: object,
        method: str = "",
        *,
        call: str = "",
        expected: str = "",
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Keep the object that is called, and the words for a message about it.

        Args:
            subject: beginning of messages: `environment boat:Boat`.
            owner: the object, its class, or a function.
            method: name of the method that is called; left out, the object itself is called.
            call: words for the call; left out, `step()`.
            expected: signature that the object needs, in the message if the call failed before the object's first line.
            passing: exceptions that pass unchanged, as the caller reports them in its own words.
        """
        self._subject, self._owner, self._method = subject, owner, method
        callee = method or dotted_name(owner).rpartition(":")[2]  # the name of the class or function itself
        self._call = call or f"{callee}()"
        self._expected, self._passing_types = expected, passing

    def __enter__(self) -> None:
        """Do nothing: a guard needs no preparation."""

    def __exit__(self, _kind: type[BaseException] | None, fault: BaseException | None, _trace: object) -> None:
        """Raise `UserCodeError` in place of an exception of the user's object; let Flatwater's own and signals pass.

        Raises:
            UserCodeError: the object raised; with class, file and line.
        """
        if fault is not None and not isinstance(fault, self._passing_types) and not _is_not_users_fault(fault):
            raise UserCodeError(self.describe_fault(fault)) from fault

    def describe_fault(self, fault: BaseException) -> str:
        """Return a sentence about an exception of the object, and where it was raised."""
        user_line = user_code_line(fault)
        source_line = user_line or find_source_line(self._owner, self._method)
        first_line = str(fault).strip().partition("\n")[0]
        reason = f": {first_line}" if first_line else ""
        place = f" ({source_line})" if source_line else ""
        message = f"{self._subject}: {self._call} raised {type(fault).__name__}{reason}{place}"
        # Without a line of the user's in the traceback, the call did not fit the object's signature.
        return f"{message}. Expected {self._expected}" if user_line is None and self._expected else message


def _is_not_users_fault(fault: BaseException) -> bool:
    """Return whether an exception is not the fault of the user's object: our own, exhausted memory, or a signal.

    Flatwater's handler of Ctrl-C raises `Terminated`, so while it is set, a KeyboardInterrupt is the object's own.
    """
    if isinstance(fault, FlatwaterError | Terminated | MemoryError | GeneratorExit):
        return True
    # Asked now and not kept: the program may have set another handler since.
    handler = signal.getsignal(signal.SIGINT)
    is_own_handler = inspect.isroutine(handler) and is_flatwater_module(str(handler.__module__))
    return isinstance(fault, KeyboardInterrupt) and not is_own_handler


def user_code_line(fault: BaseException) -> CodeLine | None:
    """Return the line of the user's code that raised an error, or called what raised it; None if there is none."""
    import traceback  # noqa: PLC0415  (1 ms, which each command that goes well would pay)

    # From the innermost frame outwards: the line nearest to the fault.
    for frame, line in reversed([*traceback.walk_tb(fault.__traceback__)]):
        code = frame.f_code
        if not is_flatwater_module(str(frame.f_globals.get("__name__"))) and not _is_installed(code.co_filename):
            return CodeLine(Path(code.co_filename).name, line, code.co_qualname)
    return None


def find_source_line(owner: object, method: str = "") -> CodeLine | None:
    """Return the source line where a method, class or function begins.

    For a method that is inherited from an installed package, or has no text, return the line of the class.

    Args:
        owner: the class, an object of it, or a function.
        method: name of a method of the class; empty for the owner itself.

    Returns:
        None if the class or function is installed, Flatwater's own, or has no text.
    """
    class_or_function = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
    try:
        wrapped: Any = getattr(class_or_function, method) if method else class_or_function
        target = inspect.unwrap(wrapped)  # the function behind decorators
        file = inspect.getsourcefile(target)
        _text, line = inspect.getsourcelines(target)
        module = str(target.__module__)
    except (AttributeError, TypeError, OSError, ValueError):
        return find_source_line(owner) if method else None  # the line of the class
    if file is None or is_flatwater_module(module) or _is_installed(file):
        return find_source_line(owner) if method else None
    return CodeLine(Path(file).name, max(line, 1), target.__qualname__)


def dotted_name(owner: object) -> str:
    """Return the import path of a class or function, or of an object's class: `boat:Boat`."""
    class_or_function = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
    return f"{class_or_function.__module__}:{class_or_function.__qualname__}"


def is_flatwater_module(module: str) -> bool:
    """Return whether a dotted name names a module of Flatwater's: `flatwater.runs.run`, `flatwater_trading`."""
    return _OWN_MODULE.match(module) is not None


def _is_installed(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    # Python's own folders are known as whole paths. Packages lie in virtual environments, which may be anywhere.
    return file.startswith(_PYTHON_FOLDERS) or any(library in file for library in _INSTALL_FOLDERS)
