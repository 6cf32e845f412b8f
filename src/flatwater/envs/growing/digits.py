"""The 1,797 images of handwritten digits, 8 x 8, that are part of scikit-learn (UCI, Alpaydin & Kaynak 1998)."""

import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types

BRIGHTEST = 16
TRAINING, VALIDATION = 1433, 200
"""Images in each part: enough to tell accuracies 1 % apart."""
_SHUFFLE = 20261121
"""Which images are in which part, the same in every run."""


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and classes to train on, images and classes to validate with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(_SHUFFLE).permutation(len(images))
    train, valid = order[:TRAINING], order[TRAINING : TRAINING + VALIDATION]
    shown = np.asarray(images).reshape(-1, 8, 8) / BRIGHTEST
    return shown[train], np.asarray(labels)[train], shown[valid], np.asarray(labels)[valid]
