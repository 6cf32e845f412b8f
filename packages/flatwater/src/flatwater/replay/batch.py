"""A learner's batch: transitions of every member, gathered from a replay."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """B transitions for each of P members."""

    obs: Any
    """Observations as the networks take them: a tensor [P, B, ...], or a structure of such tensors."""
    action: Float[Tensor, "P B *action"]
    """Actions as the actor gives them."""
    reward: Float[Tensor, "P B"]
    """Reward on the way from `obs` to `next_obs`."""
    discount: Float[Tensor, "P B"]
    """0 if the episode terminated, 1 if it went on or was truncated. Gamma is the learner's."""
    next_obs: Any
    """The true successor, taken before any reset."""
    weight: Float[Tensor, "P B"] | None = None
    """Importance weights of a prioritised draw; None if all transitions count alike."""
