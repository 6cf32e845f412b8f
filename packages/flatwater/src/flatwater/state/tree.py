"""The state tree: the only place where a run keeps anything between rounds.

A class marked `@state` is a fixed set of named fields: tensors, arrays, generators, numbers, further states, and
lists or dicts of these. `leaves` is the only way to walk it, and three readers use it: checkpoints save the leaves,
the memory ledger weighs them, and the planner weighs them on the meta device before the run exists. A new component
therefore needs no code for any of the three.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import torch

T = TypeVar("T")
Scalar = int | float | bool | str | None
Value = torch.Tensor | np.ndarray | torch.Generator | Scalar


def derived_field() -> Any:  # noqa: ANN401  (a field specifier fits every field type)
    """Return a dataclass field that checkpoints leave out, because it is rebuilt from data and configuration."""
    return field(metadata={"derived": True})


@dataclass_transform(kw_only_default=True, field_specifiers=(derived_field, field))
def state(cls: type[T]) -> type[T]:
    """Make a class a mutable, keyword-only, slotted dataclass of fixed fields, compared by identity."""
    return dataclass(kw_only=True, slots=True, eq=False, weakref_slot=True)(cls)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One place in the tree: its path, and its present value."""

    path: str
    """Field names and keys from the root, joined by dots, such as `population.actor.flat`."""
    owner: Any
    """The state, list or dict that holds the value."""
    key: str | int
    """Attribute name, dict key or list index of the value in its owner."""
    value: Value
    derived: bool
    """True if the value is rebuilt from data and configuration, so a checkpoint leaves it out."""


def leaves(root: object) -> Iterator[Leaf]:
    """Yield every leaf below `root`, depth first in field order.

    Raises:
        TypeError: a field holds something that is neither a leaf nor a branch; the message names its path.
    """
    yield from _walk_branch(root, "", is_derived=False)


def _walk_branch(branch: Any, path: str, *, is_derived: bool) -> Iterator[Leaf]:  # noqa: ANN401  (a state tree)
    """Yield the leaves below a branch with their paths; all are derived if the branch, or a field above them, is."""
    for key, value, is_derived_field in _children(branch, path):
        child_path = f"{path}.{key}" if path else str(key)
        is_derived_child = is_derived or is_derived_field
        if isinstance(value, torch.Tensor | np.ndarray | torch.Generator | Scalar):
            yield Leaf(child_path, branch, key, value, is_derived_child)
        else:
            yield from _walk_branch(value, child_path, is_derived=is_derived_child)


def _children(branch: Any, path: str) -> Iterator[tuple[str | int, Any, bool]]:  # noqa: ANN401  (a state tree)
    """Yield the key of each child of a branch, its value, and whether it is derived.

    Raises:
        TypeError: the branch is of a class that a state tree cannot hold.
    """
    if is_dataclass(branch) and not isinstance(branch, type):
        for f in fields(branch):
            yield f.name, getattr(branch, f.name), bool(f.metadata.get("derived"))
    elif isinstance(branch, dict):
        for key, value in branch.items():
            # The key itself and not its text, under which `set_scalar_` would add a new entry for a number.
            yield key, value, False
    elif isinstance(branch, list | tuple):
        for index, value in enumerate(branch):
            yield index, value, False
    else:
        name = type(branch).__name__
        has_state_dict = isinstance(branch, torch.nn.Module | torch.optim.Optimizer)
        remedy = "Give its state_dict()" if has_state_dict else "Leave it out"
        raise TypeError(
            f"{path}: a state tree cannot hold a {name}. {remedy}; a state tree has tensors, "
            "arrays, generators, numbers, text "
            "and dicts, lists and @state objects of these."
        )


def set_scalar_(leaf: Leaf, value: Scalar) -> None:
    """Write a number, flag or string back to the leaf's place in the tree."""
    if isinstance(leaf.owner, list):
        leaf.owner[int(leaf.key)] = value
    elif isinstance(leaf.owner, dict):
        leaf.owner[leaf.key] = value
    else:
        setattr(leaf.owner, str(leaf.key), value)


def is_immutable(owner: Any) -> bool:  # noqa: ANN401  (a state, list, dict or tuple)
    """Return whether the owner's values cannot be replaced: it is a tuple or a frozen dataclass."""
    parameters = vars(type(owner)).get("__dataclass_params__")
    return isinstance(owner, tuple) or (parameters is not None and bool(parameters.frozen))


def nbytes(root: object) -> dict[str, int]:
    """Return the bytes of each leaf by path; storage that several leaves share counts whole, for the first of them."""
    # Identities of the storages that have counted.
    storages: set[int] = set()
    sizes: dict[str, int] = {}
    for leaf in leaves(root):
        sizes[leaf.path] = _leaf_bytes(leaf.value, storages)
    return sizes


def _leaf_bytes(value: Value, storages: set[int]) -> int:
    """Return a leaf's bytes, or 0 if its storage is in `storages`, to which a new storage is added."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        # Not data_ptr: it is 0 for every tensor on the meta device, where plans are made.
        return _bytes_once(storage._cdata, storage.nbytes(), storages)  # noqa: SLF001  (torch has no public name for it)
    if isinstance(value, np.ndarray):
        # A view counts as the whole array that owns its memory, as it keeps that array alive.
        base: Any = value
        while isinstance(base.base, np.ndarray):
            base = base.base
        return _bytes_once(id(base), int(base.nbytes), storages)
    return GENERATOR_BYTES if isinstance(value, torch.Generator) else SCALAR_BYTES


def _bytes_once(identity: int, size: int, identities: set[int]) -> int:
    """Return `size` and add the identity to `identities`, or return 0 if it is among them already."""
    if identity in identities:
        return 0
    identities.add(identity)
    return size


GENERATOR_BYTES = 5056
"""Bytes of a Mersenne Twister generator's state in torch."""
SCALAR_BYTES = 8
"""Bytes of a number, flag or text, which counts as one number."""
