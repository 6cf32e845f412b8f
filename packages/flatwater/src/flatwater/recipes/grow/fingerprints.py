"""Hashes of a run's task and of the user's host, by which a worker checks that it has the same."""

import hashlib

from flatwater.envs.growing.task import Task
from flatwater.sources import text_hashes
from flatwater.trainers.grow.config import GrowConfig


def fingerprints(config: GrowConfig, task: Task) -> tuple[str, str]:
    """Return the SHA-256 of images and labels in their order, and hashes of the user's host's text ("" without one)."""
    tensors = (task.train_images, task.train_labels, task.valid_images, task.valid_labels)
    image_hash = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in tensors)).hexdigest()
    if config.host is None:
        return image_hash, ""
    module = config.host.partition(":")[0]
    return image_hash, ",".join(text_hashes(module).values())
