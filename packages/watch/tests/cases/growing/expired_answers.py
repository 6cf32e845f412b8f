"""A region of dogpile.cache in memory: what has expired is made again by its key, and never taken out.

Thread: https://github.com/rucio/rucio/issues/5152
Looks like: a cache of a second grows for days, as its keys have the time in them.
Fix: a backend that takes out (memcached), or a `cache_dict` with a bound.
"""

import sys
import time

from dogpile.cache import make_region

REGION = make_region().configure("dogpile.cache.memory", expiration_time=1)


@REGION.cache_on_arguments()
def answer(question: str) -> bytes:
    return question.encode() * 60_000  # <- here


def main(rounds: int) -> None:
    for n in range(rounds):
        for k in range(2):
            answer(f"{n:04}-{k}")
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
