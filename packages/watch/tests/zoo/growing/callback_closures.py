"""A callback for each trained agent, which closes over the agent: model, gradients and moments stay with it.

Looks like: memory climbs with every agent that is trained, though each one "goes out of scope".
Fix: let the callback close over the number that it needs, not over the agent; or remove it when the agent is done.
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import nn


def agent() -> tuple[nn.Module, torch.optim.Optimizer]:
    network = nn.Linear(512, 512)
    return network, torch.optim.Adam(network.parameters())


def train(callbacks: list[Callable[[], int]]) -> None:
    network, optimizer = agent()
    loss = network(torch.randn(32, 512)).square().mean()
    loss.backward()
    optimizer.step()  # <- here

    def at_end() -> int:
        return sum(p.numel() for group in optimizer.param_groups for p in group["params"])

    callbacks.append(at_end)


def main(rounds: int) -> None:
    callbacks: list[Callable[[], int]] = []
    for _ in range(rounds):
        for _ in range(2):
            train(callbacks)
            time.sleep(0.2)
    sum(callback() for callback in callbacks)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
