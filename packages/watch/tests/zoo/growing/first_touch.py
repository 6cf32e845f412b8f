"""A replay buffer allocated whole with `np.zeros`: its pages come into memory when they are first written.

Looks like: memory climbs for hours although every array was allocated before the first step, then it stops.
Fix: it is no leak. The plateau is the size of the array; if that does not fit, lower the capacity. `array.fill(0)` at
the start shows the whole size at once.
"""

import sys
import time

import numpy as np
import torch


class Replay:
    def __init__(self, capacity: int) -> None:
        self.frames = np.zeros((capacity, 64, 64), np.float32)  # <- here
        self.appended = 0

    def append(self, frame: np.ndarray) -> None:
        self.frames[self.appended % len(self.frames)] = frame
        self.appended += 1


def main(rounds: int) -> None:
    generator = np.random.default_rng(0)
    replay = Replay(capacity=16_000)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(rounds):
        for _ in range(4):
            for _ in range(160):
                replay.append(generator.random((64, 64), dtype=np.float32))
            loss = model(torch.from_numpy(replay.frames[generator.integers(replay.appended)])).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.07)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
