"""A cache on a method keeps each client that called it.

Thread: https://github.com/getsentry/seer/pull/2512
Looks like: memory climbs with the clients, although each is dropped after its work.
Fix: cache on the instance, or a function of what is asked.
"""

import sys
import time
from functools import cache

import requests


class Client:
    def __init__(self, n: int) -> None:
        self.session = requests.Session()
        self.tree = bytes([n % 256]) * 2_000_000  # <- here

    @cache  # noqa: B019
    def files(self, branch: str) -> int:
        return len(self.tree) + len(branch)


def main(rounds: int) -> None:
    for n in range(rounds):
        Client(n).files("main")
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
