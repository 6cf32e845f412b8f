"""The losses of the validation are kept with the graphs that made them.

Thread: https://github.com/rballester/tntorch/pull/19
Looks like: memory climbs with the epochs, although a loss is one number.
Fix: `losses.append(loss.item())`, or validate under `torch.no_grad()`.
"""

import sys
import time

import torch
from torch import nn


def main(rounds: int) -> None:
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.ones(1000, 32)
    losses = []
    for n in range(rounds):
        optimizer.zero_grad()
        model(rows[:50] + n).mean().backward()
        optimizer.step()
        loss = model(rows).square().mean()  # <- here
        losses.append(loss)
        time.sleep(0.13)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
