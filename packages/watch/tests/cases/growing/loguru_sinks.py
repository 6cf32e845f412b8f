"""A sink for each job, added to the one logger and never removed.

Thread: https://github.com/Delgan/loguru/issues/461
Looks like: each message takes longer, and the pages of finished jobs stay.
Fix: `logger.remove(number)` when the job ends.
"""

import sys
import time

from loguru import logger


class Job:
    def __init__(self, n: int) -> None:
        self.pages = [f"job {n}, page {page}: " + "-" * 400 for page in range(4000)]  # <- here
        self.number = logger.add(self.note, level="CRITICAL")

    def note(self, message: str) -> None:
        self.pages.append(message)


def main(rounds: int) -> None:
    logger.remove()
    for n in range(rounds):
        Job(n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
