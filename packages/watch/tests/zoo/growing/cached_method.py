"""An unbounded `lru_cache` on a method that returns arrays: each day's features are kept, and so is each `self`.

Looks like: memory climbs with every new argument, and never falls, not even when the object is deleted.
Fix: `lru_cache(maxsize=64)` on a function of plain arguments, or compute the features when they are needed.
"""

import sys
import time
from functools import lru_cache

import numpy as np
import torch


class Features:
    def __init__(self, seed: int) -> None:
        self.prices = np.random.default_rng(seed).standard_normal((4000, 250))

    @lru_cache(maxsize=None)  # noqa: B019, UP033  (the fault)
    def of_day(self, day: int) -> np.ndarray:
        return np.cumsum(self.prices, axis=0) / (day + 1)  # <- here


def main(rounds: int) -> None:
    features = Features(seed=0)
    model = torch.nn.Linear(250, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for day in range(rounds):
        x = torch.from_numpy(features.of_day(day)[:64]).float()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
