"""Modules that a user names: those of somebody else's worlds and teachers."""

import importlib
from types import ModuleType

from flatwater.printable import shown


def import_named(name: str) -> ModuleType:
    """The module of a dotted name.

    Raises:
        ImportError: there is none, or the name cannot be one: relative to nothing, empty, with spaces.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise ImportError(f"{shown(name)} is no name of a module")
    return importlib.import_module(name)
