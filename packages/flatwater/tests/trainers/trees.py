"""State trees as plain values: saved, restored and compared leaf by leaf."""

import hashlib
from typing import Any

import torch

from flatwater.state.tree import Leaf, leaves, set_scalar_


def leaf_copies(run: object) -> dict[str, Any]:
    """A copy of every leaf that a checkpoint would hold, by path."""
    return {leaf.path: copy(leaf) for leaf in leaves(run) if not leaf.derived}


def copy(leaf: Leaf) -> Any:
    value = leaf.value
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value.clone() if isinstance(value, torch.Tensor) else value


def restore_(run: object, held: dict[str, Any]) -> None:
    for leaf in leaves(run):
        if leaf.derived:
            continue
        if isinstance(leaf.value, torch.Generator):
            leaf.value.set_state(held[leaf.path])
        elif isinstance(leaf.value, torch.Tensor):
            leaf.value.copy_(held[leaf.path])
        else:
            set_scalar_(leaf, held[leaf.path])


def digest(run: object) -> str:
    found = hashlib.sha256()
    for path, value in leaf_copies(run).items():
        found.update(path.encode() + content(value))
    return found.hexdigest()


def content(value: Any) -> bytes:
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    assert one.keys() == other.keys()
    return [path for path, value in one.items() if content(value) != content(other[path])]


def pointers(run: object) -> dict[str, int]:
    """Where each tensor lies, by path."""
    return {leaf.path: leaf.value.data_ptr() for leaf in leaves(run) if isinstance(leaf.value, torch.Tensor)}
