"""Dates in many formats: Babel keeps the last thousand patterns, in a cache with a bound."""

import sys
import time
from datetime import UTC, datetime

from babel.dates import format_datetime

DAY = datetime(2026, 4, 1, 13, 27, 53, tzinfo=UTC)


def label(n: int) -> str:
    return format_datetime(DAY, f"yyyy-MM-dd 'batch {n}' HH:mm:ss", locale="en")


def main(rounds: int) -> None:
    for n in range(rounds):
        for k in range(40):
            label(40 * n + k)
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)
