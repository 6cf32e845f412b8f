"""Exploration noise of traders, scaled so that it can open a trade and leave one."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.learners.config import LearnerConfig
from flatwater.learners.noise import noise_scale, perturb
from flatwater.trainers.erl.config import ExplorationConfig
from flatwater.trainers.erl.play import Explore


def explorer(config: LearnerConfig, exploration: ExplorationConfig, updates: int, rng: torch.Generator) -> Explore:
    """Noise for actions [B, K, 2] after `updates` optimizer steps.

    Independent noise on every instrument chooses among instruments, but cannot make a day with a purchase of one
    without, or the other way round, once all coefficients lie far from the threshold. So all coefficients of a day
    are also moved together.
    """
    sigma = noise_scale(config, updates)
    each = torch.tensor([exploration.coefficient, exploration.target]) * sigma

    def explore(action: Float[Tensor, "B K 2"]) -> Float[Tensor, "B K 2"]:
        together = torch.randn(len(action), 1, generator=rng, device=action.device) * (exploration.day * sigma)
        moved = torch.stack([action[..., 0] + together, action[..., 1]], dim=-1)
        return perturb(moved, each.to(action.device), rng)

    return explore
