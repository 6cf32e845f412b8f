"""Warnings with a value in their text: Python remembers each text.

Thread: https://github.com/python/cpython/issues/97557
Looks like: memory climbs with the warnings, also with those that are not shown.
Fix: a constant text, or a filter `always`.
"""

import sys
import time
import warnings


def check(n: int) -> None:
    warnings.warn(f"the value {n:0500d} is out of range", UserWarning, stacklevel=1)  # <- here


def main(rounds: int) -> None:
    sys.stderr = None
    for batch in range(rounds):
        for n in range(1500):
            check(batch * 1500 + n)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
