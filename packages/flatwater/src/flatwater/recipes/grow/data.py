"""Fingerprints of the data of a run of growing networks, here and in its workers."""

import hashlib

from flatwater.envs.growing.task import Task
from flatwater.sources import text_hashes
from flatwater.trainers.grow.config import GrowConfig


def fingerprints(config: GrowConfig, task: Task) -> tuple[str, str]:
    """Return the SHA-256 of the images and their order, and hashes of the text of the user's host, or nothing."""
    parts = (task.train_images, task.train_labels, task.valid_images, task.valid_labels)
    images = hashlib.sha256(b"".join(part.cpu().numpy().tobytes() for part in parts)).hexdigest()
    return images, "" if config.host is None else ",".join(text_hashes(config.host.partition(":")[0]).values())
