"""Exploration noise: Gaussian, with a scale for each part of an action."""

import torch
from torch import Tensor

from flatwater.learners.config import LearnerConfig


def noise_scale(config: LearnerConfig, updates: int) -> float:
    """Deviation of the noise after `updates` optimizer steps: it decays by each one, down to a floor."""
    return max(config.noise * config.noise_decay**updates, config.noise_floor)


def perturb(action: Tensor, scale: Tensor, rng: torch.Generator) -> Tensor:
    """`action` in [-1, 1] with Gaussian noise, clamped to [-1, 1].

    Args:
        action: [..., A]; the last axis are the parts of an action, such as coefficient and sale target.
        scale: deviation of each part, [A], or anything that broadcasts to the action, such as [P, 1, A] for a noise
            of each member's own.
        rng: a generator on the action's device.
    """
    noise = torch.randn(action.shape, generator=rng, device=action.device, dtype=action.dtype)
    return (action + noise * scale).clamp(-1, 1)
