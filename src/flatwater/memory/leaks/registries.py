"""Places in libraries where a program's objects stay without a name of its own: figures, hooks, handlers."""

from collections.abc import Mapping
from typing import Any

from flatwater.memory.leaks.raw import dict_of, loaded, names_of

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


def registries() -> list[tuple[str, Any]]:
    """The registries of those libraries that are loaded."""
    found = []
    for module, dotted, label in _KNOWN:
        space = loaded(module)
        value = None if space is None else _read(space, dotted.split("."))
        if value is not None:
            found.append((label, value))
    return found


def _read(space: Mapping[str, Any], names: list[str]) -> Any:  # noqa: ANN401  whatever a library keeps there
    """The value, or None in a version of the library that has none there."""
    value: Any = None
    for name in names:
        if name not in space:
            return None
        value = space[name]
        space = names_of(value) if issubclass(type(value), type) else dict_of(value)
    return value
