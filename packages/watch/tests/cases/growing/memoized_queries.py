"""A decorator that keeps each result in a plain dict.

Thread: https://github.com/tkem/cachetools/issues/107
Looks like: a function that is called with new arguments never forgets.
Fix: `TTLCache` or `LRUCache` instead of a dict.
"""

import sys
import time

import numpy as np
from cachetools import cached


@cached(cache={})
def query(n: int) -> np.ndarray:
    return np.full(300_000, float(n))  # <- here


def main(rounds: int) -> None:
    for n in range(rounds):
        query(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
