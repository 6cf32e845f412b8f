"""Named random generators, all derived from one seed.

A generator that is drawn from again and again is a leaf of the state tree. A stream has no state to keep: its name says
the round, the update or the group of members that it belongs to, so its numbers are the same in whichever order, and on
whichever worker, things are computed.
"""

import hashlib

import torch


def generator(seed: int, name: str, device: torch.device) -> torch.Generator:
    """Return a generator of its own for `name`, so that a new consumer never shifts the numbers of another.

    Args:
        seed: the run's seed.
        name: the consumer, such as `replay.draw`.
        device: device of the draws; on `meta` (a plan) a CPU generator stands in.
    """
    # Not `hash`, whose numbers differ from process to process. The number of its first 8 bytes is halved to fit int64.
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    home = torch.device("cpu") if device.type == "meta" else device
    return torch.Generator(device=home).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def stream(seed: int, consumer: str, *place: int, device: torch.device) -> torch.Generator:
    """Return the generator of a consumer at one place: a round, an update, a first member.

    Args:
        seed: the run's seed.
        consumer: name of the consumer.
        place: numbers that no two draws of this consumer share.
        device: device of the draws; `meta` as for `generator`.
    """
    return generator(seed, f"{consumer} {'.'.join(map(str, place))}", device)
