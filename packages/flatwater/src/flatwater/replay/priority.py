"""Drawing transitions in proportion to their TD error (Schaul et al. 2016), for any replay with numbered places.

Each place has a mass; a place of mass 0 is never drawn. A draw inverts the cumulative sum of the masses: of blocks
first, whose sums are kept as masses change, and then of the masses within a block. So a draw costs O(capacity / block),
a change O(block), and nothing waits for the device. With alpha = 0 all masses are 1, and the draw is uniform over the
places that hold something.
"""

from dataclasses import field

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
"""Blocks that are summed at once where all are: a few hundred KiB in addition to the replay."""
MAXIMUM_ERROR = 1e12
"""An error that is not finite counts as this (infinity) or as 0 (NaN), or it would end all drawing."""


@state
class Priorities:
    """Masses of all places, allocated whole by `build_priorities`; everything else writes in place."""

    mass: Float[Tensor, "C"]
    """(|TD error| + epsilon) ** alpha of each place; 0 if nothing can be drawn."""
    top: Float[Tensor, ""]
    """The largest mass so far: a new transition gets it, so that it is soon drawn."""
    sums: Float[Tensor, "N"] = derived_field()
    """Sum of the masses of each block, float64."""
    alpha: float
    beta: float
    changed: bool = field(default=True, metadata=derived_field().metadata)
    """Whether any mass may have changed without its block's sum. A checkpoint has no sums: all are computed again."""


def build_priorities(capacity: int, device: torch.device, *, alpha: float = 0.6, beta: float = 0.4) -> Priorities:
    """Return priorities of places that hold nothing yet.

    Args:
        capacity: number of places, C.
        device: device of the masses.
        alpha: power of the TD error in a mass; 0 draws all alike.
        beta: share of the priorities that importance weights undo, 0 to 1.
    """
    return Priorities(
        mass=filled_tensor(0, capacity, device=device),
        top=torch.ones((), device=device),
        sums=filled_tensor(0, -(-capacity // BLOCK_PLACES), dtype=torch.float64, device=device),
        alpha=alpha,
        beta=beta,
    )


def add_priorities_(
    priorities: Priorities, places: Int[Tensor, "B"], drawable: Bool[Tensor, "B"] | None = None
) -> None:
    """Give places `places` the largest mass so far, as they hold new transitions; none where `drawable` is False."""
    mass = priorities.top.expand(len(places))
    priorities.mass.index_copy_(0, places, mass if drawable is None else mass * drawable)
    _sum_blocks_(priorities, places)


def remove_priorities_(priorities: Priorities, places: Int[Tensor, "B"]) -> None:
    """Take places `places` out of all draws."""
    priorities.mass.index_fill_(0, places, 0)
    _sum_blocks_(priorities, places)


def _sum_blocks_(priorities: Priorities, places: Int[Tensor, "B"]) -> None:
    """Set the sums of the blocks of places `places`, whose masses have changed."""
    if not priorities.changed:  # else the next draw sums all
        blocks = places // BLOCK_PLACES
        priorities.sums[blocks] = _running_sums(priorities, blocks)[..., -1]


def _running_sums(priorities: Priorities, blocks: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch K"]:
    """Return the cumulative sums within blocks, float64; places after the last have no mass."""
    places = blocks.unsqueeze(-1) * BLOCK_PLACES + torch.arange(BLOCK_PLACES, device=blocks.device)
    mass, last = priorities.mass, len(priorities.mass) - 1
    # float64: in a float32 sum small masses would vanish. A running sum, whose order is the same for any number of
    # blocks: a resumed run, which sums all of them, must have the same bits.
    return (mass[places.clamp(max=last)] * (places <= last)).cumsum(-1, dtype=torch.float64)


def set_priorities_(priorities: Priorities, index: Int[Tensor, "*batch"], td_error: Float[Tensor, "*batch"]) -> None:
    """Give drawn transitions the mass of their new error. A place that was emptied meanwhile stays empty.

    Where one place was drawn more than once, the largest error counts, whatever the order.
    """
    if priorities.alpha == 0:
        return
    places = index.flatten()
    mass = masses(td_error.flatten(), priorities.alpha).to(priorities.mass.dtype)
    # 0 for places that were overwritten by an observation without a transition since the draw.
    mass = mass * (priorities.mass[places] > 0)
    # Without the old mass, which may be larger than any new one.
    priorities.mass.scatter_reduce_(0, places, mass, "amax", include_self=False)
    priorities.top.copy_(torch.maximum(priorities.top, mass.amax()))
    _sum_blocks_(priorities, places)


def masses(td_error: Float[Tensor, "*batch"], alpha: float) -> Float[Tensor, "*batch"]:
    """Return (|error| + epsilon) ** alpha: proportional prioritisation (Schaul et al. 2016, section 3.3)."""
    finite = td_error.abs().nan_to_num(nan=0.0, posinf=MAXIMUM_ERROR)
    return (finite + MINIMUM_ERROR).pow(alpha)


def draw_prioritised(
    priorities: Priorities, shape: tuple[int, ...], rng: torch.Generator
) -> tuple[Int[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Draw places with replacement; return them with importance weights (N p) ** -beta, the largest of a row being 1.

    A row is the last axis of `shape`: one member's batch does not depend on another's. At least one place must hold
    something: callers wait for `replay.warmup`.
    """
    if priorities.changed:
        sums = priorities.sums
        for low in range(0, len(sums), BLOCKS_AT_ONCE):
            blocks = torch.arange(low, min(low + BLOCKS_AT_ONCE, len(sums)), device=sums.device)
            sums[blocks] = _running_sums(priorities, blocks)[..., -1]
        priorities.changed = False
    cumulative = priorities.sums.cumsum(0)
    total = cumulative[-1]
    point = torch.rand(shape, generator=rng, device=total.device, dtype=torch.float64) * total
    block = torch.searchsorted(cumulative, _clamp_inside(point, total), right=True)
    running = _running_sums(priorities, block)
    # From the block's beginning, which is the end of the block before it.
    point = point - torch.where(block > 0, cumulative[block - 1], 0)
    inside = torch.searchsorted(running, _clamp_inside(point, running[..., -1]).unsqueeze(-1), right=True).squeeze(-1)
    index = block * BLOCK_PLACES + inside
    # N and the total of the masses cancel in the ratio to the largest.
    weight = priorities.mass[index].pow(-priorities.beta)
    return index, weight / weight.amax(-1, keepdim=True)


def _clamp_inside(point: Float[Tensor, "*batch"], end: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Return points that lie before the end: by rounding one can come to it, beyond the last place."""
    return torch.minimum(point, torch.nextafter(end, torch.zeros_like(end)))
