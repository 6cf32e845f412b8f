"""Errors of a pool in a list: each holds the frames in which it was raised.

Thread: https://github.com/python/mypy/issues/4807
Looks like: memory climbs with the failures, by what the failing function worked with.
Fix: keep `str(error)`, or `error.with_traceback(None)`.
"""

import sys
import time

import numpy as np
from lxml import etree

failures = []


def parse(n: int) -> None:
    block = np.full(300_000, float(n))  # <- here
    etree.fromstring(f"<a>{block[0]}</b>")


def main(rounds: int) -> None:
    for n in range(rounds):
        try:
            parse(n)
        except etree.XMLSyntaxError as error:
            failures.append(error)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
