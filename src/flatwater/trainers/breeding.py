"""The next generation of a population in training, written over the losers in place, and the champion's slot."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.api import Members
from flatwater.evolution.config import EvolutionConfig
from flatwater.evolution.lineage import Lineage, crown_slot_, inherit_
from flatwater.evolution.schedule import Schedule, adapt_
from flatwater.evolution.selection import descend
from flatwater.evolution.variation import cross_, crown_, forget_, mutate_


def breed_(
    members: Members,
    lineage: Lineage,
    schedule: Schedule,
    *,
    fitness: Float[Tensor, "P"],
    best: float,
    config: EvolutionConfig,
    generation: int,
    rng: torch.Generator,
) -> bool:
    """Elites stay; offspring and mutants take the other slots with fresh moments; the champion may be injected.

    Args:
        members: written in place.
        lineage: written in place.
        schedule: the mutation's size, adapted to the best value.
        fitness: what members are compared by.
        best: of this generation, by which a plateau is told.
        config: shares and sizes.
        generation: that begins, from 1.
        rng: draws tournaments, blends and mutations.

    Returns:
        Whether the best value stands still.
    """
    plateau = adapt_(schedule, best, config)
    due = config.champion_injection > 0 and generation % config.champion_injection == 0
    descent = descend(fitness, config, rng, inject_champion=due)
    for rows in members.inherited:
        cross_(rows, descent)
    mutate_(members.actor, descent, rate=schedule.rate, deviation=schedule.deviation, rng=rng)
    mutants = descent.mutated.nonzero().squeeze(1)
    for target, followed in members.targets:
        if followed is members.actor:
            target[mutants] = followed[mutants]
    for _, adam in members.trained.values():
        forget_((adam.exp_avg, adam.exp_avg_sq, adam.steps), descent)
    inherit_(lineage, descent, generation)
    return plateau


def crown_member_(members: Members, lineage: Lineage, member: int) -> None:
    """Copy all that makes a member what it is to the champion's slot."""
    for rows in members.inherited:
        crown_(rows, member)
    crown_slot_(lineage, member)
