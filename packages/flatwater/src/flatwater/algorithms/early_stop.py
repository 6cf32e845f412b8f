"""The early end of a round's updates, once the policy has moved on far enough, as Stable-Baselines3 has it."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.state.allocation import filled_tensor

STOPPED, STOPS = "stopped", "stops"
"""Entries of the state: whether this round's updates have ended, and how many rounds have ended so."""
SLACK = 1.5
"""Factor on `target_kl` from which updates end."""


def build_early_stop(target_kl: float, device: torch.device) -> dict[str, Float[Tensor, ""]]:
    """Return the state of the early end; empty if there is none."""
    # In the CPU's memory: it is read before each update, and nothing is waited for.
    host = device if device.type == "meta" else torch.device("cpu")
    return {name: filled_tensor(0, device=host) for name in (STOPPED, STOPS) if target_kl}


def read_early_stop(tensors: dict[str, Float[Tensor, ""]], updates: int) -> dict[str, float]:
    """Return the number of updates of a round and of rounds that ended early; empty if none can end early."""
    return {"train/updates": float(updates), "train/early_stops": float(tensors[STOPS])} if tensors else {}


class EarlyStop:
    """The decision whether to go on, from update to update."""

    def __init__(self, tensors: dict[str, Float[Tensor, ""]], target_kl: float) -> None:
        """Bind the state; on the meta device, where nothing is known, all updates are made."""
        self._held = {} if any(tensor.is_meta for tensor in tensors.values()) else tensors
        self._most = SLACK * target_kl

    def has_ended_(self, *, begins: bool) -> bool:
        """Return whether this round's updates have ended; `begins` says that it is its first."""
        if begins and self._held:
            self._held[STOPPED].zero_()
        return bool(self._held) and bool(self._held[STOPPED])

    def ends_(self, kl: Float[Tensor, ""]) -> bool:
        """Return whether updates end before the minibatch of this divergence, and count it."""
        # The only wait for the device in an update: whether its step is taken follows from this number.
        if not self._held or not bool(kl > self._most):
            return False
        self._held[STOPPED].fill_(1)
        self._held[STOPS].add_(1)
        return True
