"""The reward of a step: a pure function of measurements, and of the accuracy of hosts in which nothing is grown.

A host is a network in training; a seed is a module that grows in it. A host is of one of two kinds, capable or impaired
(its kernels are cut to their centre). `UngrownAccuracy` has the sums over hosts in which nothing is grown, by kind and
by step: a seed gets credit only for a gain beyond the accuracy that its host would have reached without growing.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.config import GrowRewardConfig
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state


def seed_credit(
    contribution: Float[Tensor, "E S"],
    *,
    accuracy: Float[Tensor, " E"],
    initial_accuracy: Float[Tensor, "E S"],
    ungrown: Float[Tensor, " E"],
) -> Float[Tensor, "E S"]:
    """Return the credit of each seed: its contribution, but at most the gain of its host.

    A host's gain is its accuracy beyond both its own at the seed's germination and ungrown hosts' of its kind.
    Without this bound, an agent would be rewarded for making hosts depend on seeds that they do not need: removing a
    seed that was blended in costs accuracy, even if the seed has never raised it.

    Args:
        contribution: accuracy with each seed minus accuracy without it.
        accuracy: accuracy of each host.
        initial_accuracy: accuracy of each host when the seed germinated.
        ungrown: accuracy of ungrown hosts of the same kind after as many steps; 0 if it is not known.
    """
    # Beyond the larger of the two accuracies; 0 for a host that has got worse.
    gain = (accuracy[:, None] - torch.maximum(initial_accuracy, ungrown[:, None])).clamp(min=0)
    # `gain` is never negative, so the negative contribution of a harmful seed counts in full.
    return torch.minimum(contribution, gain)


def step_reward(
    config: GrowRewardConfig,
    *,
    credits_: Float[Tensor, "E S"],
    sizes: Float[Tensor, "E S"],
    changes: Float[Tensor, " E"],
    accuracy: Float[Tensor, " E"],
    is_last: Bool[Tensor, " E"],
) -> Float[Tensor, " E"]:
    """Return the reward of a step: the weighted sum of seeds' credits and final accuracy, less rent and churn.

    Args:
        config: weights and prices.
        credits_: result of `seed_credit` for each seed; 0 without a seed.
        sizes: number of weights of each seed, as a share of the host's own; 0 without a seed.
        changes: number of seeds that germinated or were pruned in this step.
        accuracy: accuracy after the step.
        is_last: whether the step is the episode's last.
    """
    reward = config.contribution * credits_.sum(1) + config.terminal * accuracy * is_last
    return reward - config.rent * sizes.sum(1) - config.churn * changes


@state
class UngrownAccuracy:
    """Sums over ungrown hosts, by kind (row 0 capable, row 1 impaired) and by step; zero until hosts are added."""

    accuracy: Float[Tensor, "2 T"]
    """Sum of the accuracies."""
    hosts: Float[Tensor, "2 T"]
    """Number of hosts in the sum."""


def build_ungrown_accuracy(steps: int, device: torch.device) -> UngrownAccuracy:
    """Return the sums before any host was added: zeros [2, T] for episodes of T = `steps` steps."""
    zeros = partial(filled_tensor, 0, 2, steps, device=device)
    return UngrownAccuracy(accuracy=zeros(), hosts=zeros())


def add_ungrown_accuracy_(
    ungrown: UngrownAccuracy, accuracy: Float[Tensor, " E"], *, is_impaired: Bool[Tensor, " E"], step: Int[Tensor, " E"]
) -> None:
    """Add the accuracies of hosts in which nothing was grown to the sums.

    Args:
        ungrown: written in place.
        accuracy: accuracy of each host after its last step.
        is_impaired: whether each host is impaired: its kernels are cut to their centre.
        step: steps of the episode that each host has taken, 1 or more.
    """
    # Row 0 or 1 by the kind of host, and the column of the step.
    index = (is_impaired.long(), step - 1)
    ungrown.accuracy.index_put_(index, accuracy, accumulate=True)
    ungrown.hosts.index_put_(index, torch.ones_like(accuracy), accumulate=True)


def ungrown_accuracy(
    ungrown: UngrownAccuracy, *, is_impaired: Bool[Tensor, " E"], step: Int[Tensor, " E"]
) -> Float[Tensor, " E"]:
    """Return the mean accuracy of ungrown hosts of each host's kind after `step` steps, 1 or more; 0 if unknown."""
    # Steps beyond the last one read the last column.
    index = (is_impaired.long(), (step - 1).clamp(max=ungrown.hosts.shape[1] - 1))
    # At least 1: where no host was counted, the sum is 0 as well.
    return ungrown.accuracy[index] / ungrown.hosts[index].clamp(min=1)
