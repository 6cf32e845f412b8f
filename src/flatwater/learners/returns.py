"""What a step was worth: advantages and returns over a block of consecutive steps. Pure.

The end of an episode has two kinds, which enter as two arguments. Where it *terminated* nothing follows, so `discount`
is 0. Where it was *truncated* the world went on without us: the value of the state that followed still counts
(`discount` is gamma), but the next row of the block belongs to another episode and must not flow back (`continues` is
False in both cases).
"""

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
    """Generalised advantage estimate (Schulman et al. 2016, eq. 16): sum over k of (gamma lam)^k times TD error t+k.

    Args:
        reward: r_t, paid on the way from s_t to its successor.
        discount: gamma, or 0 where the step terminated.
        value: V(s_t).
        next_value: V of the true successor, taken before any reset.
        continues: False where the episode ended, by termination or by truncation, and in the last row where the
            block cuts it.
        lam: 0 gives the TD error, 1 the discounted return minus `value`.

    Returns:
        A_t. The critic's target is `A_t + value`.
    """
    td_error, decay = reward + discount * next_value - value, lam * discount * continues
    # The last row's carry meets only zeros, so that what `continues` says there does not matter.
    advantage, carry = torch.empty_like(reward), torch.zeros_like(reward[0])
    for found, error, kept in reversed(list(zip(advantage, td_error, decay, strict=True))):
        carry = torch.mul(kept, carry, out=found).add_(error)
    return advantage


def lambda_returns(
    *,
    reward: Float[Tensor, "T B"],
    discount: Float[Tensor, "T B"],
    next_value: Float[Tensor, "T B"],
    continues: Bool[Tensor, "T B"],
    lam: float,
) -> Float[Tensor, "T B"]:
    """The lambda-return (Sutton & Barto 2018, eq. 12.20): a mixture of all n-step returns, equal to `gae` + V(s_t).

    G_t = r_t + discount_t ((1 - lam) V(s_t+1) + lam G_t+1), and r_t + discount_t V(s_t+1) where the episode ended or
    the block does. It needs no V(s_t), so a critic can learn from it before it is any good.

    Args:
        reward: r_t, paid on the way from s_t to its successor.
        discount: gamma, or 0 where the step terminated.
        next_value: V of the true successor, taken before any reset.
        continues: False where the episode ended, by termination or by truncation.
        lam: 0 gives the one-step target, 1 the discounted return.
    """
    returns, carry = torch.empty_like(reward), next_value[-1]
    for t in reversed(range(len(reward))):
        mixed = torch.lerp(next_value[t], carry, lam)
        carry = reward[t] + discount[t] * torch.where(continues[t], mixed, next_value[t])
        returns[t] = carry
    return returns
