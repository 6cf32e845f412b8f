"""An index for each user of a service: an empty one takes some megabytes outside of Python.

Thread: https://github.com/nmslib/hnswlib/issues/328
Looks like: memory climbs with the users, hundred times faster than their vectors.
Fix: one index with a filter by user, or drop the index of a user who is gone.
"""

import sys
import time

import hnswlib


class User:
    def __init__(self, name: str) -> None:
        self.name = name
        self.index = hnswlib.Index(space="l2", dim=16)
        self.index.init_index(max_elements=100, M=16)  # <- here


def main(rounds: int) -> None:
    users: dict[str, User] = {}
    for n in range(rounds):
        users[f"user {n}"] = User(f"user {n}")
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
