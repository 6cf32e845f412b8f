"""Volumes of a study, standardised one after the other from files that stay on disk.

Thread: https://github.com/dipy/dipy/pull/2029, https://github.com/nipy/nibabel/issues/208
Looks like: memory climbs with each image that was read once, though the list holds only opened files.
Cause: `get_fdata()` keeps the array of doubles in the image.
Fix: `get_fdata(caching="unchanged")`, `image.uncache()`, or `np.asarray(image.dataobj)`.
"""

import sys
import tempfile
import time
from pathlib import Path

import nibabel as nib
import numpy as np


def record(folder: Path, count: int) -> None:
    maker = np.random.default_rng(1)
    for n in range(count):
        volume = maker.integers(0, 900, (48, 48, 40), dtype="int16")
        nib.save(nib.Nifti1Image(volume, np.eye(4)), folder / f"subject-{n:03}.nii.gz")


class Study:
    """The images of a folder."""

    def __init__(self, folder: Path):
        self.images = [nib.load(path) for path in sorted(folder.glob("*.nii.gz"))]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> np.ndarray:
        volume = self.images[number].get_fdata()  # <- here
        return ((volume - volume.mean()) / volume.std()).astype("float32")


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder), count)
        study = Study(Path(folder))
        peaks = []
        for number in range(len(study)):
            peaks.append(float(study[number].max()))
            time.sleep(0.08)
        print(f"{np.mean(peaks):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 160)
