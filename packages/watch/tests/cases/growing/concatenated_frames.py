"""One table that is replaced by itself and the rows of each round.

Thread: https://github.com/pandas-dev/pandas/issues/2659
Looks like: memory climbs in steps of twice the table.
Fix: write the rows out, or keep the last so many.
"""

import sys
import time

import numpy as np
import pandas as pd


class Monitor:
    def __init__(self) -> None:
        self.history = pd.DataFrame({"price": np.zeros(0), "size": np.zeros(0)})

    def poll(self, n: int) -> None:
        rows = pd.DataFrame({"price": np.full(100_000, float(n)), "size": np.full(100_000, 1.0)})
        self.history = pd.concat([self.history, rows], ignore_index=True)  # <- here


def main(rounds: int) -> None:
    monitor = Monitor()
    for n in range(rounds):
        monitor.poll(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
