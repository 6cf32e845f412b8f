"""Jobs are submitted to a pool faster than its worker ends them.

Thread: https://github.com/agronholm/pythonfutures/pull/57
Looks like: memory climbs while jobs come, and falls when they stop.
Fix: take a semaphore before `submit`, and release it when the job ends.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def store(block: np.ndarray) -> float:
    time.sleep(1.5)
    return float(block.sum())


def main(rounds: int) -> None:
    pool = ThreadPoolExecutor(1)
    for seed in range(rounds):
        pool.submit(store, np.full(300_000, float(seed)))  # <- here
        time.sleep(0.15)
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
