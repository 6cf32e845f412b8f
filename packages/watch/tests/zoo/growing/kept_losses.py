"""Validation losses kept for a plot, each with the autograd graph that made it.

Looks like: memory climbs by the same amount with every validation, though model and batch stay the same size.
Fix: keep the number, `history.append(loss.item())`, and validate under `torch.no_grad()`.
"""

import sys
import time

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 512)
        self.value = nn.Linear(512, 1)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.value(torch.relu(self.hidden(state)))  # <- here


def main(rounds: int) -> None:
    critic = Critic()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
    validation = torch.randn(4096, 64)
    history = []
    for _ in range(rounds):
        for _ in range(4):
            loss = critic(torch.randn(256, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        history.append(critic(validation).square().mean())
        time.sleep(0.3)  # an epoch is longer than this one


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
