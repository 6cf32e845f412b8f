"""A handler for the end of the program, registered again by each job.

Thread: https://github.com/python/cpython/issues/84434
Looks like: jobs are done, and what they worked on stays until the end.
Fix: register one handler once, or `atexit.unregister` it.
"""

import atexit
import sys
import time

import numpy as np


def job(n: int) -> None:
    result = np.full(300_000, float(n))  # <- here
    atexit.register(result.sum)


def main(rounds: int) -> None:
    for n in range(rounds):
        job(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
