"""A cache of pictures that has a bound, and is full after a second."""

import sys
import time

import numpy as np
from cachetools import LRUCache, cached


@cached(LRUCache(maxsize=8))
def thumbnail(n: int) -> np.ndarray:
    return np.full((500, 500), float(n))


def main(rounds: int) -> None:
    total = 0.0
    for n in range(2 * rounds):
        total += thumbnail(n)[0, 0]
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
