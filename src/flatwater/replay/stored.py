"""Windows stored whole, two with each transition: what a replay of row numbers saves, kept to be measured.

This is how a run comes to hold 24 MB a transition where 900 bytes are enough. The numbers of a run are the same, bit
for bit. Unlike everything else that a run holds, the pages of these blocks are touched as the replay fills: resident
memory grows for as long as that takes, which is the growth that people take for a leak.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.replay.rows import RowReplay, held, windows
from flatwater.replay.windows import StoredWindows

_REFILLED = 256
"""Transitions whose windows are gathered at a time after a restore."""


def store_(
    stored: StoredWindows,
    observations: Float[Tensor, "N T F"],
    *,
    at: Int[Tensor, "B"],
    row: Int[Tensor, "B"],
    terminated: Bool[Tensor, "B"],
) -> None:
    """Copy the windows of transitions that were appended at ring positions `at`."""
    context = stored.seen.shape[2]
    stored.seen.index_copy_(0, at, windows(observations, row, context))
    stored.following.index_copy_(0, at, windows(observations, torch.where(terminated, row, row + 1), context))


def refill_(replay: RowReplay, observations: Float[Tensor, "N T F"]) -> None:
    """Copy the windows of all transitions held: they are not part of a checkpoint, the row numbers are."""
    if replay.windows is None:
        return
    context = replay.windows.seen.shape[2]
    for low in range(0, held(replay), _REFILLED):
        span = slice(low, min(low + _REFILLED, held(replay)))
        following = replay.row[replay.following[span].long()]
        replay.windows.seen[span] = windows(observations, replay.row[span].long(), context)
        replay.windows.following[span] = windows(observations, following.long(), context)
