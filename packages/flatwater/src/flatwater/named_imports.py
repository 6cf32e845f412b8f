"""Import of recipes, environments and teachers that a user names by where they are, as `package.module:Name`."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flatwater.sources import current_folder, enclosing_run_folder, module_files
from flatwater.user_code import CallGuard, is_flatwater_module
from flatwater_watch.errors import ConfigError, FlatwaterError
from flatwater_watch.sanitize import short_repr

_only_ours = ContextVar("only_ours", default=False)
"""Whether files are only read now, so that no name in them is imported."""


class ForeignNameError(ConfigError):
    """A name in a file would have been imported where the file is only read."""


@contextmanager
def refuse_foreign_imports() -> Iterator[None]:
    """Refuse imports of any module but Flatwater's own within this context, for code that only reads files.

    Such code imports no name from a file by itself, but a setting that it checks may lead to an import several calls
    further down.
    """
    token = _only_ours.set(True)
    try:
        yield
    finally:
        _only_ours.reset(token)


_trusted = ContextVar("trusted", default=False)
"""Whether the user trusts the code that is named in runs, for the whole command: a run may lead to other runs, as to
its teacher. It is a context variable, so a new thread begins without trust."""


@contextmanager
def trust_code(trust: bool) -> Iterator[None]:  # noqa: FBT001  (the only thing that is said)
    """Allow imports of code that runs name, within this context, if `trust`, as after `--trust` (`runs.trust`)."""
    token = _trusted.set(trust or _trusted.get())  # an inner context keeps the trust of the outer one
    try:
        yield
    finally:
        _trusted.reset(token)


def is_trusted() -> bool:
    """Return whether the user trusts the code that is named in runs."""
    return _trusted.get()


@dataclass(frozen=True)
class Permit:
    """A permit to import code by name. Functions that import take it as an argument, so that no caller forgets to ask.

    A name that the user gives now may be imported (`GIVEN_PERMIT`); about a name from a file `runs.trust` decides.
    """

    names: frozenset[str] | None = None
    """Names that may be imported; None for any."""

    def covers(self, name: str) -> bool:
        """Return whether a name may be imported."""
        return self.names is None or name in self.names


GIVEN_PERMIT = Permit()
"""Permit for names that a user gives now, in a command or in Python, and for settings that were made from them."""
SHIPPED_PERMIT = Permit(frozenset())
"""Permit for names of Flatwater itself alone."""


def import_named_module(name: str) -> ModuleType:
    """Return the module of a dotted name, installed or in the folder where the command runs.

    Raises:
        ImportError: there is no such module, it lies in the folder of a run, or the name cannot be a module's: relative
            to nothing, empty, with spaces.
        ForeignNameError: the module is not Flatwater's own, and files are only read now.
    """
    if not all(name_part.isidentifier() for name_part in name.split(".")):
        raise ImportError(f"{short_repr(name)} is not a module's name")
    # Flatwater's own module is not looked for in the folder where the command runs.
    if is_flatwater_module(name):
        return importlib.import_module(name)
    # Refused before the folder where the command runs becomes a part of the search path, below.
    if _only_ours.get():
        raise ForeignNameError(
            f"{short_repr(name)} is named in a file and is not imported: a command that reads runs no code"
        )
    for file in module_files(name):
        if (run := enclosing_run_folder(file)) is not None:
            # Whoever sends a run would send its code along, and a folder without __init__.py is a package as well.
            raise ImportError(f"{file} lies in the folder of a run ({run}), and code there is never imported. Move it")
    for folder in current_folder():
        if folder not in sys.path and "" not in sys.path:  # "" stands for the same folder
            sys.path.append(folder)  # last: a file of the folder must not stand in for an installed package
    return importlib.import_module(name)


def import_object(place: str) -> Any:  # noqa: ANN401  (whatever is there)
    """Return the object that `package.module:Name` names.

    Raises:
        ImportError: there is no such module.
        AttributeError: the module has nothing of that name.
    """
    module, _, name = place.partition(":")
    return getattr(import_named_module(module), name)


def find_object(place: str, *, setting: str, expected: str, error: type[FlatwaterError] = ConfigError) -> Any:  # noqa: ANN401  (whatever object has the name)
    """Return the object that the user names as `package.module:Name`.

    Args:
        place: the name.
        setting: beginning of the message: `teacher 'a:B'`, or `it` where the setting and its value stand before.
        expected: words of the setting for what it should be.
        error: class of the error that is raised.

    Raises:
        FlatwaterError: there is no such object; of the class `error`.
    """
    import_errors = (ImportError, AttributeError, SyntaxError)
    try:
        # Reports any other exception as one of the user's code; there is no object yet that could own it.
        with CallGuard(short_repr(place), owner=None, call="the import of its module", passing=import_errors):
            return import_object(place)
    except import_errors as fault:
        raise error(
            f"{setting} cannot be imported ({fault}). Expected {expected}, installed or in the folder where the "
            "command runs"
        ) from fault


def find_function(place: str, *, field: str, takes: str) -> Callable[[Any], Any]:
    """Return a function of one argument that the user names; its exceptions are reported as the user's (`user_code`).

    Args:
        place: `package.module:function`.
        field: the setting.
        takes: words for its argument.

    Raises:
        ConfigError: there is no such function, or it cannot be called with one argument.
    """
    setting = f"{field} = {short_repr(place)}"
    expected = f"package.module:function of a function that takes {takes}"
    if ":" not in place:
        raise ConfigError(f"{setting}: expected {expected}")
    function = find_object(place, setting=f"{setting}: it", expected=expected)
    check_takes_one_argument(function, setting, expected)
    guard = CallGuard(setting, function)

    def call(argument: Any) -> Any:  # noqa: ANN401  (of the function)
        with guard:
            return function(argument)

    return call


def check_takes_one_argument(function: object, setting: str, expected: str) -> None:
    """Refuse what cannot be called with one argument.

    Args:
        function: the function, or what the user gave in its place.
        setting: setting that has it, for the message.
        expected: words for the function that is expected.

    Raises:
        ConfigError: it is no function, or one of another number of arguments.
    """
    callable_: Any = function  # for the type checker
    # A call of these runs none of their lines. Of an object with `__call__` that method says it.
    bodies = (function, type(callable_).__call__)
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(body) for is_kind in kinds for body in bodies):
        raise ConfigError(
            f"{setting}: expected {expected}, got {short_repr(function)}, whose lines a call does not run: write it "
            "with neither async nor yield"
        )
    try:
        inspect.signature(callable_).bind(None)  # binds without a call: None stands for any argument
    except ValueError:  # a function in C may have no signature: its call shows whether it takes one argument
        return
    except TypeError as error:
        raise ConfigError(f"{setting}: expected {expected}, got {short_repr(function)} ({error})") from error


def module_hash(code: Any) -> str:  # noqa: ANN401  (a class or a function)
    """Return a hash of the source text of the module that defines a class or function.

    Raises:
        OSError: the module has no source text.
        TypeError: the object belongs to no module.
    """
    from hashlib import sha256  # noqa: PLC0415  (for the few settings that are kept with it)

    # `or code`: without a module, `getsource` gets the object itself, and raises the error that says why.
    source = inspect.getsource(inspect.getmodule(code) or code)
    return sha256(source.encode()).hexdigest()[:12]
