"""The border between Flatwater and what users bring: what comes across it is told as theirs, with class, file and line.

An error of somebody's class may have no line in it: `__init__` wants an argument, `reset` knows no seed. So it is not
searched for in tracebacks alone: each call knows which object it called.
"""

import inspect
import os
import re
import signal
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flatwater_watch.errors import FlatwaterError, Terminated, UserCodeError

_OURS = re.compile(r"flatwater(_watch|_trading)?(\.|$)")
"""Modules of Flatwater's distributions: what they raise is told as a fault of Flatwater, not of the user.
A package of somebody's may be called `flatwater_acme`, and is not."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "<")
_OF_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


@dataclass(frozen=True)
class CodeLine:
    """A line of somebody's code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """`boat.py, line 12, in Boat.step`."""
        return f"{self.file}, line {self.line}, in {self.function}"


class Border:
    """Around each call of an object that is not Flatwater's.

        with Border("environment boat:Boat", env, "step"):
            given = env.step(action)

    It may be kept and entered again, and costs a fraction of a microsecond. Errors of Flatwater pass, and so does what
    the handler of a signal raises. All else is the object's, whatever its class: SystemExit as well, which would end
    the run as if it were done, and a BrokenPipeError, which would be taken for one of our own output.
    """

    def __init__(
        self,
        what: str,
        owner: object,
        method: str = "",
        *,
        call: str = "",
        wanted: str = "",
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Say who is called.

        Args:
            what: how messages begin: `environment boat:Boat`.
            owner: the object, its class, or a function.
            method: name of what is called of it; left out, the object itself is.
            call: how that is told; left out, `step()`.
            wanted: how it must be callable: said where it failed before its first line.
            passing: errors that the caller tells about in words of its own.
        """
        self._what, self._owner, self._method = what, owner, method
        called = method or dotted_name(owner).rpartition(":")[2]
        self._call, self._wanted, self._passing = call or f"{called}()", wanted, passing

    def __enter__(self) -> None:
        """Nothing is to be prepared."""

    def __exit__(self, _kind: type[BaseException] | None, fault: BaseException | None, _trace: object) -> None:
        """Tell what was raised as the object's.

        Raises:
            UserCodeError: with class, file and line.
        """
        if fault is not None and not isinstance(fault, self._passing) and not _passes_border(fault):
            raise UserCodeError(self.describe_fault(fault)) from fault

    def describe_fault(self, fault: BaseException) -> str:
        """What it raised, and where."""
        place = own_place(fault)
        where = place or find_source_line(self._owner, self._method)
        said = str(fault).strip().partition("\n")[0]
        raised = f"{type(fault).__name__}{f': {said}' if said else ''}"
        line = f"{self._what}: {self._call} raised {raised}{f' ({where})' if where else ''}"
        return f"{line}. Expected {self._wanted}" if place is None and self._wanted else line


def _passes_border(fault: BaseException) -> bool:
    """Whether it is none of the object's: an error of ours, memory that is used up, or a signal.

    Handlers of ours raise `Terminated`. Where another one is set, a KeyboardInterrupt may be that one's.
    """
    if isinstance(fault, FlatwaterError | Terminated | MemoryError | GeneratorExit):
        return True
    handler = signal.getsignal(signal.SIGINT)
    ours = inspect.isroutine(handler) and is_flatwater_module(str(handler.__module__))
    return isinstance(fault, KeyboardInterrupt) and not ours


def own_place(fault: BaseException) -> CodeLine | None:
    """Where the user's own code raised an error, or called what did; None where none of it was at work."""
    for frame, line in reversed([*traceback.walk_tb(fault.__traceback__)]):
        code = frame.f_code
        if not is_flatwater_module(str(frame.f_globals.get("__name__"))) and not _is_installed(code.co_filename):
            return CodeLine(Path(code.co_filename).name, line, code.co_qualname)
    return None


def find_source_line(owner: object, method: str = "") -> CodeLine | None:
    """Where a class, its method or a function is written; None where it is installed, or no text is to be had."""
    found = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
    try:
        named = inspect.unwrap(cast("Any", getattr(found, method) if method else found))
        file, (_, line), module = inspect.getsourcefile(named), inspect.getsourcelines(named), str(named.__module__)
    except (AttributeError, TypeError, OSError, ValueError):
        return find_source_line(owner) if method else None
    if file is None or is_flatwater_module(module) or _is_installed(file):
        return find_source_line(owner) if method else None
    return CodeLine(Path(file).name, max(line, 1), named.__qualname__)


def dotted_name(owner: object) -> str:
    """A class, or that of an object, by where it is: `boat:Boat`."""
    found = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
    return f"{found.__module__}:{found.__qualname__}"


def is_flatwater_module(module: str) -> bool:
    """Whether a dotted name is that of a module of Flatwater's: `flatwater.runs.run`, `flatwater_trading`."""
    return _OURS.match(module) is not None


def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return file.startswith(_OF_PYTHON) or any(part in file for part in _LIBRARIES)
