"""Train agents for days in constant memory, and see who owns every byte."""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {"watch": "flatwater.memory.watch.context", "expect_freed": "flatwater.memory.watch.freed"}
"""Names that programs use, and where they are: importing flatwater imports nothing else. `__init__.pyi` has types."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = vars(import_module(_LAZY[name]))[name]
    return found
