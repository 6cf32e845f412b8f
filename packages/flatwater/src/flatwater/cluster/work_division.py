"""Divides a run's work among workers, in parts of a fixed size: tiles of members, or groups of environments.

Any division gives the same run, bit for bit, as the parts do not depend on the number of workers.
"""

Span = tuple[int, int]
"""First index, and the index after the last."""


def split_spans(count: int, size: int) -> list[Span]:
    """Return consecutive spans of `size` that cover 0 to `count`; the last may be shorter."""
    return [(low, min(low + size, count)) for low in range(0, count, size)]


def worker_shares(tiles: int, workers: int) -> list[tuple[int, int]]:
    """Return the tiles [low, high) of each worker, divided as evenly as possible; no more workers than tiles.

    Args:
        tiles: number of tiles.
        workers: requested number of workers.
    """
    worker_count = max(1, min(tiles, workers))
    tiles_per_worker, remainder = divmod(tiles, worker_count)
    shares, low = [], 0
    for number in range(worker_count):
        # The first workers have one tile more each, until the remainder is used up.
        high = low + tiles_per_worker + (number < remainder)
        shares.append((low, high))
        low = high
    return shares
