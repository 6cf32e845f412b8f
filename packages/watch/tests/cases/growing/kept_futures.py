"""Futures in a list, each with the result of its job, long after the result was used.

Thread: https://github.com/python/cpython/issues/98467
Looks like: memory climbs with the jobs, although each result is used once.
Fix: iterate over `as_completed` in batches, and drop the future.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def render(seed: int) -> np.ndarray:
    return np.full(300_000, float(seed))  # <- here


def main(rounds: int) -> None:
    futures = []
    with ThreadPoolExecutor(2) as pool:
        for seed in range(rounds):
            future = pool.submit(render, seed)
            future.result().sum()
            futures.append(future)
            time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
