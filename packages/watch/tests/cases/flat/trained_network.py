"""A network that is trained, with its last losses as numbers."""

import sys
import time
from collections import deque

import torch
from torch import nn


def main(rounds: int) -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters())
    losses: deque[float] = deque(maxlen=100)
    for n in range(rounds):
        for _ in range(5):
            loss = (model(torch.full((500, 64), n / 100)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
