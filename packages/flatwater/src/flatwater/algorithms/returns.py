"""Advantages of steps, and PPO's clipped losses (Schulman et al. 2017, eq. 7). Pure functions.

The end of an episode has two kinds, which enter as two arguments. Where it *terminated* nothing follows, so `discount`
is 0. Where it was *truncated* the world went on without us: the value of the state that followed still counts
(`discount` is gamma), but the next row of the block belongs to another episode and must not flow back (`continues` is
False in both cases).
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def gae(
    *,
    reward: Float[Tensor, "T B"],
    discount: Float[Tensor, "T B"],
    value: Float[Tensor, "T B"],
    next_value: Float[Tensor, "T B"],
    continues: Bool[Tensor, "T B"],
    lam: float,
) -> Float[Tensor, "T B"]:
    """Return the generalised advantage estimate: the sum over k of (gamma lam)^k times TD error t + k.

    The formula is eq. 16 of Schulman et al. 2016.

    Args:
        reward: r_t, paid on the way from s_t to its successor.
        discount: gamma, or 0 if the step terminated.
        value: V(s_t).
        next_value: V of the true successor, taken before any reset.
        continues: False if the episode ended, by termination or by truncation, and in the last row where the
            block cuts it.
        lam: 0 gives the TD error, 1 the discounted return minus `value`.

    Returns:
        A_t. The critic's target is `A_t + value`.
    """
    td_error, decay = reward + discount * next_value - value, lam * discount * continues
    # The last row's carry meets only zeros, so that what `continues` says there does not matter.
    advantage = torch.empty_like(reward)
    carry = torch.zeros_like(reward[0])
    for row, error, decay_row in reversed(list(zip(advantage, td_error, decay, strict=True))):
        # Written into the row of `advantage` itself, which then is the carry of the row before.
        carry = torch.mul(decay_row, carry, out=row).add_(error)
    return advantage


def clipped_loss(
    log_ratio: Float[Tensor, "*N"], advantage: Float[Tensor, "*N"], clip: float | Float[Tensor, ""]
) -> Float[Tensor, "*N"]:
    """Return -min(ratio A, clip(ratio, 1 - clip, 1 + clip) A): no action gains from moving further than `clip`.

    Args:
        log_ratio: log-probability of each action now, minus that with which it was drawn.
        advantage: A of each action.
        clip: distance of the ratio from 1 beyond which an action gains nothing.
    """
    ratio = log_ratio.exp()
    low: Any = 1 - clip  # numbers or tensors
    high: Any = 1 + clip
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def clipped_value_loss(
    value: Float[Tensor, "*N"], before: Float[Tensor, "*N"], target: Float[Tensor, "*N"], clip: float
) -> Float[Tensor, "*N"]:
    """Return half the larger squared error of V and of V kept within `clip` of its former value (Schulman's baselines).

    Args:
        value: V now.
        before: V when the step was taken.
        target: the return that V should be.
        clip: distance that V may move before a step's gain no longer pulls it further.
    """
    clipped = before + (value - before).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (clipped - target).square()) / 2
