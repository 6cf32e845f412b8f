"""Who is in each slot of a population, and who its parents were."""

import torch
from jaxtyping import Int
from torch import Tensor

from flatwater.evolution.selection import Descent
from flatwater.state.tree import state


@state
class Lineage:
    """Who is in each slot; the champion's slot is the last."""

    ids: Int[Tensor, "P+1"]
    """Every member ever made has a number of its own; -1 where there is no champion yet."""
    parents: Int[Tensor, "P+1 2"]
    """Numbers of the two parents; -1 for the first generation."""
    born: Int[Tensor, "P+1"]
    """Generation in which the member was made."""
    made: int
    """Members made so far: the next one's number."""


def first_generation(members: int, device: torch.device) -> Lineage:
    """Members without parents, and no champion."""
    ids = torch.arange(members + 1, device=device)
    ids[members] = -1
    return Lineage(
        ids=ids,
        parents=torch.full((members + 1, 2), -1, device=device),
        born=torch.zeros(members + 1, dtype=torch.int64, device=device),
        made=members,
    )


def inherit_(lineage: Lineage, descent: Descent, generation: int) -> None:
    """Enter the members that are made after `generation`."""
    slots = descent.replaced.nonzero().squeeze(1)
    parents = torch.stack([lineage.ids[descent.first[slots]], lineage.ids[descent.second[slots]]], dim=1)
    lineage.parents[slots] = parents
    lineage.ids[slots] = lineage.made + torch.arange(len(slots), device=slots.device)
    lineage.born[slots] = generation + 1
    lineage.made += len(slots)
