"""The target star, cut out of each exposure of a night, whose brightness is followed.

Thread: https://github.com/astropy/astropy/issues/7404, https://github.com/astropy/astropy/issues/9096
Looks like: a cutout of forty pixels takes as much memory as its exposure, after the file was closed.
Cause: a cutout is a view of the file that astropy has mapped, and keeps all of it mapped.
Fix: `sky[330:370, 330:370].copy()`, or `fits.open(path, memmap=False)` with that copy.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from astropy.io import fits

SIZE = 700


def expose(path: Path, number: int) -> None:
    draw = np.random.default_rng(number)
    sky = draw.normal(120, 9, (SIZE, SIZE)).astype(np.float32)
    sky[340:360, 340:360] += 400 + 30 * np.sin(number / 5)
    fits.PrimaryHDU(sky).writeto(path)


class Night:
    def __init__(self):
        self.cutouts = []
        self.background = []

    def add(self, path: Path) -> None:
        with fits.open(path) as exposure:  # <- or here
            sky = exposure[0].data  # <- or here
            self.background.append(float(sky.mean()))  # <- or here
            self.cutouts.append(sky[330:370, 330:370])  # <- here

    def brightness(self) -> float:
        return float(self.cutouts[-1].mean()) - self.background[-1]


def main(exposures: int) -> None:
    night = Night()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(exposures):
            path = Path(folder) / f"exposure{number:04}.fits"
            expose(path, number)
            night.add(path)
            if number % 10 == 0:
                print(f"exposure {number}: {night.brightness():.1f}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 55)
