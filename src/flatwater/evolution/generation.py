"""From one generation to the next: the champion is chosen, and new members are written over the losers, in place."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.api import Members
from flatwater.evolution.config import EvolutionConfig
from flatwater.evolution.lineage import Lineage, inherit_
from flatwater.evolution.schedule import Schedule, adapt_
from flatwater.evolution.selection import descend
from flatwater.evolution.variation import cross_, crown_, forget_, mutate_


def build_schedule(config: EvolutionConfig) -> Schedule:
    """The mutation's size at the start, and no values yet."""
    return Schedule(
        rate=config.mutation_rate,
        deviation=config.mutation_deviation,
        best=torch.full((config.plateau_rounds + 1,), -torch.inf, dtype=torch.float64),
    )


def crown_best_(members: Members, lineage: Lineage, values: Float[Tensor, "P+1"], others: Sequence[Tensor] = ()) -> int:
    """Copy the best member to the champion's slot, where it beats the champion on the same episodes.

    Args:
        members: the population.
        lineage: of the population; its champion has the number -1 where there is none yet.
        values: of each member and, last, of the champion; the champion's is overwritten by the new one's.
        others: further records [P+1, ...] of each member and the champion, treated alike.

    Returns:
        the new champion's slot, or -1 where the champion stays.
    """
    best = int(values[:-1].nan_to_num(nan=-torch.inf).argmax())
    stays = values[-1].isfinite() & (values[-1] >= values[best]) & (lineage.ids[-1] >= 0)
    if bool(stays):
        return -1
    for rows in members.inherited:
        crown_(rows, best)
    for record in (values, *others, lineage.ids, lineage.parents, lineage.born):
        record[-1] = record[best]
    return best


def evolve_(
    config: EvolutionConfig,
    members: Members,
    lineage: Lineage,
    schedule: Schedule,
    *,
    fitness: Float[Tensor, "P"],
    best: float,
    generation: int,
    rng: torch.Generator,
) -> bool:
    """Elites stay; offspring and mutants take the other slots with fresh moments; the champion may be injected.

    Args:
        config: shares and sizes.
        members: the population.
        lineage: of the population.
        schedule: the mutation's size.
        fitness: by which members are selected.
        best: the value by which a plateau is recognised.
        generation: the one that ends, counted from 0.
        rng: draws tournaments, blends and mutations.

    Returns:
        whether `best` stands still.
    """
    plateau = adapt_(schedule, best, config)
    due = config.champion_injection > 0 and (generation + 1) % config.champion_injection == 0
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
