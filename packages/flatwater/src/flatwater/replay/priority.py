"""Prioritised draws of transitions, in proportion to a power of their TD error (Schaul et al. 2016).

Each numbered place of a replay, a slot of its storage, has a mass; a place of mass 0 is never drawn. A draw inverts the
cumulative sum of the masses: first of blocks, whose sums are kept, then within a block. So a draw costs
O(capacity / block), a change of mass O(block), and nothing waits for the device. With alpha = 0 the draw is uniform
over all places that hold a transition.
"""

from dataclasses import field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state

MINIMUM_ERROR = 1e-6
"""Added to every |TD error|, so that a transition that was predicted exactly can still be drawn."""
BLOCK_PLACES = 64
"""Places of a block."""
BLOCKS_AT_ONCE = 1024
"""Blocks that are summed at once when all sums are renewed, in a few hundred KiB of memory."""
MAXIMUM_ERROR = 1e12
"""Error in place of an infinite error, which would make all draws invalid; NaN counts as 0."""


@state
class Priorities:
    """Masses of all places, allocated whole by `build_priorities`; everything else writes in place."""

    mass: Float[Tensor, "C"]
    """(|TD error| + epsilon) ** alpha of each place; 0 if nothing can be drawn. Whole blocks of places: those beyond
    the capacity are never filled."""
    top: Float[Tensor, ""]
    """The largest mass so far: a new transition gets it, so that it is soon drawn."""
    sums: Float[Tensor, "N"] = derived_field()
    """Sum of the masses of each block, float64."""
    alpha: float
    beta: float
    changed: bool = field(default=True, metadata=derived_field().metadata)
    """Whether block sums may be stale, as after a resume: a checkpoint has no sums, and the next draw renews them."""


def build_priorities(capacity: int, device: torch.device, *, alpha: float = 0.6, beta: float = 0.4) -> Priorities:
    """Return priorities of empty places, whose mass is 0.

    Args:
        capacity: number of places, which is rounded up to whole blocks.
        device: device of the masses.
        alpha: power of the TD error in a mass; 0 draws all alike.
        beta: share of the priorities that importance weights undo, 0 to 1.
    """
    blocks = -(-capacity // BLOCK_PLACES)  # rounded up
    return Priorities(
        mass=filled_tensor(0, blocks * BLOCK_PLACES, device=device),
        top=torch.ones((), device=device),
        sums=filled_tensor(0, blocks, dtype=torch.float64, device=device),
        alpha=alpha,
        beta=beta,
    )


def add_priorities_(
    priorities: Priorities,
    places: Int[Tensor, "B"],
    *,
    is_drawable: Bool[Tensor, "B"] | None = None,
    emptied_places: Int[Tensor, "E"] | None = None,
) -> None:
    """Give places with new transitions the largest mass so far.

    Args:
        priorities: masses of all places.
        places: places of the new transitions.
        is_drawable: whether each of them can be drawn; False gives it mass 0. Left out: all can.
        emptied_places: other places, whose transitions are gone.
    """
    mass, top, changed = host_view(priorities.mass), host_view(priorities.top), host_view(places)
    # True counts as 1, and False as 0.
    mass[changed] = top if is_drawable is None else top * host_view(is_drawable)
    if emptied_places is not None:
        emptied = host_view(emptied_places)
        mass[emptied] = 0
        changed = array_module(changed).concatenate((changed, emptied))
    _sum_blocks_(priorities, changed)


def remove_priorities_(priorities: Priorities, places: Int[Tensor, "B"]) -> None:
    """Set the mass of these places to 0, so that they are not drawn."""
    host_view(priorities.mass)[host_view(places)] = 0
    _sum_blocks_(priorities, places)


def host_view(array: Any) -> Any:  # noqa: ANN401  (an array of NumPy, or of a device)
    """Return a tensor in the host's memory as an array of NumPy on the same memory, and any other array as it is.

    A step of one environment writes single rows, and NumPy's calls take a tenth of torch's. The code that is given one
    or the other uses what both have: operators, indices, `reshape`, `cumsum`, and functions of `array_module`.
    """
    return array.numpy() if isinstance(array, Tensor) and array.is_cpu else array


def device_view(array: Any) -> Any:  # noqa: ANN401  (an array of NumPy, or of a device)
    """Return an array of NumPy as a tensor on the same memory, and a tensor as it is: the inverse of `host_view`."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


def array_module(array: Any) -> Any:  # noqa: ANN401  (a module, whose functions have the same names in both)
    """Return `numpy` or `torch`, whose functions take this array."""
    return np if isinstance(array, np.ndarray) else torch


def _sum_blocks_(priorities: Priorities, places: Int[Tensor, "B"]) -> None:
    """Renew the sums of the blocks that these places lie in, after a change of their masses.

    Nothing is done if all sums are stale: the next draw renews them all.
    """
    if not priorities.changed:  # the sums are those of the masses so far
        mass, sums, blocks = host_view(priorities.mass), host_view(priorities.sums), host_view(places) // BLOCK_PLACES
        sums[blocks] = _running_sums(mass, sums, blocks)[:, -1]  # the last is the sum of the whole block


def _running_sums(mass: Any, sums: Any, blocks: Any) -> Any:  # noqa: ANN401  (tensors, or arrays of NumPy)
    """Return the cumulative sums [*batch, K] of the masses within each of these blocks; K is `BLOCK_PLACES`.

    Args:
        mass: masses of all places.
        sums: sums of all blocks, for their type.
        blocks: numbers of blocks, [*batch].
    """
    # float64, because small masses would vanish in a float32 sum. `cumsum` adds in the same order for any number of
    # blocks, so a resumed run, which sums all blocks at once, has the same bits.
    return mass.reshape(-1, BLOCK_PLACES)[blocks].cumsum(-1, dtype=sums.dtype)


def set_priorities_(priorities: Priorities, index: Int[Tensor, "*batch"], td_error: Float[Tensor, "*batch"]) -> None:
    """Set the masses of drawn transitions, in the places `index`, by their new TD errors.

    Of a place that was drawn more than once, the largest error counts. A place that was emptied meanwhile stays empty.
    Nothing is done if all transitions are drawn alike (`alpha` 0).
    """
    if priorities.alpha == 0:
        return
    places = index.flatten()
    mass = priority_masses(td_error.flatten(), priorities.alpha).to(priorities.mass.dtype)
    # 0 for places that hold no transition any more.
    mass = mass * (priorities.mass[places] > 0)
    # `include_self=False` leaves out the old mass, which may be larger than the new masses.
    priorities.mass.scatter_reduce_(0, places, mass, "amax", include_self=False)
    priorities.top.copy_(torch.maximum(priorities.top, mass.amax()))
    _sum_blocks_(priorities, places)


def priority_masses(td_error: Float[Tensor, "*batch"], alpha: float) -> Float[Tensor, "*batch"]:
    """Return (|TD error| + epsilon) ** alpha: proportional prioritisation (Schaul et al. 2016, section 3.3).

    An error of NaN counts as 0, an infinite error as `MAXIMUM_ERROR`.
    """
    finite = td_error.abs().nan_to_num(nan=0.0, posinf=MAXIMUM_ERROR)
    return (finite + MINIMUM_ERROR).pow(alpha)


def draw_prioritised(
    priorities: Priorities, shape: tuple[int, ...], rng: torch.Generator
) -> tuple[Int[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
    """Draw places of transitions with replacement, with probabilities p proportional to their masses.

    Returned are the places, and the importance weights (N p) ** -beta of their transitions, N places in all.
    Weights are divided by the largest of their row, the last axis of `shape`, so that the members' batches do not
    depend on each other. They are None where all places are drawn alike. At least one place must hold a transition.
    """
    if priorities.changed:
        _renew_sums_(priorities)
    block_ends = priorities.sums.cumsum(0)
    total = block_ends[-1]
    # A random point of the total mass lies in the drawn place: first its block is found, then the place in the block.
    point = torch.rand(shape, generator=rng, device=total.device, dtype=torch.float64) * total
    block = torch.searchsorted(block_ends, _below_end(point, total), right=True)
    place_ends = _running_sums(priorities.mass, priorities.sums, block)
    # Measured from the block's beginning, which is the end of the block before it. Under the same name, so that the
    # points of the total mass are freed.
    point = point - torch.where(block > 0, block_ends[block - 1], 0)
    point = _below_end(point, place_ends[..., -1])
    place_in_block = torch.searchsorted(place_ends, point.unsqueeze(-1), right=True).squeeze(-1)
    index = block * BLOCK_PLACES + place_in_block
    if not priorities.alpha:  # all places that hold a transition have the same mass
        return index, None
    # N and the total mass cancel when the weights are divided by the largest.
    weight = priorities.mass[index].pow(-priorities.beta)
    return index, weight / weight.amax(-1, keepdim=True)


def _renew_sums_(priorities: Priorities) -> None:
    """Compute the sums of all blocks, `BLOCKS_AT_ONCE` blocks at a time, to use little memory."""
    sums = priorities.sums
    for low in range(0, len(sums), BLOCKS_AT_ONCE):
        blocks = slice(low, low + BLOCKS_AT_ONCE)
        sums[blocks] = _running_sums(priorities.mass, sums, blocks)[:, -1]  # the last is the sum of the whole block
    priorities.changed = False


def _below_end(point: Float[Tensor, "*batch"], end: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Return the points, moved just below `end` where rounding has made them reach it and leave the last place."""
    return torch.minimum(point, torch.nextafter(end, torch.zeros_like(end)))
