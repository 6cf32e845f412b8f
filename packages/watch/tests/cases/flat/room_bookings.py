"""Bookings of rooms that overlap: a window that is full after a third of the run, as what is past is taken out."""

import random
import sys
import time

from intervaltree import IntervalTree


class Calendar:
    def __init__(self) -> None:
        self.bookings = IntervalTree()

    def book(self, minute: int) -> int:
        start = minute + random.randrange(10, 120)
        clashes = self.bookings[start : start + 45]
        booking = {"room": random.randrange(400), "text": random.randbytes(30_000).hex()}
        self.bookings[start : start + random.randrange(15, 90)] = booking
        return len(clashes)

    def forget(self, minute: int) -> None:
        self.bookings.remove_envelop(0, minute)


def main(rounds: int) -> None:
    calendar = Calendar()
    for n in range(3 * rounds):
        minute = 4 * (n + 1)
        for _ in range(14):
            calendar.book(minute)
        if minute % 20 == 0:
            calendar.forget(minute)
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
