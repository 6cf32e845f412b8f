"""Selection of survivors and parents. Pure functions of fitness."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.evolution.config import EvolutionConfig


@dataclass(frozen=True)
class Reproduction:
    """Origin of each member of the next generation; an elite comes from itself.

    A child is `blend * first + (1 - blend) * second`; a mutant has one parent twice.
    """

    first: Int[Tensor, "P"]
    """Slot of the first parent; P itself stands for the champion's slot."""
    second: Int[Tensor, "P"]
    """Slot of the second parent."""
    blend: Float[Tensor, "P"]
    """Share of the first parent, 1 where there is only one."""
    replaced: Tensor
    """Whether the slot is written over, bool [P]."""
    mutated: Tensor
    """Whether the slot's weights get random changes, bool [P]."""


def group_counts(config: EvolutionConfig, members: int) -> tuple[int, int]:
    """Return the numbers of elites (at least one) and offspring of a population; all other members are mutants."""
    elites = max(1, round(config.elite_share * members))
    offspring = min(members - elites, round(config.offspring_share * members))
    return elites, offspring


def draw_winners(fitness: Float[Tensor, "P"], winners: int, size: int, rng: torch.Generator) -> Int[Tensor, "winners"]:
    """Draw tournaments, and return their winners' slots: each is the fittest of `size` members drawn with replacement.

    Args:
        fitness: fitness of each of the P members.
        winners: number of tournaments.
        size: members in each tournament.
        rng: a generator on the fitness's device.
    """
    # A row of slots for each tournament.
    entrants = torch.randint(len(fitness), (winners, size), generator=rng, device=fitness.device)
    best_columns = fitness[entrants].argmax(1, keepdim=True)
    return entrants.gather(1, best_columns).squeeze(1)


def select_parents(
    fitness: Float[Tensor, "P"], config: EvolutionConfig, rng: torch.Generator, *, inject_champion: bool
) -> Reproduction:
    """Return the next generation's origins: elites stay, mutants replace the weakest, offspring those in between.

    Args:
        fitness: fitness of each member; NaN ranks last.
        config: shares and sizes.
        rng: generator of tournaments and blends.
        inject_champion: the weakest slot gets an exact copy of the champion instead of a mutant or child.
    """
    members = len(fitness)
    device = fitness.device
    ranked_fitness = torch.nan_to_num(fitness, nan=-torch.inf)
    # Stable: members of equal fitness rank by slot, so that a resumed run selects the same.
    order = ranked_fitness.argsort(descending=True, stable=True)
    elites, offspring = group_counts(config, members)
    first_parents = torch.arange(members, device=device)
    second_parents = first_parents.clone()
    blend = torch.ones(members, device=device)
    is_replaced = torch.zeros(members, dtype=torch.bool, device=device)
    is_mutant = is_replaced.clone()

    children, mutants = order[elites : elites + offspring], order[elites + offspring :]
    # The order of the draws is a part of the run: first parents, second parents, blends, then mutants' parents.
    first_parents[children] = draw_winners(ranked_fitness, offspring, config.tournament, rng)
    second_parents[children] = draw_winners(ranked_fitness, offspring, config.tournament, rng)
    low, high = config.blend_low, config.blend_high
    blend[children] = low + (high - low) * torch.rand(offspring, generator=rng, device=device)
    first_parents[mutants] = second_parents[mutants] = draw_winners(
        ranked_fitness, len(mutants), config.tournament, rng
    )
    is_replaced[order[elites:]] = True
    is_mutant[mutants] = True
    if inject_champion and members > elites:  # else the weakest slot is an elite's
        weakest = order[-1]
        first_parents[weakest] = second_parents[weakest] = members  # the number of the champion's slot
        blend[weakest], is_mutant[weakest] = 1.0, False
    return Reproduction(
        first=first_parents, second=second_parents, blend=blend, replaced=is_replaced, mutated=is_mutant
    )
