"""Train agents for days in constant memory, and see who owns every byte."""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {
    **dict.fromkeys(("TrainedRun", "evaluate", "load", "plan", "resume", "train"), "flatwater.api"),
    "Recipe": "flatwater.runs.recipe",
    "Run": "flatwater.runs.run",
    "check_env_conformance": "flatwater.envs.conformance",
    "state": "flatwater.state.tree",
    "watch": "flatwater.memory.watch.context",
    "expect_freed": "flatwater.memory.watch.freed",
}
"""Names that programs use, and where they are: importing flatwater imports nothing else. `__init__.pyi` has types."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = vars(import_module(_LAZY[name]))[name]
    return found


def __dir__() -> list[str]:
    return [*_LAZY, "__version__"]
