"""A test whether a pooled state that was used and reset equals a new state, bit for bit.

Resetting a state in place is cheaper than building another, on one condition: nothing of an episode may reach the next.
Two states are compared, a new state and a state that `dirty_` has used, both just reset; then `trace` plays both, which
must yield the same numbers, and they are compared again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from flatwater.state.tree import Leaf, Value, leaves

S = TypeVar("S")


class Remnant(NamedTuple):
    """A difference of a state that was used and reset from a new state."""

    path: str
    """Path of the leaf in the state tree, or name of a value of the trace."""
    difference: str
    """The difference in words, such as `differs after the reset in 3 of 8 elements`."""


def remnants(
    *,
    build: Callable[[], S],
    reset_: Callable[[S], None],
    dirty_: Callable[[S], None],
    trace: Callable[[S], Iterable[tuple[str, Tensor]]],
    overwritten: Mapping[str, str] | None = None,
) -> list[Remnant]:
    """Return the differences between a new state and a state that was used and then reset.

    If there are none, used states may be pooled: reset and used again in place of new ones.

    Args:
        build: returns a new state, always the same.
        reset_: begins an episode, always the same, in a new or a used state.
        dirty_: plays episodes in a state that was reset, as many as it takes to write to every leaf.
        trace: plays the episode that `reset_` has begun, and yields named values in order.
        overwritten: paths of leaves that are always written before they are read, with the reason: a reset may leave
            them as they are, and the trace alone shows that they do not matter.

    Returns:
        Leaves that differ after the reset, values of the trace, each name once, leaves that differ after the trace, and
        leaves whose storage has moved.
    """
    new_state, used_state = build(), build()
    reset_(used_state)
    # Read before the state is used: a reset must write in place, and not allocate again.
    addresses = _storage_addresses(used_state)
    dirty_(used_state)
    for state in (new_state, used_state):
        reset_(state)
    skipped_paths = set(overwritten or ())
    differences = _compare_states(new_state, used_state, "differs after the reset", skipped_paths)
    paths = {remnant.path for remnant in differences}
    # Both traces advance together, so that neither is kept whole.
    for number, ((name, value), (_, new_value)) in enumerate(zip(trace(used_state), trace(new_state), strict=True)):
        if name not in paths and not have_same_bits(value, new_value):
            paths.add(name)
            differences.append(Remnant(name, f"number {number} of the trace differs from a new state's"))
    differences += [
        remnant
        for remnant in _compare_states(new_state, used_state, "differs after the trace", skipped_paths)
        if remnant.path not in paths
    ]
    addresses_after = _storage_addresses(used_state)
    moved_paths = [path for path, address in addresses.items() if addresses_after[path] != address]
    return differences + [Remnant(path, "lies in another storage than before") for path in moved_paths]


def have_same_bits(a: Value, b: Value) -> bool:
    """Return whether two leaves have the same bits, so that NaN equals NaN; of scalars, the same type and text."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_raw_bytes(a), _raw_bytes(b))
    if isinstance(a, torch.Generator) and isinstance(b, torch.Generator):
        return torch.equal(a.get_state(), b.get_state())
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return type(a) is type(b) and repr(a) == repr(b)


def _raw_bytes(t: Tensor) -> Tensor:
    """Return the bytes of a tensor's numbers in a row, uint8 [bytes]."""
    return t.detach().contiguous().flatten().view(torch.uint8)


def _compare_states(new_state: object, used_state: object, phrase: str, skipped_names: set[str]) -> list[Remnant]:
    """Return the leaves whose bits differ between two states.

    Args:
        new_state: the state that was not used.
        used_state: the state that was used and reset, with the same leaves.
        phrase: beginning of the sentence about each leaf, such as `differs after the reset`.
        skipped_names: paths of leaves that are not compared.
    """
    pairs: Iterable[tuple[Leaf, Leaf]] = zip(leaves(new_state), leaves(used_state), strict=True)
    return [
        Remnant(new_leaf.path, f"{phrase}{_difference_extent(new_leaf.value, used_leaf.value)}")
        for new_leaf, used_leaf in pairs
        if new_leaf.path not in skipped_names and not have_same_bits(new_leaf.value, used_leaf.value)
    ]


def _difference_extent(a: Value, b: Value) -> str:
    """Return ` in 3 of 8 elements` for tensors of one shape, where NaN equals NaN; else an empty text."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape):
        return ""
    # Equal, or both NaN, which alone differs from itself.
    is_equal = (a == b) | ((a != a) & (b != b))  # noqa: PLR0124  (NaN)
    return f" in {int((~is_equal).sum())} of {a.numel()} elements"


def _storage_addresses(state: object) -> dict[str, Any]:
    """Return the memory address of each tensor of a state, by the tensor's path."""
    return {leaf.path: leaf.value.data_ptr() for leaf in leaves(state) if isinstance(leaf.value, Tensor)}
