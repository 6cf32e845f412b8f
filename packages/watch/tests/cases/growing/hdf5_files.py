"""Files in memory that a data set opens for each sample, and keeps.

Thread: https://github.com/h5py/h5py/issues/2553
Looks like: a data loader grows by the size of what it has read.
Fix: `with h5py.File(...)`, or keep the last few.
"""

import sys
import time

import h5py
import numpy as np


class Recordings:
    def __init__(self) -> None:
        self.opened: list[h5py.File] = []

    def read(self, n: int) -> float:
        file = h5py.File(f"sample {n}", "w", driver="core", backing_store=False)  # <- here
        file["signal"] = np.full(300_000, float(n))
        self.opened.append(file)
        return float(file["signal"][0])


def main(rounds: int) -> None:
    recordings = Recordings()
    for n in range(rounds):
        recordings.read(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
