"""The step to the next generation, in place: choose the champion, and write new members over the weakest.

The *champion* is a copy of the best member so far. In every tensor with a row for each member, its row is the last.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.api import Members
from flatwater.evolution.config import EvolutionConfig
from flatwater.evolution.selection import Reproduction, select_parents
from flatwater.state.tree import state


@state
class Lineage:
    """Numbers, parents and birth of the member in each slot; the champion's slot is the last."""

    ids: Int[Tensor, "P+1"]
    """Unique number of the member; -1 in the champion's slot before the first champion."""
    parents: Int[Tensor, "P+1 2"]
    """Numbers of the two parents; -1 for the first generation."""
    born: Int[Tensor, "P+1"]
    """Generation in which the member was made."""
    made: int
    """Members made so far: the next member's number."""


def first_generation(members: int, device: torch.device) -> Lineage:
    """Return the lineage of new members without parents, and of no champion."""
    ids = torch.arange(members + 1).to(device)  # on the meta device `arange` would import a part of the compiler
    ids[members] = -1  # the champion's slot is empty
    return Lineage(
        ids=ids,
        parents=torch.full((members + 1, 2), -1, device=device),
        born=torch.zeros(members + 1, dtype=torch.int64, device=device),
        made=members,
    )


def record_lineage_(lineage: Lineage, reproduction: Reproduction, generation: int) -> None:
    """Record numbers, parents and birth of the members that were made at the end of `generation`, for the next one."""
    slots = reproduction.replaced.nonzero().squeeze(1)
    # Read before `ids` is written: a replaced member can be another's parent.
    parents = torch.stack([lineage.ids[reproduction.first[slots]], lineage.ids[reproduction.second[slots]]], dim=1)
    lineage.parents[slots] = parents
    lineage.ids[slots] = lineage.made + torch.arange(len(slots), device=slots.device)
    lineage.born[slots] = generation + 1
    lineage.made += len(slots)


@state
class MutationSchedule:
    """The present rate and deviation of mutations, and the validation values that decide them."""

    rate: float
    deviation: float
    best: Float[Tensor, "R+1"]
    """Best validation value of the last generations, newest last; -inf before there were any."""


def has_improved(best_values: Float[Tensor, "R+1"], minimum_gain: float) -> bool:
    """Return whether a later value exceeds the oldest by the share `minimum_gain` of it.

    It is True until the history of `best_values`, oldest first, is full: missing values are -inf.
    """
    oldest, best_later = float(best_values[0]), float(best_values[1:].max())
    if not math.isfinite(oldest):
        return True
    return best_later - oldest >= minimum_gain * abs(oldest)


def adapt_mutation_(schedule: MutationSchedule, value: float, config: EvolutionConfig) -> bool:
    """Record this generation's best value, set the rate and deviation of mutations, and return whether it is a plateau.

    On a plateau both grow up to their ceilings; on an improvement they fall back to their initial values.
    """
    # The history moves by one: its newest value is the last. A copy, because source and target overlap.
    schedule.best[:-1] = schedule.best[1:].clone()
    schedule.best[-1] = value
    if has_improved(schedule.best, config.plateau_improvement):
        schedule.rate, schedule.deviation = config.mutation_rate, config.mutation_deviation
        return False
    schedule.rate = min(schedule.rate * config.plateau_factor, config.mutation_rate_max)
    schedule.deviation = min(schedule.deviation * config.plateau_factor, config.mutation_deviation_max)
    return True


def build_schedule(config: EvolutionConfig) -> MutationSchedule:
    """Return the initial rate and deviation of mutations, with an empty history of values."""
    return MutationSchedule(
        rate=config.mutation_rate,
        deviation=config.mutation_deviation,
        # -inf for a missing value, which `has_improved` takes for an improvement.
        best=torch.full((config.plateau_rounds + 1,), -torch.inf, dtype=torch.float64),
    )


def crown_best_(
    members: Members, lineage: Lineage, values: Float[Tensor, "P+1"], records: Sequence[Tensor] = ()
) -> int:
    """Copy the best member to the champion's slot, the last row, unless the champion is as good on the same episodes.

    Args:
        members: the population.
        lineage: lineage of the population.
        values: value of each member and, last, of the champion; a new champion overwrites the last.
        records: other records [P+1, ...] of each member and the champion, whose last row a new champion overwrites.

    Returns:
        slot of the member that is the new champion; -1 if the champion stays.
    """
    # Without NaN, which `argmax` takes for the largest number.
    best_member = int(values[:-1].nan_to_num(nan=-torch.inf).argmax())
    has_champion = values[-1].isfinite() & (lineage.ids[-1] >= 0)
    # A tie leaves the champion.
    if bool(has_champion & (values[-1] >= values[best_member])):
        return -1
    for rows in members.inherited:  # the networks that children get from their parents
        copy_to_champion_(rows, best_member)
    for record in (values, *records, lineage.ids, lineage.parents, lineage.born):
        record[-1] = record[best_member]
    return best_member


def evolve_(
    config: EvolutionConfig,
    members: Members,
    lineage: Lineage,
    schedule: MutationSchedule,
    *,
    fitness: Float[Tensor, "P"],
    plateau_value: float,
    generation: int,
    rng: torch.Generator,
) -> bool:
    """Make the next generation: keep the elites, and write offspring and mutants with fresh moments over other members.

    Args:
        config: shares of elites and offspring, and the size of mutations.
        members: the population.
        lineage: lineage of the population.
        schedule: rate and deviation of mutations.
        fitness: values by which members are selected.
        plateau_value: this generation's value by which a plateau is recognised.
        generation: number of the generation that ends, counted from 0.
        rng: generator of tournaments, blends and mutations.

    Returns:
        whether `plateau_value` is on a plateau.
    """
    is_plateau = adapt_mutation_(schedule, plateau_value, config)
    inject_champion = config.champion_injection > 0 and (generation + 1) % config.champion_injection == 0
    # Selection draws before mutation, from the same generator: the order is a part of the run.
    reproduction = select_parents(fitness, config, rng, inject_champion=inject_champion)
    for rows in members.inherited:  # networks and their targets
        cross_(rows, reproduction)
    mutate_(members.actor, reproduction, rate=schedule.rate, deviation=schedule.deviation, rng=rng)
    mutants = reproduction.mutated.nonzero().squeeze(1)
    # A mutant's target network starts equal to the mutant; `cross_` has given it the parent's target. Critics, which do
    # not mutate, keep theirs.
    for target, online in members.targets:
        if online is members.actor:
            target[mutants] = online[mutants]
    for _weights, adam in members.trained.values():  # the optimiser of each network, Adam
        zero_moments_((adam.exp_avg, adam.exp_avg_sq, adam.steps), reproduction)
    record_lineage_(lineage, reproduction, generation)
    return is_plateau


def cross_(block: Float[Tensor, "P+1 n"], reproduction: Reproduction) -> None:
    """Write each replaced member's row as the blend of its parents' rows; the last row, the champion's, stays."""
    slots = reproduction.replaced.nonzero().squeeze(1)
    # Indexing copies the parents' rows, so a replaced member can still be another's parent.
    first_rows, second_rows = block[reproduction.first[slots]], block[reproduction.second[slots]]
    first_shares = reproduction.blend[slots].to(block.dtype).unsqueeze(1)
    block[slots] = torch.lerp(second_rows, first_rows, first_shares)  # a share of 1 gives the first parent's row


def mutate_(
    block: Float[Tensor, "P+1 n"], reproduction: Reproduction, *, rate: float, deviation: float, rng: torch.Generator
) -> None:
    """Add N(0, deviation) to each weight of a mutant with probability `rate`, one member at a time.

    Args:
        block: weights; the rows of mutants are overwritten.
        reproduction: the mutants' slots.
        rate: probability for each weight, 0 to 1.
        deviation: standard deviation of the noise.
        rng: a generator on the block's device.
    """
    # One row of noise at a time: the noise of all mutants would be as large as their weights.
    for slot in reproduction.mutated.nonzero().squeeze(1).unbind():
        row = block[slot]
        change = torch.randn(row.shape, generator=rng, device=row.device, dtype=row.dtype)
        mask = torch.rand(row.shape, generator=rng, device=row.device) < rate
        block[slot] = torch.addcmul(row, change, mask.to(row.dtype), value=deviation)


def zero_moments_(moments: Iterable[Tensor], reproduction: Reproduction) -> None:
    """Zero the replaced members' rows of an optimiser's moments, each [P] or [P, n]."""
    for moment in moments:
        moment[reproduction.replaced] = 0


def copy_to_champion_(block: Float[Tensor, "P+1 n"], member: int) -> None:
    """Copy a member's row to the champion's slot, the last."""
    block[-1].copy_(block[member])
