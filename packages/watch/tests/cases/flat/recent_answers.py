"""A cache in C that keeps the last hundred answers."""

import sys
import time

from lru import LRU


def main(rounds: int) -> None:
    answers = LRU(100)
    for n in range(2 * rounds):
        for k in range(5):
            answers[5 * n + k] = bytes([k]) * 200_000
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
