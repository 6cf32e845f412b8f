"""The 1,797 images of handwritten digits, 8 x 8, that are part of scikit-learn (UCI, Alpaydin & Kaynak 1998)."""

import numpy as np
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types

from flatwater.envs.growing.task import Task, build_task

BRIGHTEST = 16


def load_task(device: torch.device) -> Task:
    """The digits as the hosts' task, on a device; `meta` makes a plan."""
    images, labels = load_digits(return_X_y=True)
    return build_task(np.asarray(images) / BRIGHTEST, np.asarray(labels), device)
