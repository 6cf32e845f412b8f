"""Figures that are dropped, in cycles with their canvas and axes.

Thread: https://github.com/matplotlib/matplotlib/issues/8519
Looks like: memory climbs with the figures that are already closed.
Fix: `gc.collect()` after each batch, or use one figure again.
"""

import gc
import sys
import time

import numpy as np
from matplotlib.figure import Figure


def main(rounds: int) -> None:
    gc.disable()
    for _ in range(rounds):
        figure = Figure()
        figure.subplots().imshow(np.ones((500, 500)))  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
