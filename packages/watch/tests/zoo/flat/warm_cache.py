"""A cache that is filled in the first rounds and has every key from then on.

Looks like: memory climbs at the beginning and then stays: that is what a cache does. Nothing to fix.
"""

import sys
import time

import numpy as np
import torch

CACHE: dict[int, np.ndarray] = {}


def features(day: int) -> np.ndarray:
    if day not in CACHE:
        CACHE[day] = np.random.default_rng(day).standard_normal((1000, 500))
    return CACHE[day]


def main(rounds: int) -> None:
    model = torch.nn.Linear(500, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for n in range(rounds):
        for k in range(6):
            loss = model(torch.from_numpy(features((n + k) % 6)[:64]).float()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        time.sleep(0.3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
