"""Results of a pool that come faster than they are read: they wait in its iterator.

Thread: https://github.com/cfe-lab/MiCall/issues/377
Looks like: memory climbs while the results are written, and falls at the end.
Fix: hand out work with a semaphore, so that no more than a few results wait.
"""

import sys
import time
from multiprocessing.pool import ThreadPool

import numpy as np


def remap(seed: int) -> np.ndarray:
    time.sleep(0.02)
    return np.full(100_000, float(seed))  # <- here


def main(rounds: int) -> None:
    written = 0.0
    with ThreadPool(2) as pool:
        for result in pool.imap_unordered(remap, range(20 * rounds)):
            written += float(result.sum())
            time.sleep(0.05)
            if written > 1e5 * rounds * rounds:
                break


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
