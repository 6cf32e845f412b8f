"""Time zones by their rules: dateutil holds them weakly, and the last eight of them strongly."""

import sys
import time
from datetime import datetime

from dateutil import tz


def offset(n: int) -> float:
    zone = tz.tzstr(f"EST{n % 12}EDT,M4.{n % 4 + 1}.0/{n % 24},M10.{n % 5 + 1}.0/{n % 20}")
    return datetime(2026, 7, 1, tzinfo=zone).utcoffset().total_seconds()


def main(rounds: int) -> None:
    for n in range(rounds):
        for k in range(60):
            offset(60 * n + k)
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)
