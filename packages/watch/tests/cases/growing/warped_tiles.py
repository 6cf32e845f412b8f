"""A service that turns arrays into rasters in memory, and hands on the open dataset.

Thread: https://github.com/dlr-eoc/ukis-pysat/issues/62
Looks like: memory climbs by the size of the raster with each image, far outside of Python's heap.
Cause: the memory file is opened a second time and is never closed, so GDAL's /vsimem keeps its bytes.
Fix: `with MemoryFile() as memory, memory.open() as dataset:`, or close both.
"""

import sys
import time

import numpy as np
import rasterio
from rasterio.io import MemoryFile
from rasterio.transform import from_origin

PROFILE = {
    "driver": "GTiff",
    "dtype": "int16",
    "count": 1,
    "width": 512,
    "height": 512,
    "crs": "EPSG:32612",
    "transform": from_origin(358485.0, 4265115.0, 10.0, 10.0),
}


class Image:
    """An array with its place on earth."""

    def __init__(self, values):
        self.dataset = self._as_dataset(values)

    def _as_dataset(self, values):
        memory = MemoryFile()
        with memory.open(**PROFILE) as writer:
            writer.write(values, 1)  # <- here
        return memory.open()

    def mean(self) -> float:
        return float(self.dataset.read(1).mean())


SERVED = {}


def main(rounds: int) -> None:
    maker = np.random.default_rng(4)
    for n in range(rounds):
        image = Image(maker.integers(0, 4000, (512, 512), dtype="int16"))
        SERVED[f"tile-{n}"] = image.mean()
        time.sleep(0.06)
    print(rasterio.__version__, len(SERVED))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 220)
