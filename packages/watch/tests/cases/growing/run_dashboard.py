"""The latest numbers of a training run: its summaries are written, and read back for the status line.

Thread: https://github.com/tensorflow/tensorboard/issues/3747, https://github.com/tensorflow/tensorboard/issues/766
Looks like: a status line of one number takes more memory with each step of the training.
Cause: the accumulator was told to store everything, so it holds each histogram that was ever written.
Fix: a `size_guidance` with numbers in the place of 0, or a reader of scalars alone.
"""

import sys
import tempfile
import time

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)
from torch.utils.tensorboard import SummaryWriter

LAYERS = 8


class Run:
    def __init__(self, folder: str):
        self.writer = SummaryWriter(folder)
        self.draw = np.random.default_rng(4)
        self.step = 0

    def train_step(self) -> None:
        for layer in range(LAYERS):
            weights = self.draw.normal(0, 1 + layer / 4, 2000)
            self.writer.add_histogram(f"weights/{layer}", weights, self.step)  # <- or here
        self.writer.add_scalar("loss", 2.0 / (1 + self.step), self.step)
        self.step += 1


class Dashboard:
    def __init__(self, folder: str):
        self.events = EventAccumulator(folder, size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE)  # <- or here

    def status(self) -> str:
        self.events.Reload()  # <- here
        latest = self.events.Scalars("loss")[-1]
        return f"step {latest.step}: loss {latest.value:.4f}"


def main(steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        dashboard = Dashboard(folder)
        for step in range(steps):
            run.train_step()
            time.sleep(0.08)
            if step % 6 == 0:
                run.writer.flush()
                print(dashboard.status(), flush=True)
        run.writer.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 104)
