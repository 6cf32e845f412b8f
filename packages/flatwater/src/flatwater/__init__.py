"""Train agents in any environment, for days, in constant memory."""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {
    **dict.fromkeys(
        ("TrainedRun", "compare", "evaluate", "export", "load", "plan", "resume", "train"), "flatwater.api"
    ),
    "Recipe": "flatwater.recipe",
    "Run": "flatwater.runs.run",
    "ReplayConfig": "flatwater.replay.config",
    "Resumable": "flatwater.envs.wrapped.resumable",
    "restore_checkpoint": "flatwater.checkpoints.parts",
    "save_checkpoint": "flatwater.checkpoints.parts",
    "check_env_conformance": "flatwater.envs.conformance",
    "state": "flatwater.state.tree",
}
"""Names that programs use, and where they are: importing flatwater imports nothing else. `__init__.pyi` has types."""
_MODULES = {"adam": "flatwater.algorithms.adam", "ring": "flatwater.replay.ring", "stack": "flatwater.nets.stack"}
"""Modules whose functions are parts for other people's loops."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        found: object = import_module(_MODULES[name])
    elif name in _LAZY:
        found = vars(import_module(_LAZY[name]))[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_LAZY, *_MODULES, "__version__"]
