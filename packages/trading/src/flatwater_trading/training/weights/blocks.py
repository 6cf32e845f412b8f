"""Blocks of training days that members leave out, and the stretches of days that each member may learn from."""

from itertools import pairwise

from flatwater_trading.panel.splits import Days


def cut_blocks(train: Days, members: int) -> tuple[Days, ...]:
    """Cut the training days into as many blocks as there are members, equally long up to one day.

    Member n does not learn from block n, so it can be judged there.
    """
    edges = (train.first + number * len(train) // members for number in range(members + 1))
    return tuple(Days(first, stop) for first, stop in pairwise(edges))


def longest_stretch(train: Days, block: Days) -> int:
    """Return the most consecutive days that a member can learn from at a time, if it leaves out this block."""
    # Less one, as the return of its last day needs a close after it, outside of the block and on a training day.
    return max(block.first - train.first, train.stop - block.stop) - 1


def stretch_starts(train: Days, block: Days, days: int) -> tuple[range, range]:
    """Return the rows on which a member's stretches may begin: before the block, and after it; one may be empty.

    No stretch has a day of the block, the return into the block, or the return into the first day after the training.
    """
    # The last day's return needs the close after it, so a stretch from row s needs s + days < block.first, or
    # s + days < train.stop.
    return range(train.first, block.first - days), range(block.stop, train.stop - days)
