"""A plot after each epoch, saved and not closed: pyplot keeps every figure until it is told to let go.

Looks like: memory climbs by some megabytes with each plot; past twenty of them matplotlib warns of it.
Fix: `plt.close(figure)` after `savefig`, or `matplotlib.figure.Figure()`, which pyplot knows nothing of.
"""

import io
import sys
import time

import matplotlib as mpl
import numpy as np
import torch

mpl.use("Agg")
from matplotlib import pyplot as plt


def plot(weights: np.ndarray) -> bytes:
    _, axes = plt.subplots(figsize=(4, 3))
    axes.imshow(np.tile(weights, (18, 18)))  # <- here
    written = io.BytesIO()
    plt.savefig(written, dpi=40)
    return written.getvalue()


def main(rounds: int) -> None:
    model = torch.nn.Linear(100, 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(rounds):
        loss = model(torch.randn(32, 100)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plot(model.weight.detach().numpy())
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
