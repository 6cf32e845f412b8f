"""A forward hook registered at the beginning of every epoch, to record activations, and none ever removed.

Looks like: memory climbs with the epochs, and the epochs get slower: each forward pass calls all hooks so far.
Fix: register the hook once, before the loop; or keep the handle and call `handle.remove()` at the end of the epoch.
"""

import sys
import time

import torch
from torch import nn


def record_activations(layer: nn.Module) -> None:
    activations = torch.zeros(2000, 1024)  # <- here

    def keep(_module: nn.Module, _inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        activations[: len(output)] = output.detach()

    layer.register_forward_hook(keep)


def main(rounds: int) -> None:
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(rounds):
        record_activations(model[0])
        for _ in range(3):
            loss = model(torch.randn(128, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
