"""Who survives and who becomes a parent. Pure functions of fitness."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.evolution.config import EvolutionConfig


@dataclass(frozen=True)
class Reproduction:
    """Where each member of the next generation comes from; an elite comes from itself.

    A child is `blend * first + (1 - blend) * second`; a mutant has one parent twice.
    """

    first: Int[Tensor, "P"]
    """Slot of the first parent; P itself stands for the champion's slot."""
    second: Int[Tensor, "P"]
    """Slot of the second parent."""
    blend: Float[Tensor, "P"]
    """Share of the first parent, 1 where there is only one."""
    replaced: Tensor
    """[P] bool: the slot is written over."""
    mutated: Tensor
    """[P] bool: the slot's weights get random changes."""


def group_counts(config: EvolutionConfig, members: int) -> tuple[int, int]:
    """Elites (at least one) and offspring of a population; the rest are mutants."""
    elites = max(1, round(config.elite_share * members))
    return elites, min(members - elites, round(config.offspring_share * members))


def tournament(fitness: Float[Tensor, "P"], winners: int, size: int, rng: torch.Generator) -> Int[Tensor, "winners"]:
    """The fittest of `size` members drawn with replacement, `winners` times."""
    drawn = torch.randint(len(fitness), (winners, size), generator=rng, device=fitness.device)
    return drawn.gather(1, fitness[drawn].argmax(1, keepdim=True)).squeeze(1)


def select_parents(
    fitness: Float[Tensor, "P"], config: EvolutionConfig, rng: torch.Generator, *, inject_champion: bool
) -> Reproduction:
    """The next generation's origins: elites stay, the weakest slots go to mutants, those between to offspring.

    Args:
        fitness: of each member; one that is not a number ranks last.
        config: shares and sizes.
        rng: draws tournaments and blends.
        inject_champion: the weakest slot gets an exact copy of the champion instead of a mutant or child.
    """
    members, device = len(fitness), fitness.device
    ranked_fitness = torch.nan_to_num(fitness, nan=-torch.inf)
    order = ranked_fitness.argsort(descending=True, stable=True)
    elites, offspring = group_counts(config, members)
    first = torch.arange(members, device=device)
    second, blend = first.clone(), torch.ones(members, device=device)
    replaced = torch.zeros(members, dtype=torch.bool, device=device)
    mutated = replaced.clone()

    children, mutants = order[elites : elites + offspring], order[elites + offspring :]
    first[children] = tournament(ranked_fitness, offspring, config.tournament, rng)
    second[children] = tournament(ranked_fitness, offspring, config.tournament, rng)
    low, high = config.blend_low, config.blend_high
    blend[children] = low + (high - low) * torch.rand(offspring, generator=rng, device=device)
    first[mutants] = second[mutants] = tournament(ranked_fitness, len(mutants), config.tournament, rng)
    replaced[order[elites:]] = True
    mutated[mutants] = True
    if inject_champion and members > elites:
        weakest = order[-1]
        first[weakest] = second[weakest] = members
        blend[weakest], mutated[weakest] = 1.0, False
    return Reproduction(first, second, blend, replaced, mutated)
