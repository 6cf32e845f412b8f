"""Warnings of much rain, from forecast files that eccodes reads.

Thread: https://github.com/ecmwf/cfgrib/pull/428, https://github.com/fsspec/kerchunk/issues/378
Looks like: each file takes a megabyte or more, outside of Python; Python has integers only.
Cause: a message is a handle of C, and nothing releases those that are read.
Fix: `eccodes.codes_release(message)` in `read_steps` when its values are taken out.
"""

import sys
import tempfile
import time
from pathlib import Path

import eccodes
import numpy as np

rng = np.random.default_rng(21)


def deliver_forecast(path, steps=3):
    """The weather service leaves a file with some steps."""
    with path.open("wb") as file:
        for step in range(steps):
            message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
            eccodes.codes_set(message, "Ni", 240)
            eccodes.codes_set(message, "Nj", 160)
            eccodes.codes_set(message, "forecastTime", step)
            eccodes.codes_set_values(message, rng.gamma(0.4, 3.0, 240 * 160))
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)


def read_steps(path):
    with path.open("rb") as file:
        while True:
            message = eccodes.codes_grib_new_from_file(file)  # <- here
            if message is None:
                return
            step = eccodes.codes_get(message, "forecastTime")  # <- or here
            values = eccodes.codes_get_values(message)  # <- or here
            yield step, values


def main(forecasts: int) -> None:
    runs, warnings = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rain.grib2"
        for _ in range(forecasts):
            deliver_forecast(path)
            for step, values in read_steps(path):  # <- or here
                if np.quantile(values, 0.999) > 14.5:
                    warnings += 1
            runs += 1
            time.sleep(0.2)
    print(f"{runs} forecasts, {warnings} warnings")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 56)
