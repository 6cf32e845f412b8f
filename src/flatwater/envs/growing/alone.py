"""What hosts reach when they are left alone: the accuracy after each step in which nothing was ever grown.

Capable hosts learn by themselves, and a seed that a host has come to depend on takes credit for it when it is left out.
What is grown must be compared with what would have been.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.state.tree import state


@state
class Alone:
    """Sums over the hosts of each kind, capable and impaired. All zero until `note_alone_` is called."""

    accuracy: Float[Tensor, "2 T"]
    hosts: Float[Tensor, "2 T"]
    """Hosts that were added up."""


def build_alone(steps: int, device: torch.device) -> Alone:
    """Nothing known."""

    def zeros() -> Tensor:
        return torch.empty(2, steps, dtype=torch.float32, device=device).fill_(0)

    return Alone(accuracy=zeros(), hosts=zeros())


def note_alone_(
    alone: Alone, accuracy: Float[Tensor, " E"], *, impaired: Bool[Tensor, " E"], step: Int[Tensor, " E"]
) -> None:
    """Add hosts in which nothing was grown.

    Args:
        alone: written in place.
        accuracy: of each host after its last step.
        impaired: its kind.
        step: steps of the episode that it has taken, 1 or more.
    """
    at = (impaired.long(), step - 1)
    alone.accuracy.index_put_(at, accuracy, accumulate=True)
    alone.hosts.index_put_(at, torch.ones_like(accuracy), accumulate=True)


def accuracy_alone(alone: Alone, *, impaired: Bool[Tensor, " E"], step: Int[Tensor, " E"]) -> Float[Tensor, " E"]:
    """The mean accuracy of such hosts after that many steps, 1 or more; 0 where none is known."""
    at = (impaired.long(), (step - 1).clamp(max=alone.hosts.shape[1] - 1))
    return alone.accuracy[at] / alone.hosts[at].clamp(min=1)
