"""Adaptive mutation: larger random changes while the best validation value stands still."""

import math

from jaxtyping import Float
from torch import Tensor

from flatwater.evolution.config import EvolutionConfig
from flatwater.state.tree import state


@state
class Schedule:
    """The mutation's size now, and the values that decide it."""

    rate: float
    deviation: float
    best: Float[Tensor, "R+1"]
    """Best validation value of the last generations, newest last; -inf before there were any."""


def improved(best: Float[Tensor, "R+1"], least: float) -> bool:
    """Whether the newest value beats the oldest kept one by `least` of its size; true until the history is full."""
    oldest, newest = float(best[0]), float(best[1:].max())
    return not math.isfinite(oldest) or newest - oldest >= least * abs(oldest)


def adapt_(schedule: Schedule, value: float, config: EvolutionConfig) -> bool:
    """Record this generation's best validation value and set the mutation's size. Returns True on a plateau."""
    schedule.best[:-1] = schedule.best[1:].clone()
    schedule.best[-1] = value
    if improved(schedule.best, config.plateau_improvement):
        schedule.rate, schedule.deviation = config.mutation_rate, config.mutation_deviation
        return False
    schedule.rate = min(schedule.rate * config.plateau_factor, config.mutation_rate_max)
    schedule.deviation = min(schedule.deviation * config.plateau_factor, config.mutation_deviation_max)
    return True
