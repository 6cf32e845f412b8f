"""Finalizers whose arguments keep alive what they are to clean up.

Thread: https://github.com/python/cpython/issues/89455
Looks like: objects are dropped, and memory stays.
Fix: give the finalizer the name of the resource, not the resource.
"""

import sys
import time
import weakref

import numpy as np


class Buffer:
    def __init__(self, n: int) -> None:
        self.data = np.full(300_000, float(n))  # <- here


def release(buffer: Buffer) -> None:
    del buffer.data


def work(n: int) -> None:
    buffer = Buffer(n)
    weakref.finalize(buffer, release, buffer)


def main(rounds: int) -> None:
    for n in range(rounds):
        work(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
