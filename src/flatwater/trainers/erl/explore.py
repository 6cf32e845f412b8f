"""Exploration noise of traders, scaled so that it can open a trade and leave one."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.api import Members, perturb
from flatwater.trainers.erl.config import ExplorationConfig
from flatwater.trainers.erl.play import Explore
from flatwater.trainers.erl.setup import Setup


def explorer(setup: Setup, members: Members, rng: torch.Generator) -> Explore:
    """How the algorithm explores; where that is by noise on its actions, by the noise of traders."""
    config, parts = setup.config, by_part(setup.config.exploration, setup.device)

    def spread(action: Float[Tensor, "P S K 2"], scale: float, rng: torch.Generator) -> Float[Tensor, "P S K 2"]:
        return spread_over_days(action, scale, parts, config.exploration.day, rng)

    explore = setup.algorithm.explorer(config.learner, members, spread)
    return lambda actor, params, seen: explore(actor, params, seen, rng)


def by_part(exploration: ExplorationConfig, device: torch.device) -> Float[Tensor, "2"]:
    """How noisy a coefficient and a sale target are."""
    parts = (exploration.coefficient, exploration.target)
    return torch.stack([torch.full((), part, device=device) for part in parts])  # written there, and not copied there


def spread_over_days(
    action: Float[Tensor, "P S K 2"], scale: float, parts: Float[Tensor, "2"], day: float, rng: torch.Generator
) -> Float[Tensor, "P S K 2"]:
    """Independent noise on every part of the action, and noise that all coefficients of a day have in common.

    Independent noise on every instrument chooses among instruments, but cannot make a day with a purchase of one
    without, or the other way round, once all coefficients lie far from the threshold. So all coefficients of a day
    are also moved together.
    """
    days = torch.randn(*action.shape[:2], 1, generator=rng, device=action.device) * (day * scale)
    moved = torch.stack([action[..., 0] + days, action[..., 1]], dim=-1)
    return perturb(moved, parts * scale, rng)
