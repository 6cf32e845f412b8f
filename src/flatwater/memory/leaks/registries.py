"""Places in libraries where a program's objects stay without a name of its own: figures, hooks, handlers."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_KNOWN = (
    ("matplotlib._pylab_helpers", "Gcf.figs", "pyplot's figures"),
    ("logging", "root.handlers", "logging's handlers"),
    ("gc", "garbage", "gc's uncollectable objects"),
    ("gc", "callbacks", "gc's callbacks"),
    ("multiprocessing.process", "_children", "multiprocessing's children"),
    ("torch.nn.modules.module", "_global_forward_hooks", "torch's global forward hooks"),
    ("torch.nn.modules.module", "_global_forward_pre_hooks", "torch's global forward pre-hooks"),
    ("torch.nn.modules.module", "_global_backward_hooks", "torch's global backward hooks"),
    ("torch.nn.modules.module", "_global_backward_pre_hooks", "torch's global backward pre-hooks"),
    ("torch.optim.optimizer", "_global_optimizer_pre_hooks", "torch's global optimizer pre-hooks"),
    ("torch.optim.optimizer", "_global_optimizer_post_hooks", "torch's global optimizer post-hooks"),
    ("gymnasium.envs.registration", "registry", "gymnasium's registry"),
    ("sqlalchemy.pool.base", "_pool_registry", "sqlalchemy's pools"),
)
"""Module, where in it, and the name that people know it by."""

_namespace: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
_class_namespace: Callable[[type], dict[str, Any]] = vars(type)["__dict__"].__get__


def registries() -> list[tuple[str, Any]]:
    """The registries of those libraries that are loaded."""
    found = []
    for module, dotted, label in _KNOWN:
        loaded = sys.modules.get(module)
        value = _read(loaded, dotted.split(".")) if isinstance(loaded, ModuleType) else None
        if value is not None:
            found.append((label, value))
    return found


def _read(module: ModuleType, names: list[str]) -> Any:  # noqa: ANN401  whatever a library keeps there
    """The value, or None in a version of the library that has none there."""
    value: Any = module
    for name in names:
        if isinstance(value, ModuleType):
            space = _namespace(value)
        elif isinstance(value, type):
            space = _class_namespace(value)
        else:
            space = vars(value)
        if name not in space:
            return None
        value = space[name]
    return value
