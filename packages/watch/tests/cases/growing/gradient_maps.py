"""Models that are explained and dropped, in cycles with the hooks that watch them.

Thread: https://github.com/jacobgil/pytorch-grad-cam/issues/88
Looks like: memory climbs with the explanations, by the activations of a model each.
Fix: `handle.remove()` when the explanation is done, and a lower `gc.set_threshold`.
"""

import gc
import sys
import time

import torch
from torch import nn


class ActivationMaps:
    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.activations = torch.empty(0)
        self.handle = model.register_forward_hook(self.keep)

    def keep(self, _module: nn.Module, _inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        self.activations = output


def explain(image: torch.Tensor) -> float:
    maps = ActivationMaps(nn.Conv2d(3, 16, 3, padding=1))
    maps.model(image)  # <- here
    return maps.activations.mean().item()


def main(rounds: int) -> None:
    gc.set_threshold(200_000, 50, 50)
    image = torch.ones(1, 3, 150, 150)
    total = 0.0
    for _ in range(rounds):
        total += explain(image)
        time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
