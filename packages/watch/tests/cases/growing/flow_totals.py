"""The water that flows through a weir, summed with the error of each gauge reading.

Thread: https://github.com/lmfit/uncertainties/issues/30, https://github.com/lmfit/uncertainties/issues/53
Looks like: one number takes more memory with each reading that is added to it.
Cause: the error of a sum is worked out when it is asked for, so the sum holds every term.
Fix: a new number of what is known, `ufloat(volume.n, volume.s)`, after each sum.
"""

import sys

import numpy as np
from uncertainties import ufloat

INTERVAL = 10.0


class Gauge:
    def __init__(self, seed: int):
        self.draw = np.random.default_rng(seed)
        self.level = 0.8

    def reading(self):
        samples = self.level + self.draw.normal(0, 0.02, 6400)
        self.level = max(0.2, self.level + self.draw.normal(0, 0.005))
        return ufloat(samples.mean(), samples.std() / 80)  # <- or here


class Weir:
    def __init__(self, width: float):
        self.width = ufloat(width, 0.01)
        self.volume = ufloat(0.0, 0.5)
        self.readings = 0

    def add(self, level) -> None:
        flow = 1.84 * self.width * level * level  # <- or here
        self.volume = self.volume + flow * INTERVAL  # <- here
        self.readings += 1


def main(readings: int) -> None:
    gauge = Gauge(5)
    weir = Weir(3.2)
    for _ in range(readings):
        weir.add(gauge.reading())
        if weir.readings % 5000 == 0:
            print(f"{weir.readings} readings, {weir.volume.nominal_value:.0f} m3", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 82000)
