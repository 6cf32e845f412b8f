"""Crossover and mutation: children written over the replaced members, in place, leaf by leaf."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.evolution.selection import Descent


def cross_(block: Float[Tensor, "P+1 n"], descent: Descent) -> None:
    """Write each replaced member's row as the blend of its parents' rows; the last row is the champion, kept.

    All parents are read before any row is written, so a replaced member can still be a parent.
    """
    slots = descent.replaced.nonzero().squeeze(1)
    first, second = block[descent.first[slots]], block[descent.second[slots]]
    block[slots] = torch.lerp(second, first, descent.blend[slots].to(block.dtype).unsqueeze(1))


def mutate_(
    block: Float[Tensor, "P+1 n"], descent: Descent, *, rate: float, deviation: float, rng: torch.Generator
) -> None:
    """Add N(0, deviation) to each weight of a mutant with probability `rate`, one member at a time."""
    for slot in descent.mutated.nonzero().squeeze(1).unbind():
        row = block[slot]
        change = torch.randn(row.shape, generator=rng, device=row.device, dtype=row.dtype)
        chosen = torch.rand(row.shape, generator=rng, device=row.device) < rate
        block[slot] = torch.addcmul(row, change, chosen.to(row.dtype), value=deviation)


def forget_(moments: Iterable[Tensor], descent: Descent) -> None:
    """Zero what an optimiser remembers of the replaced members: tensors [P] or [P, n]."""
    for moment in moments:
        moment[descent.replaced] = 0


def crown_(block: Float[Tensor, "P+1 n"], member: int) -> None:
    """Copy a member's row to the champion's slot, the last."""
    block[-1].copy_(block[member])
