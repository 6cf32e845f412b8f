"""One pair of axes into which each step draws a further line.

Thread: https://github.com/matplotlib/matplotlib/issues/8560
Looks like: a live plot gets slower and larger.
Fix: `line.set_data(...)` on one line, or `axes.clear()`.
"""

import sys
import time

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

mpl.use("Agg")


class Dashboard:
    def __init__(self) -> None:
        self.figure = Figure()
        self.axes = self.figure.add_subplot()

    def show(self, n: int) -> None:
        self.axes.plot(np.arange(100_000.0), np.full(100_000, float(n)))  # <- here


def main(rounds: int) -> None:
    dashboard = Dashboard()
    for n in range(rounds):
        dashboard.show(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
