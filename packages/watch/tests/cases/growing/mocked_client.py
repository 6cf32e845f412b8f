"""A simulation with a mock in place of the client: a mock remembers each call, with its arguments.

Thread: https://github.com/python/cpython/issues/106823
Looks like: a long test grows with the messages that it sends, and the program itself does not.
Fix: `client.reset_mock()` once in a while, or a stub that keeps nothing.
"""

import sys
import time
from unittest.mock import MagicMock

import numpy as np


class Publisher:
    def __init__(self, client: MagicMock) -> None:
        self.client = client

    def publish(self, n: int) -> None:
        frame = np.full(60_000, float(n))  # <- here
        self.client.send("frames", frame)


def main(rounds: int) -> None:
    publisher = Publisher(MagicMock(name="client"))
    for n in range(rounds):
        publisher.publish(n)
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
