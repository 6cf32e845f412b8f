"""The mean rain of the newest radar files, eight of which stay open in netCDF4."""

import random
import shutil
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import netCDF4
import numpy as np


def write_radar(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("minute", 12), ("y", 200), ("x", 200)):
            file.createDimension(name, length)
        rain = file.createVariable("rain", "f4", ("minute", "y", "x"), zlib=True, complevel=1, chunksizes=(2, 200, 200))
        rain[:] = np.random.default_rng(1).gamma(0.4, 2.0, (12, 200, 200)).round(2)


class Radar:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open_files: OrderedDict[int, netCDF4.Dataset] = OrderedDict()

    def file_of(self, number: int) -> netCDF4.Dataset:
        if number not in self.open_files:
            path = self.folder / f"radar{number:04}.nc"
            shutil.copy(self.folder / "first.nc", path)
            self.open_files[number] = netCDF4.Dataset(path)
            if len(self.open_files) > 8:
                _, oldest = self.open_files.popitem(last=False)
                oldest.close()
        return self.open_files[number]

    def mean_rain(self, number: int) -> float:
        return float(self.file_of(number)["rain"][:, 20:180, 20:180].mean())


def main(requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        radar = Radar(Path(folder))
        write_radar(radar.folder / "first.nc")
        for request in range(requests):
            rain = radar.mean_rain(max(0, request // 3 - random.randrange(3)))
            if request % 20 == 0:
                sys.stdout.write(f"request {request}: {rain:.2f} mm\n")
            time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 105)
