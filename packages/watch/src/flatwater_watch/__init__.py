"""Find what grows in any Python program: how much, who holds it, the line that makes it, and when memory ends.

pytest under the watch finds this package imported, and need not warn of it: PYTEST_DONT_REWRITE.
"""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {
    "watch": "flatwater_watch.faces.context",
    "register_container": "flatwater_watch.heap.children",
    "expect_freed": "flatwater_watch.faces.freed",
    "load_ipython_extension": "flatwater_watch.faces.notebook",
    "Finding": "flatwater_watch.diagnose.finding",
    "Monitor": "flatwater_watch.diagnose.monitor",
    "Reading": "flatwater_watch.series.readings",
}
"""Names that programs use, and where they are: importing this imports nothing else. `__init__.pyi` has types."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = vars(import_module(_LAZY[name]))[name]
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_LAZY, "__version__"]
