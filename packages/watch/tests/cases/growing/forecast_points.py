"""Requests for the temperature curve of a town, answered from the newest forecast of its region.

Thread: https://github.com/Unidata/netcdf4-python/issues/1334, https://github.com/Unidata/netcdf-c/issues/2913
Looks like: memory climbs with each model run, far more than the curves that are read.
Cause: datasets stay open, each with its cache of chunks in the C library.
Fix: `with netCDF4.Dataset(path) as file`, or `close()` and remove the runs that are over.
"""

import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import netCDF4
import numpy as np

HOURS = 24


def write_model_run(path: Path) -> None:
    draw = np.random.default_rng(2)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("hour", HOURS)
        file.createDimension("y", 240)
        file.createDimension("x", 240)
        field = file.createVariable("t2m", "f4", ("hour", "y", "x"), zlib=True, complevel=1, chunksizes=(4, 240, 240))
        field[:] = draw.normal(285, 6, (HOURS, 240, 240)).round(1)


class Forecasts:
    def __init__(self, folder: Path):
        self.folder = folder
        self.files = {}

    def download(self, region: str, run: int) -> Path:
        path = self.folder / f"{region}_{run:03}.nc"
        shutil.copy(self.folder / "model.nc", path)
        return path

    def file_of(self, region: str, run: int) -> netCDF4.Dataset:
        if (region, run) not in self.files:  # <- or here
            self.files[region, run] = netCDF4.Dataset(self.download(region, run))  # <- here
        return self.files[region, run]  # <- or here

    def curve(self, region: str, run: int, y: int, x: int) -> np.ndarray:
        return self.file_of(region, run)["t2m"][:, y, x]  # <- or here


def main(requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        forecasts = Forecasts(Path(folder))
        write_model_run(forecasts.folder / "model.nc")
        for number in range(requests):
            run = number // 6
            region = random.choice(["north", "south", "coast"])
            curve = forecasts.curve(region, run, random.randrange(240), random.randrange(240))
            if number % 20 == 0:
                print(f"run {run} {region}: {curve.mean() - 273.15:.1f} degrees", flush=True)
            time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 76)
