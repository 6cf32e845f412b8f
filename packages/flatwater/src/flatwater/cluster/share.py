"""A run is computed in parts of a fixed size, tiles of members or groups of environments, which workers share.

Any division gives the same run, bit for bit: the parts do not depend on the number of workers.
"""

Span = tuple[int, int]
"""First index, and the index after the last."""


def split_spans(count: int, size: int) -> list[Span]:
    """Return consecutive spans of `size`; the last is shorter where they do not come out even."""
    return [(low, min(low + size, count)) for low in range(0, count, size)]


def worker_shares(tiles: int, workers: int) -> list[tuple[int, int]]:
    """Return consecutive tiles [low, high) of each worker, as even as can be; no more workers than tiles.

    Args:
        tiles: number of tiles.
        workers: number of workers that is asked for.
    """
    count = max(1, min(tiles, workers))
    even, remainder = divmod(tiles, count)
    shares, low = [], 0
    for number in range(count):
        high = low + even + (number < remainder)
        shares.append((low, high))
        low = high
    return shares
