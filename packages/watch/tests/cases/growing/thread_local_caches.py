"""A cache in `threading.local` of threads that live as long as the program.

Thread: https://github.com/python/cpython/issues/76077
Looks like: a pool of four threads holds ever more, and no global does.
Fix: bound the cache of each thread.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

state = threading.local()


def handle(n: int) -> float:
    if not hasattr(state, "tiles"):
        state.tiles = {}
    state.tiles[n] = np.full(150_000, float(n))  # <- here
    time.sleep(0.15)
    return float(state.tiles[n][0])


def main(rounds: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(handle, range(2 * rounds)):
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
