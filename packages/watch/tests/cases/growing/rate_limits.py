"""A limit of requests a day keeps an entry for each address that ever asked.

Thread: https://github.com/alisaifee/flask-limiter/issues/4
Looks like: a server grows with the addresses of its clients, by many small objects.
Fix: a storage that forgets (Redis), or a shorter window.
"""

import sys
import time

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter


def main(rounds: int) -> None:
    limiter = MovingWindowRateLimiter(MemoryStorage())
    daily = parse("100/day")
    for n in range(rounds):
        for client in range(3500):
            limiter.hit(daily, f"10.{n}.{client // 256}.{client % 256}")  # <- here
        time.sleep(0.08)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
