"""The 1,797 images of handwritten digits, 8 x 8, that are part of scikit-learn (UCI, Alpaydin & Kaynak 1998).

Its data file is read without importing scikit-learn, which would take 81 MB in every process.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from flatwater_watch.errors import ConfigError

MAXIMUM_BRIGHTNESS = 16
"""Largest brightness in the file."""
TRAINING, VALIDATION = 1433, 200
"""Number of images in each part: enough to tell accuracies that are 1 % apart."""
_SHUFFLE_SEED = 20261121
"""Seed of the split, so that each part has the same images in every run."""


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training images [1433, 8, 8], 0 to 1, and their classes, then validation images and their classes."""
    images, labels = _read_file()
    # Its own generator: the split does not depend on the run's seed.
    order = np.random.default_rng(_SHUFFLE_SEED).permutation(len(images))
    train, valid = order[:TRAINING], order[TRAINING : TRAINING + VALIDATION]
    pixels = images.reshape(-1, 8, 8) / MAXIMUM_BRIGHTNESS
    return pixels[train], labels[train], pixels[valid], labels[valid]


def _read_file() -> tuple[np.ndarray, np.ndarray]:
    """Return brightnesses [1797, 64], 0 to 16, and classes [1797], from the rows of scikit-learn's file.

    Raises:
        ConfigError: scikit-learn is not installed.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError(
            "task = 'digits': the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        )
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)
