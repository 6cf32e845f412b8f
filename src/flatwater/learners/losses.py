"""Losses of policy gradients: deterministic ones, per member, and the clipped one of a stochastic policy. Pure.

Formulas: Lillicrap et al. 2016 (DDPG, algorithm 1), Fujimoto et al. 2018 (TD3, algorithm 1) and Schulman et al. 2017
(PPO, eq. 7).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def td_target(
    *,
    reward: Float[Tensor, "P B"],
    discount: Float[Tensor, "P B"],
    next_values: Sequence[Float[Tensor, "P B"]],
    gamma: float,
) -> Float[Tensor, "P B"]:
    """The value that Q(s, a) should have: y = r + gamma * discount * min over the critics of Q'(s', a').

    One critic for DDPG, two for TD3.

    Args:
        reward: r, paid on the way to s'.
        discount: 0 where the episode terminated, 1 otherwise; a truncated episode goes on in s'.
        next_values: Q'(s', a') of each target critic.
        gamma: what a reward one step later is worth.
    """
    smallest = next_values[0]
    for value in next_values[1:]:
        smallest = torch.minimum(smallest, value)
    return reward + gamma * discount * smallest


def critic_loss(td_error: Float[Tensor, "P B"], weight: Float[Tensor, "P B"] | None) -> Float[Tensor, "P"]:
    """Mean squared TD error of each member; `weight` corrects for a prioritised draw (Schaul et al. 2016)."""
    squared = td_error.square()
    return (squared if weight is None else weight * squared).mean(1)


def critic_slope(td_error: Float[Tensor, "P B"], weight: Float[Tensor, "P B"] | None) -> Float[Tensor, "P B"]:
    """The derivative of each member's `critic_loss` by its values Q(s, a); targets are constants."""
    slope = td_error * (2 / td_error.shape[1])
    return slope if weight is None else weight * slope


def actor_loss(value: Float[Tensor, "P B"]) -> Float[Tensor, "P"]:
    """Minus the mean of Q(s, pi(s)): its gradient is the deterministic policy gradient (Silver et al. 2014)."""
    return -value.mean(1)


def actor_slope(value: Float[Tensor, "P B"]) -> Float[Tensor, "P B"]:
    """The derivative of each member's `actor_loss` by its values."""
    return torch.full_like(value, -1 / value.shape[1])


def smooth(action: Tensor, noise: Tensor, clip: float) -> Tensor:
    """The target's action with clipped noise, kept in [-1, 1] (TD3's target policy smoothing)."""
    return (action + noise.clamp(-clip, clip)).clamp(-1, 1)


def clipped_loss(log_ratio: Float[Tensor, "*N"], advantage: Float[Tensor, "*N"], clip: float) -> Float[Tensor, "*N"]:
    """-min(ratio A, clip(ratio, 1 - clip, 1 + clip) A) of each action: no gain from moving further than `clip`.

    Args:
        log_ratio: log-probability of each action now, minus the one with which it was drawn.
        advantage: A of each action.
        clip: how far the ratio may be from 1.
    """
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def clipped_value_loss(
    value: Float[Tensor, "*N"], before: Float[Tensor, "*N"], target: Float[Tensor, "*N"], clip: float
) -> Float[Tensor, "*N"]:
    """Half the larger of the squared errors of V and of V kept within `clip` of what it was (Schulman's baselines).

    Args:
        value: V now.
        before: V as it was when the step was taken.
        target: what it should be.
        clip: how far V may move before a step's gain no longer pulls it further.
    """
    kept = before + (value - before).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (kept - target).square()) / 2
