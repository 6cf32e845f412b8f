"""Named random generators: one for each consumer, all leaves of the state tree, all derived from one seed."""

import hashlib

import torch


def generator(seed: int, name: str, device: torch.device) -> torch.Generator:
    """A generator of its own for `name`, so that a new consumer never shifts the numbers of another.

    Args:
        seed: the run's seed.
        name: the consumer, such as `replay.draw`.
        device: where the numbers are drawn; on `meta` (a plan) a CPU generator stands in.
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    on = torch.device("cpu") if device.type == "meta" else device
    return torch.Generator(device=on).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
