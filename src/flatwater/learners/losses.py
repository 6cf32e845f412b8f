"""The clipped losses of a stochastic policy and its values (Schulman et al. 2017, PPO, eq. 7). Pure."""

import torch
from jaxtyping import Float
from torch import Tensor


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
