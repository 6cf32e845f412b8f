"""Tiles are dealt to workers in order. Any deal gives the same run."""


def shares(tiles: int, workers: int) -> list[tuple[int, int]]:
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
