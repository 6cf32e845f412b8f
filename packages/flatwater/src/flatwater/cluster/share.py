"""A run is computed in parts of a fixed size, tiles of members or groups of environments, which are dealt to workers.

Any deal gives the same run.
"""

Span = tuple[int, int]
"""From the first to before the last."""


def split_spans(count: int, size: int) -> list[Span]:
    """Consecutive spans of `size`, the last one shorter where they do not come out even."""
    return [(low, min(low + size, count)) for low in range(0, count, size)]


def worker_shares(tiles: int, workers: int) -> list[tuple[int, int]]:
    """Consecutive tiles [low, high) of each worker, as even as can be; no more workers than tiles.

    Args:
        tiles: their number.
        workers: the number that is asked for.
    """
    count = max(1, min(tiles, workers))
    even, more = divmod(tiles, count)
    found, low = [], 0
    for number in range(count):
        high = low + even + (number < more)
        found.append((low, high))
        low = high
    return found
