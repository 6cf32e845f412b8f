"""The reward of a step: a pure function of measurements, and of the accuracy of hosts in which nothing is grown.

`UngrownAccuracy` has sums over hosts that were left alone, by kind and by step: a seed is paid for gains beyond
their accuracy.
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
    started_from: Float[Tensor, "E S"],
    alone: Float[Tensor, " E"],
) -> Float[Tensor, "E S"]:
    """Return the credit of each seed: its contribution, but no more than the host has gained by it.

    A host's gain is its accuracy above that at the seed's germination, and above that of hosts of its kind that were
    left alone for as long. Without the bound it pays to make a host depend on a seed that it does not need: removing
    a seed that was blended in costs accuracy, even if it never brought any. A harmful seed's contribution counts
    in full.

    Args:
        contribution: accuracy with each seed minus accuracy without it.
        accuracy: accuracy of each host.
        started_from: accuracy of each host when the seed germinated.
        alone: accuracy of hosts of its kind, left alone, after as many steps; 0 if it is not known.
    """
    gain = (accuracy[:, None] - torch.maximum(started_from, alone[:, None])).clamp(min=0)
    # `gain` is never negative, so that a negative contribution is the minimum.
    return torch.minimum(contribution, gain)


def step_reward(
    config: GrowRewardConfig,
    *,
    credits_: Float[Tensor, "E S"],
    weights: Float[Tensor, "E S"],
    changes: Float[Tensor, " E"],
    accuracy: Float[Tensor, " E"],
    last: Bool[Tensor, " E"],
) -> Float[Tensor, " E"]:
    """Return the reward of a step, as a price for each of its parts.

    Args:
        config: prices.
        credits_: result of `seed_credit` for each seed, 0 if there is none.
        weights: weights of each seed, as a share of the host's own, 0 if there is none.
        changes: seeds germinated and pruned in this step.
        accuracy: accuracy after the step.
        last: whether it is the episode's last.
    """
    reward = config.contribution * credits_.sum(1) + config.terminal * accuracy * last
    return reward - config.rent * weights.sum(1) - config.churn * changes


@state
class UngrownAccuracy:
    """Sums over the hosts of each kind, capable and impaired. All zero until `note_alone_` is called."""

    accuracy: Float[Tensor, "2 T"]
    hosts: Float[Tensor, "2 T"]
    """Hosts that were added up."""


def build_alone(steps: int, device: torch.device) -> UngrownAccuracy:
    """Return sums of zero for episodes of `steps` steps: T = `steps`."""
    zeros = partial(filled_tensor, 0, 2, steps, device=device)
    return UngrownAccuracy(accuracy=zeros(), hosts=zeros())


def note_alone_(
    ungrown: UngrownAccuracy, accuracy: Float[Tensor, " E"], *, impaired: Bool[Tensor, " E"], step: Int[Tensor, " E"]
) -> None:
    """Add the accuracies of hosts in which nothing was grown.

    Args:
        ungrown: written in place.
        accuracy: accuracy of each host after its last step.
        impaired: whether each host is impaired.
        step: steps of the episode that each host has taken, 1 or more.
    """
    index = (impaired.long(), step - 1)
    ungrown.accuracy.index_put_(index, accuracy, accumulate=True)
    ungrown.hosts.index_put_(index, torch.ones_like(accuracy), accumulate=True)


def accuracy_alone(
    ungrown: UngrownAccuracy, *, impaired: Bool[Tensor, " E"], step: Int[Tensor, " E"]
) -> Float[Tensor, " E"]:
    """Return the mean accuracy of such hosts after that many steps, 1 or more; 0 if none is known."""
    index = (impaired.long(), (step - 1).clamp(max=ungrown.hosts.shape[1] - 1))
    # At least 1: where no host was counted, the sum is 0 as well.
    return ungrown.accuracy[index] / ungrown.hosts[index].clamp(min=1)
