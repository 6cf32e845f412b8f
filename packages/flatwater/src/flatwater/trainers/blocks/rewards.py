"""Rewards on the scale of returns: each is divided by the deviation of discounted returns so far.

Gymnasium's `NormalizeReward` does the same to an environment, where evaluations would see it as well. Here the numbers
of the run stay those of the environment; the learner alone reads others.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.nets.policy import VARIANCE, build_statistics, update_running_stats_
from flatwater.rollouts.block import Rollout
from flatwater.state.allocation import filled_tensor

RETURN = "return"
"""Name of the discounted return of each agent's running episode, next to the statistics of all of them."""
MAXIMUM_SCALED = 10.0
"""Largest reward after the division, as usual."""
EPSILON = 1e-8
"""Added to the variance: where nothing is ever paid, nothing is divided by 0."""


def build_reward_scale(agents: int, device: torch.device) -> dict[str, Tensor]:
    """Return the statistics of no returns yet."""
    return build_statistics(1, (0,), device) | {RETURN: filled_tensor(0, agents, device=device)}


def scale_rewards_(scale: dict[str, Tensor], rollout: Rollout, gamma: float) -> Float[Tensor, "T B"]:
    """Merge a block's discounted returns into the statistics, and return its rewards on their scale.

    Args:
        scale: from `build_reward_scale`.
        rollout: the block; it is not changed.
        gamma: discount of a step.
    """
    reward, has_ended = rollout["reward"], rollout["terminated"] | rollout["truncated"]
    returns, carry = torch.empty_like(reward), scale[RETURN]
    for row, paid, ended in zip(returns, reward, has_ended, strict=True):
        # A copy of what goes on: the row itself is of the episode that ended with it.
        carry = torch.add(paid, carry, alpha=gamma, out=row).masked_fill(ended, 0)
    scale[RETURN].copy_(carry)
    usable = rollout["alive"] & returns.isfinite()
    # On meta a plan cannot know how many steps are usable: all, at most.
    rows = returns.flatten() if returns.is_meta else returns[usable]
    update_running_stats_(scale, rows.unsqueeze(1))
    return (reward * (scale[VARIANCE] + EPSILON).rsqrt()).clamp(-MAXIMUM_SCALED, MAXIMUM_SCALED)
