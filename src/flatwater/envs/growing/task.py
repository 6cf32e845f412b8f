"""What the hosts learn: images, split once and for all into training and validation."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.state.tree import state

TRAINING, VALIDATION = 1433, 200
"""Images in each part: enough to validate with to tell accuracies 1 % apart."""
_SHUFFLE = 20261121
"""Which images are in which part, the same in every run."""


@state
class Task:
    """Images [.., 64], pixels 0 to 1, and their classes 0 to 9."""

    train_images: Float[Tensor, "N 64"]
    train_labels: Int[Tensor, " N"]
    valid_images: Float[Tensor, "V 64"]
    valid_labels: Int[Tensor, " V"]


def build_task(images: np.ndarray, labels: np.ndarray, device: torch.device) -> Task:
    """Split at random, but always alike.

    Args:
        images: [1797, 64], 0 to 1.
        labels: [1797].
        device: where they will lie; `meta` makes a plan.
    """
    order = np.random.default_rng(_SHUFFLE).permutation(len(images))
    train, valid = order[:TRAINING], order[TRAINING : TRAINING + VALIDATION]

    def put(rows: np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.tensor(rows, dtype=dtype, device=device)

    return Task(
        train_images=put(images[train], torch.float32),
        train_labels=put(labels[train], torch.int64),
        valid_images=put(images[valid], torch.float32),
        valid_labels=put(labels[valid], torch.int64),
    )
