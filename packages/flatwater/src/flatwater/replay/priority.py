"""Drawing transitions in proportion to their TD error (Schaul et al. 2016), for any replay with numbered places.

Each place has a mass; a place of mass 0 is never drawn. Draws invert the cumulative sum of the masses, which is kept
until a mass changes: O(capacity) once after a change, O(log capacity) for each draw, and nothing that waits for the
device. With alpha = 0 all masses are 1, and the draw is uniform over the places that hold something.
"""

from dataclasses import field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state

SMALLEST_ERROR = 1e-6
"""Added to every |TD error|, so that a transition that was predicted exactly can still be drawn."""
LARGEST_ERROR = 1e12
"""An error that is not finite counts as this (infinity) or as 0 (NaN), or it would end all drawing."""


@state
class Priorities:
    """Masses of all places, allocated whole by `build_priorities`; everything else writes in place."""

    mass: Float[Tensor, "C"]
    """(|TD error| + epsilon) ** alpha of each place; 0 where nothing can be drawn."""
    top: Float[Tensor, ""]
    """The largest mass so far: a new transition gets it, so that it is soon drawn."""
    cumulative: Float[Tensor, "C"] = derived_field()
    """Running sum of `mass`, float64, as of the last draw."""
    alpha: float
    beta: float
    changed: bool = field(default=True, metadata=derived_field().metadata)
    """Whether `mass` has changed since `cumulative` was computed. A checkpoint has neither: both are made anew."""


def build_priorities(capacity: int, device: torch.device, *, alpha: float = 0.6, beta: float = 0.4) -> Priorities:
    """Return priorities of places that hold nothing yet.

    Args:
        capacity: number of places, C.
        device: device of the masses.
        alpha: power of the TD error in a mass; 0 draws all alike.
        beta: how far importance weights undo the priorities, 0 to 1.
    """
    return Priorities(
        mass=filled_tensor(0, capacity, device=device),
        top=torch.ones((), device=device),
        cumulative=filled_tensor(0, capacity, dtype=torch.float64, device=device),
        alpha=alpha,
        beta=beta,
    )


def add_priorities_(priorities: Priorities, at: Int[Tensor, "B"], drawable: Bool[Tensor, "B"] | None = None) -> None:
    """Give places `at` the largest mass so far, as they hold new transitions; none where `drawable` is False."""
    mass = priorities.top.expand(len(at))
    priorities.mass.index_copy_(0, at, mass if drawable is None else mass * drawable)
    priorities.changed = True


def remove_priorities_(priorities: Priorities, at: Int[Tensor, "B"]) -> None:
    """Take places `at` out of all draws."""
    priorities.mass.index_fill_(0, at, 0)
    priorities.changed = True


def set_priorities_(priorities: Priorities, index: Int[Tensor, "*batch"], td_error: Float[Tensor, "*batch"]) -> None:
    """Give drawn transitions the mass of their new error. A place that was emptied meanwhile stays empty.

    Where one place was drawn more than once, the largest error counts, whatever the order.
    """
    if priorities.alpha == 0:
        return
    places, mass = index.flatten(), masses(td_error.flatten(), priorities.alpha).to(priorities.mass.dtype)
    # 0 for places that were overwritten by an observation without a transition since the draw.
    mass = mass * (priorities.mass[places] > 0)
    # Without the old mass, which may be larger than any new one.
    priorities.mass.scatter_reduce_(0, places, mass, "amax", include_self=False)
    priorities.top.copy_(torch.maximum(priorities.top, mass.amax()))
    priorities.changed = True


def masses(td_error: Float[Tensor, "*batch"], alpha: float) -> Float[Tensor, "*batch"]:
    """Return (|error| + epsilon) ** alpha: proportional prioritisation (Schaul et al. 2016, section 3.3)."""
    finite = td_error.abs().nan_to_num(nan=0.0, posinf=LARGEST_ERROR)
    return (finite + SMALLEST_ERROR).pow(alpha)


def draw_prioritised(
    priorities: Priorities, shape: tuple[int, ...], rng: torch.Generator
) -> tuple[Int[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Draw places with replacement; return them with importance weights (N p) ** -beta, the largest of a row being 1.

    A row is the last axis of `shape`: one member's batch does not depend on another's. Refreshes the running sum if
    a mass has changed. At least one place must hold something: callers wait for `replay.warmup`.
    """
    # float64: in a float32 sum over millions of places, small masses would vanish.
    if priorities.changed:
        torch.cumsum(priorities.mass, 0, dtype=torch.float64, out=priorities.cumulative)
        priorities.changed = False
    total = priorities.cumulative[-1]
    point = torch.rand(shape, generator=rng, device=total.device, dtype=torch.float64) * total
    # u < 1, yet u * total can round up to the total, beyond the last place.
    point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(priorities.cumulative, point, right=True)
    # N and the total of the masses cancel in the ratio to the largest.
    weight = priorities.mass[index].pow(-priorities.beta)
    return index, weight / weight.amax(-1, keepdim=True)
