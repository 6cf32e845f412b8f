"""Results of a graph that are persisted, and kept under the name of the day.

Thread: https://github.com/dask/distributed/issues/1209
Looks like: memory climbs with the days.
Fix: drop the day's array before the next one.
"""

import sys
import time

import dask
import dask.array as da

persisted = {}


def main(rounds: int) -> None:
    dask.config.set(scheduler="synchronous")
    for day in range(rounds):
        persisted[day] = da.linspace(0.0, day + 1.0, 300_000, chunks=100_000).persist()  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
