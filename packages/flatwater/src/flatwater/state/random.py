"""Named random generators, all derived from one seed.

A generator that is used over many rounds is a leaf of the state tree. A stream is a generator for one place, such as a
round, an update or a group of members, whose name is a part of the seed: it needs no saved state, and gives the same
numbers in any order of computation, on any worker.
"""

import hashlib

import torch


def generator(seed: int, name: str, device: torch.device) -> torch.Generator:
    """Return a generator whose numbers follow from the seed and its consumer's name alone.

    Args:
        seed: the run's seed.
        name: the consumer, such as `replay.draw`.
        device: device of the draws; for `meta` (a plan) it is a CPU generator.
    """
    # Not `hash`, which differs between processes. The first 8 bytes are shifted by one bit to fit int64.
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator_device = torch.device("cpu") if device.type == "meta" else device
    return torch.Generator(device=generator_device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def stream(seed: int, consumer: str, *place: int, device: torch.device) -> torch.Generator:
    """Return the generator of a consumer at one place: a round, an update, or the first member of a group.

    Args:
        seed: the run's seed.
        consumer: name of the consumer.
        place: numbers that no two draws of this consumer share.
        device: device of the draws; for `meta` it is a CPU generator.
    """
    return generator(seed, f"{consumer} {'.'.join(map(str, place))}", device)
