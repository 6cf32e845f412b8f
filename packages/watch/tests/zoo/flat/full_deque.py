"""A replay buffer that is full when training begins: each append lets the oldest transition go."""

import sys
import time
from collections import deque

import numpy as np
import torch


def main(rounds: int) -> None:
    generator = np.random.default_rng(0)
    replay = deque((generator.standard_normal(5000) for _ in range(1000)), maxlen=1000)
    model = torch.nn.Linear(5000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(rounds):
        for _ in range(4):
            replay.extend(generator.standard_normal(5000) for _ in range(50))
            batch = np.stack([replay[i] for i in generator.integers(len(replay), size=32)])
            loss = model(torch.from_numpy(batch).float()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
