"""A watcher of a sensor that goes three readings back when a value looks odd, and reads again.

Thread: https://github.com/more-itertools/more-itertools/pull/365
Looks like: memory climbs with each reading, although the loop keeps one of them.
Cause: `seekable` keeps all that it has read, so that one can seek as far back as one likes.
Fix: `seekable(read_sensor(), maxlen=16)`.
"""

import random
import sys
import time

import numpy as np
from more_itertools import seekable


def read_sensor(maker):
    clock = 0
    while True:
        clock += 1
        yield {"clock": clock, "trace": maker.normal(size=4096)}  # <- here


def watch(rounds):
    readings = seekable(read_sensor(np.random.default_rng(5)))
    alarms = 0
    for _ in range(rounds):
        for _ in range(12):
            reading = next(readings)
            if abs(reading["trace"]).max() > 4.6 and reading["clock"] > 3:
                readings.relative_seek(-3)
                again = [next(readings) for _ in range(3)]
                alarms += all(abs(one["trace"]).max() > 3.0 for one in again)
        time.sleep(random.uniform(0.05, 0.1))
    return alarms


def main(rounds: int) -> None:
    print("alarms:", watch(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 190)
