"""Reports rendered in two processes of pebble; each is replaced after thirty, as it forgets nothing."""

import sys
import time

from pebble import ProcessPool

fonts: dict[tuple[int, int], bytes] = {}


def render(number: int) -> int:
    for size in range(4):
        fonts[number, size] = bytes(120_000 + number % 100)
    return sum(len(font) for font in fonts.values()) % 7


def main(days: int) -> None:
    checks = 0
    with ProcessPool(max_workers=2, max_tasks=30) as pool:
        for day in range(days):
            futures = [pool.schedule(render, args=[day * 3 + report]) for report in range(3)]
            checks += sum(future.result() for future in futures)
            time.sleep(0.08)
    sys.stdout.write(f"checks: {checks}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 160)
