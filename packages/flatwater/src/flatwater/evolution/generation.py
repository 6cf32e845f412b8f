"""The step to the next generation: the champion is chosen, and new members are written over the losers, in place."""

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
    """The member in each slot; the champion's slot is the last."""

    ids: Int[Tensor, "P+1"]
    """Number of the member, of which every member ever made has its own; -1 where there is no champion yet."""
    parents: Int[Tensor, "P+1 2"]
    """Numbers of the two parents; -1 for the first generation."""
    born: Int[Tensor, "P+1"]
    """Generation in which the member was made."""
    made: int
    """Members made so far: the next member's number."""


def first_generation(members: int, device: torch.device) -> Lineage:
    """Return members without parents, and no champion."""
    ids = torch.arange(members + 1).to(device)  # on the meta device `arange` would import a part of the compiler
    ids[members] = -1
    return Lineage(
        ids=ids,
        parents=torch.full((members + 1, 2), -1, device=device),
        born=torch.zeros(members + 1, dtype=torch.int64, device=device),
        made=members,
    )


def record_lineage_(lineage: Lineage, reproduction: Reproduction, generation: int) -> None:
    """Record the members that are made after `generation`."""
    slots = reproduction.replaced.nonzero().squeeze(1)
    # Before `ids` is written: a member that is replaced can be a parent of another.
    parents = torch.stack([lineage.ids[reproduction.first[slots]], lineage.ids[reproduction.second[slots]]], dim=1)
    lineage.parents[slots] = parents
    lineage.ids[slots] = lineage.made + torch.arange(len(slots), device=slots.device)
    lineage.born[slots] = generation + 1
    lineage.made += len(slots)


@state
class MutationSchedule:
    """The present size of mutations, and the values that decide it."""

    rate: float
    deviation: float
    best: Float[Tensor, "R+1"]
    """Best validation value of the last generations, newest last; -inf before there were any."""


def has_improved(best: Float[Tensor, "R+1"], least: float) -> bool:
    """Return whether the newest values beat the oldest one by `least` of its size; true until the history is full."""
    oldest, newest = float(best[0]), float(best[1:].max())
    return not math.isfinite(oldest) or newest - oldest >= least * abs(oldest)


def adapt_mutation_(schedule: MutationSchedule, value: float, config: EvolutionConfig) -> bool:
    """Record this generation's best validation value and set the mutation's size; return True on a plateau."""
    # A copy, as source and target overlap.
    schedule.best[:-1] = schedule.best[1:].clone()
    schedule.best[-1] = value
    if has_improved(schedule.best, config.plateau_improvement):
        schedule.rate, schedule.deviation = config.mutation_rate, config.mutation_deviation
        return False
    schedule.rate = min(schedule.rate * config.plateau_factor, config.mutation_rate_max)
    schedule.deviation = min(schedule.deviation * config.plateau_factor, config.mutation_deviation_max)
    return True


def build_schedule(config: EvolutionConfig) -> MutationSchedule:
    """Return the mutation's size at the start, and no values yet."""
    return MutationSchedule(
        rate=config.mutation_rate,
        deviation=config.mutation_deviation,
        # -inf where there is no value yet: `has_improved` takes it for an improvement.
        best=torch.full((config.plateau_rounds + 1,), -torch.inf, dtype=torch.float64),
    )


def crown_best_(members: Members, lineage: Lineage, values: Float[Tensor, "P+1"], others: Sequence[Tensor] = ()) -> int:
    """Copy the best member to the champion's slot, where it beats the champion on the same episodes.

    Args:
        members: the population.
        lineage: lineage of the population; its champion has the number -1 where there is none yet.
        values: value of each member and, last, of the champion; the champion's is overwritten by that of a new
            champion.
        others: further records [P+1, ...] of each member and the champion, treated alike.

    Returns:
        the new champion's slot, or -1 where the champion stays.
    """
    # `argmax` takes NaN for the largest number.
    best_member = int(values[:-1].nan_to_num(nan=-torch.inf).argmax())
    # A tie leaves the champion: a new champion must be better on the same episodes.
    keeps_champion = values[-1].isfinite() & (values[-1] >= values[best_member]) & (lineage.ids[-1] >= 0)
    if bool(keeps_champion):
        return -1
    for rows in members.inherited:
        copy_to_champion_(rows, best_member)
    for record in (values, *others, lineage.ids, lineage.parents, lineage.born):
        record[-1] = record[best_member]
    return best_member


def evolve_(
    config: EvolutionConfig,
    members: Members,
    lineage: Lineage,
    schedule: MutationSchedule,
    *,
    fitness: Float[Tensor, "P"],
    best: float,
    generation: int,
    rng: torch.Generator,
) -> bool:
    """Keep elites, write offspring and mutants over the other slots with fresh moments, and maybe inject the champion.

    Args:
        config: shares and sizes.
        members: the population.
        lineage: lineage of the population.
        schedule: the mutation's size.
        fitness: values by which members are selected.
        best: value by which a plateau is recognised.
        generation: number of the generation that ends, counted from 0.
        rng: generator of tournaments, blends and mutations.

    Returns:
        whether `best` is on a plateau.
    """
    plateau = adapt_mutation_(schedule, best, config)
    injects = config.champion_injection > 0 and (generation + 1) % config.champion_injection == 0
    # Selection draws first, then mutation, from one generator: a resume repeats this order.
    reproduction = select_parents(fitness, config, rng, inject_champion=injects)
    for rows in members.inherited:
        cross_(rows, reproduction)
    mutate_(members.actor, reproduction, rate=schedule.rate, deviation=schedule.deviation, rng=rng)
    mutants = reproduction.mutated.nonzero().squeeze(1)
    # A mutant's target starts at the mutant: crossing has given it the parent's target.
    for target, online in members.targets:
        if online is members.actor:
            target[mutants] = online[mutants]
    for _, adam in members.trained.values():
        zero_moments_((adam.exp_avg, adam.exp_avg_sq, adam.steps), reproduction)
    record_lineage_(lineage, reproduction, generation)
    return plateau


def cross_(block: Float[Tensor, "P+1 n"], reproduction: Reproduction) -> None:
    """Write each replaced member's row as the blend of its parents' rows; the last row is the champion, kept.

    All parents are read before any row is written, so a replaced member can still be a parent.
    """
    slots = reproduction.replaced.nonzero().squeeze(1)
    # Gathered, so copies: writing rows below does not change the parents of others.
    first, second = block[reproduction.first[slots]], block[reproduction.second[slots]]
    block[slots] = torch.lerp(second, first, reproduction.blend[slots].to(block.dtype).unsqueeze(1))


def mutate_(
    block: Float[Tensor, "P+1 n"], reproduction: Reproduction, *, rate: float, deviation: float, rng: torch.Generator
) -> None:
    """Add N(0, deviation) to each weight of a mutant with probability `rate`, one member at a time.

    Args:
        block: weights; the rows of mutants are overwritten.
        reproduction: which of the members are mutants.
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
    """Zero the replaced members' moments in an optimiser: tensors [P] or [P, n]."""
    for moment in moments:
        moment[reproduction.replaced] = 0


def copy_to_champion_(block: Float[Tensor, "P+1 n"], member: int) -> None:
    """Copy a member's row to the champion's slot, the last."""
    block[-1].copy_(block[member])
