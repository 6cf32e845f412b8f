"""Advantages of steps, means over steps, and PPO's clipped losses (Schulman et al. 2017, eq. 7). Pure functions.

The end of an episode has two kinds, which enter as two arguments. Where it *terminated* nothing follows, so `discount`
is 0. Where it was *truncated* the world went on without us: the value of the state that followed still counts
(`discount` is gamma), but the next row of the block belongs to another episode and must not flow back (`continues` is
False in both cases).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.on_policy_config import OnPolicySettings

DEVIATION_EPSILON = 1e-8
"""Added to the deviation of advantages before it divides: equal advantages become 0."""


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
    td_error = reward + discount * next_value - value
    # The decay factor of each step at first; the loop below overwrites each row by the step's advantage.
    advantage = lam * discount * continues
    # On the CPU NumPy computes the same numbers in a quarter of the time: its calls on small rows cost less.
    on_cpu = reward.device.type == "cpu"
    library: Any = np if on_cpu else torch
    columns: Any = (advantage.numpy(), td_error.numpy()) if on_cpu else (advantage, td_error)
    # 0 after the last row, so that the last row's `continues` does not matter.
    next_advantage: Any = 0.0
    with np.errstate(all="ignore"):  # torch does not warn of infinities either, which `--allow-nan` lets through
        for row, error in reversed(list(zip(*columns, strict=True))):
            # A_t = factor_t * A_(t+1) + error_t, in place.
            next_advantage = library.add(library.multiply(row, next_advantage, out=row), error, out=row)
    return advantage


def policy_steps(columns: Mapping[str, Tensor]) -> Bool[Tensor, "*N"]:
    """Return a mask of the steps whose action the policy chose: of agents in their episode, not led by the teacher."""
    return columns["alive"] & ~columns["led"] if "led" in columns else columns["alive"]


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where `mask` is 1; 0 if it is 0 everywhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def estimate_targets(settings: OnPolicySettings, block: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the generalised advantages of a block, standardised to mean 0 and deviation 1, and its returns; [T, B].

    Mean and deviation are those of the whole block's steps that the policy chose: a minibatch may have too few.

    Args:
        settings: discount and lambda.
        block: columns [T, B, ...] of the block, by name.
    """
    value, terminated = block["value"], block["terminated"]
    estimate = gae(
        reward=block["reward"],
        discount=torch.where(terminated, 0.0, settings.gamma),
        value=value,
        next_value=block["next_value"],
        continues=~(terminated | block["truncated"]),
        lam=settings.lam,
    )
    policy_mask = policy_steps(block)
    # At least 1: a block that the teacher led throughout has no such step, and must not give 0 / 0.
    count = policy_mask.sum().clamp(min=1)
    mean = (estimate * policy_mask).sum() / count
    deviation = (((estimate - mean) * policy_mask).square().sum() / count).sqrt()
    return (estimate - mean) / (deviation + DEVIATION_EPSILON), estimate + value


def clipped_loss(
    log_ratio: Float[Tensor, "*N"], advantage: Float[Tensor, "*N"], clip: float | Float[Tensor, ""]
) -> Float[Tensor, "*N"]:
    """Return PPO's clipped policy loss of each action: -min(ratio A, clip(ratio, 1 - clip, 1 + clip) A).

    Args:
        log_ratio: log-probability of each action now, minus that with which it was drawn.
        advantage: A of each action.
        clip: distance of the ratio from 1 beyond which moving further gains nothing.
    """
    ratio = log_ratio.exp()
    # `Any`, as both are tensors if `clip` has a schedule, else numbers.
    low: Any = 1 - clip
    high: Any = 1 + clip
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def clipped_value_loss(
    value: Float[Tensor, "*N"], old_value: Float[Tensor, "*N"], target: Float[Tensor, "*N"], clip: float
) -> Float[Tensor, "*N"]:
    """Return half of the larger squared error: of V, or of V clipped to within `clip` of its old value.

    This is the value loss of OpenAI Baselines' PPO.

    Args:
        value: V now.
        old_value: V when the step was taken.
        target: the return that V should predict.
        clip: largest distance of the clipped V from its old value.
    """
    clipped_value = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (clipped_value - target).square()) / 2
