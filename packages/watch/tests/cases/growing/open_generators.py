"""Readers that were asked for their first row only, and wait in the middle.

Thread: https://github.com/python/cpython/issues/88684
Looks like: memory grows with the files that were looked at.
Fix: `contextlib.closing(rows(...))`.
"""

import sys
import time
from collections.abc import Iterator

import numpy as np


def rows(n: int) -> Iterator[float]:
    table = np.full((1000, 300), float(n))  # <- here
    for row in table:
        yield float(row.sum())


def main(rounds: int) -> None:
    readers = {}
    for n in range(rounds):
        reader = rows(n)
        next(reader)
        readers[n] = reader
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
