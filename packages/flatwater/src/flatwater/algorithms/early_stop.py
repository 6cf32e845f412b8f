"""The early stop of a round's updates, at a divergence from the policy that acted, as in Stable-Baselines3."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.state.allocation import filled_tensor

STOPPED, STOPS = "stopped", "stops"
"""Entries of the state: 1 if this round's updates were stopped, and the number of rounds that were stopped so far."""
STOP_FACTOR = 1.5
"""Updates stop at a divergence above this many times `target_kl`."""


def build_early_stop(target_kl: float, device: torch.device) -> dict[str, Float[Tensor, ""]]:
    """Return the state of the early stop, two 0-d tensors; empty without a `target_kl`."""
    if not target_kl:
        return {}
    # On the CPU: it is read before each update, which must not wait for a GPU.
    state_device = device if device.type == "meta" else torch.device("cpu")
    return {name: filled_tensor(0, device=state_device) for name in (STOPPED, STOPS)}


def read_early_stop(tensors: dict[str, Float[Tensor, ""]], updates: int) -> dict[str, float]:
    """Return metrics: the round's number of updates, and the number of stopped rounds; empty without a `target_kl`."""
    return {"train/updates": float(updates), "train/early_stops": float(tensors[STOPS])} if tensors else {}


class EarlyStop:
    """The decision before each update whether the round's updates go on."""

    def __init__(self, tensors: dict[str, Float[Tensor, ""]], target_kl: float) -> None:
        """Bind the state; on the meta device, where no divergence is known, updates never stop."""
        self._tensors = {} if any(tensor.is_meta for tensor in tensors.values()) else tensors
        self._kl_limit = STOP_FACTOR * target_kl

    def is_stopped_(self, *, first_update: bool) -> bool:
        """Return whether this round's updates were stopped; its first update clears the stop of the round before."""
        if not self._tensors:  # no `target_kl`, or a plan
            return False
        if first_update:
            self._tensors[STOPPED].zero_()
        return bool(self._tensors[STOPPED])

    def check_divergence_(self, kl: Float[Tensor, ""]) -> bool:
        """Return whether `kl`, a minibatch's divergence, is above the limit, and if so, stop the round's updates."""
        # Without a state updates never stop. Reading `kl` is the only wait for the device in an update: whether its
        # step is taken follows from this number.
        if not self._tensors or not bool(kl > self._kl_limit):
            return False
        self._tensors[STOPPED].fill_(1)
        self._tensors[STOPS].add_(1)
        return True
