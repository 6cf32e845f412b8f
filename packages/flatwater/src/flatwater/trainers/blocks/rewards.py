"""Normalised rewards: each is divided by the running standard deviation of discounted returns.

Gymnasium's `NormalizeReward` does the same within an environment, where evaluations would see it as well. Here the
learner alone reads normalised rewards; metrics and evaluations have those of the environment.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.nets.policy import VARIANCE, build_statistics, update_running_stats_
from flatwater.rollouts.block import Rollout
from flatwater.state.allocation import filled_tensor

RETURN = "return"
"""Key of the discounted return so far of each agent's running episode, [B], next to the statistics."""
MAXIMUM_SCALED = 10.0
"""Largest reward after the division, as usual."""
EPSILON = 1e-8
"""Added to the variance, which is 0 while all returns are equal."""


def build_reward_scale(agents: int, device: torch.device) -> dict[str, Tensor]:
    """Return the statistics of discounted returns before the first step, and each agent's return so far, 0."""
    # Statistics of rows of one number, the return, of which all positions are measured.
    return build_statistics(1, (0,), device) | {RETURN: filled_tensor(0, agents, device=device)}


def scale_rewards_(scale: dict[str, Tensor], rollout: Rollout, gamma: float) -> Float[Tensor, "T B"]:
    """Merge a block's discounted returns into the statistics, and return the block's normalised rewards.

    Args:
        scale: statistics from `build_reward_scale`, updated.
        rollout: the block; it is not changed.
        gamma: discount of a step.
    """
    reward, has_ended = rollout["reward"], rollout["terminated"] | rollout["truncated"]
    returns, carry = torch.empty_like(reward), scale[RETURN]  # `carry`: each agent's return so far, [B]
    for return_row, reward_row, is_end in zip(returns, reward, has_ended, strict=True):
        # R_t = r_t + gamma R_(t-1). The row keeps the return of an episode that ended; the copy that is carried on
        # begins again at 0.
        carry = torch.add(reward_row, carry, alpha=gamma, out=return_row).masked_fill(is_end, 0)
    scale[RETURN].copy_(carry)
    is_usable = rollout["alive"] & returns.isfinite()
    # A plan on the meta device does not know how many returns are usable, and takes all of them.
    usable = returns.flatten() if returns.is_meta else returns[is_usable]
    update_running_stats_(scale, usable.unsqueeze(1))
    return (reward * (scale[VARIANCE] + EPSILON).rsqrt()).clamp(-MAXIMUM_SCALED, MAXIMUM_SCALED)
