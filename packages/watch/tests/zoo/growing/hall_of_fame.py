"""The best network of every generation kept, with its optimiser's moments, "to compare them at the end".

Looks like: memory climbs with the generations, by three times the size of a network: weights and two moments.
Fix: keep the best few (`heapq.nlargest`), keep weights only, or write the others to disk.
"""

import copy
import sys
import time
from typing import Any

import torch
from torch import nn


class Evolution:
    def __init__(self) -> None:
        self.network = nn.Sequential(nn.Linear(128, 1024), nn.Tanh(), nn.Linear(1024, 512))
        self.optimizer = torch.optim.Adam(self.network.parameters())
        self.hall_of_fame: list[dict[str, Any]] = []

    def generation(self) -> float:
        loss = self.network(torch.randn(64, 128)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.1)  # the episodes that it plays
        return -loss.item()

    def remember(self, fitness: float) -> None:
        states = (self.network.state_dict(), self.optimizer.state_dict())
        self.hall_of_fame.append({"fitness": fitness, "states": copy.deepcopy(states)})  # <- here


def main(rounds: int) -> None:
    evolution = Evolution()
    for _ in range(rounds):
        fitness = max(evolution.generation() for _ in range(4))
        evolution.remember(fitness)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
