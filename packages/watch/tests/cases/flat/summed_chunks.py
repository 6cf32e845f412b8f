"""Workers of a pool that sum what they get, and keep nothing."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np


def total(chunk: np.ndarray) -> float:
    return float(chunk.sum())


def main(rounds: int) -> None:
    with ProcessPoolExecutor(2) as pool:
        for n in range(rounds):
            sum(pool.map(total, [np.full(100_000, float(n)), np.full(100_000, 1.0)]))
            time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
