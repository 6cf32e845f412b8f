"""Readings of instruments converted by pint, whose registry learns each unit the first time that it comes."""

import itertools
import random
import sys
import time

import numpy as np
import pint

LENGTHS = ["mm", "cm", "m", "km", "inch", "foot", "yard", "mile", "um", "nm"]
TIMES = ["ms", "s", "minute", "hour", "day", "us"]
MASSES = ["mg", "g", "kg", "pound", "ounce", "tonne"]
UNITS = [f"{mass} * {length} / {time_}**2" for mass, length, time_ in itertools.product(MASSES, LENGTHS, TIMES)]
registry = pint.UnitRegistry()


def main(hours: int) -> None:
    random.seed(11)
    maker = np.random.default_rng(11)
    total = 0.0
    for hour in range(hours):
        known = UNITS if hour > 60 else UNITS[: 6 * (hour + 1)]
        for unit in random.sample(known, 5):
            reading = registry.Quantity(maker.random(20_000), unit)
            total += reading.to("newton").magnitude.sum()
        time.sleep(0.06)
    sys.stdout.write(f"sum of forces {total}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 220)
