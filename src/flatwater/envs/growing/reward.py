"""What a step pays: a pure function of what was measured."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.envs.growing.config import GrowRewardConfig


def credit(
    contribution: Float[Tensor, "E S"],
    *,
    accuracy: Float[Tensor, " E"],
    started_from: Float[Tensor, "E S"],
    alone: Float[Tensor, " E"],
) -> Float[Tensor, "E S"]:
    """What a seed is paid for: its contribution, but no more than the host has gained by it.

    A host has gained what it is better than when the seed germinated, and than hosts of its kind are by now that were
    left alone. Without the bound it pays to make a host depend on a seed that it does not need: removing one that was
    blended in costs accuracy, whether or not it ever brought any. A harmful seed's contribution counts in full.

    Args:
        contribution: accuracy with each seed minus accuracy without it.
        accuracy: of each host.
        started_from: its accuracy when the seed germinated.
        alone: accuracy of hosts of its kind, left alone, after as many steps; 0 where it is not known.
    """
    gained = (accuracy[:, None] - torch.maximum(started_from, alone[:, None])).clamp(min=0)
    return torch.minimum(contribution, gained)


def reward_of(
    config: GrowRewardConfig,
    *,
    credits_: Float[Tensor, "E S"],
    weights: Float[Tensor, "E S"],
    changes: Float[Tensor, " E"],
    accuracy: Float[Tensor, " E"],
    last: Bool[Tensor, " E"],
) -> Float[Tensor, " E"]:
    """The reward of a step.

    Args:
        config: prices.
        credits_: what `credit` gave for each seed, 0 where there is none.
        weights: of each seed, as a share of the host's own, 0 where there is none.
        changes: seeds germinated and pruned in this step.
        accuracy: after the step.
        last: whether it is the episode's last.
    """
    paid = config.contribution * credits_.sum(1) + config.terminal * accuracy * last
    return paid - config.rent * weights.sum(1) - config.churn * changes
