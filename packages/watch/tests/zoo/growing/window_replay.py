"""A replay buffer of windows, each a copy of the last 250 rows of a table: a step adds one row and stores 250.

Looks like: memory climbs with every step, for hours, until the buffer is full; or until the machine is.
Fix: it is no leak, it fills. Store the row number and cut the window out when it is drawn: 250 times smaller.
"""

import sys
import time
from collections import deque

import numpy as np
import torch

WINDOW, FEATURES = 250, 32


class Replay:
    def __init__(self, capacity: int) -> None:
        self.windows: deque[np.ndarray] = deque(maxlen=capacity)

    def append(self, window: np.ndarray) -> None:
        self.windows.append(window.copy())  # <- here

    def draw(self, generator: np.random.Generator, n: int) -> np.ndarray:
        return np.stack([self.windows[i] for i in generator.integers(len(self.windows), size=n)])


def main(rounds: int) -> None:
    generator = np.random.default_rng(0)
    table = generator.standard_normal((20_000, FEATURES), dtype=np.float32)
    replay = Replay(capacity=10_000)
    model = torch.nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    at = WINDOW
    for _ in range(rounds):
        for _ in range(8):
            for _ in range(40):
                replay.append(table[at - WINDOW : at])
                at += 1
            loss = model(torch.from_numpy(replay.draw(generator, 16))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
