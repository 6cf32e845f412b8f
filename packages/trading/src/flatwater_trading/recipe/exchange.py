"""The numbers that a run and its workers exchange: rows of members, transitions, and what they are drawn by."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Members
from flatwater.state.tree import leaves
from flatwater_trading.training.rows import RowReplay
from flatwater_trading.training.state import ErlState

UPDATES_PER_GATHERING = 8
"""Updates after which members' rows are brought home: no more are computed again where a worker dies."""
PLACE = np.dtype(np.int64).itemsize


def largest_message(run: ErlState, members: int, shares: Sequence[Span]) -> int:
    """Return the bytes of the largest message, such as a worker is sent that takes another's place.

    Only sizes are read, so the run may be one of the meta device.

    Args:
        run: its state.
        members: members of the whole population.
        shares: those of each worker; without one there are no messages.
    """
    if not shares:
        return 0
    largest, replay = max(_share_row_bytes(run.learner, members, high - low) for low, high in shares), run.replay
    if replay is None or run.played is None:
        return largest
    played = sum(leaf.value.nbytes for leaf in leaves(run.played) if isinstance(leaf.value, Tensor))
    transition = PLACE + sum(column.nbytes // len(column) for _, column in transition_columns(replay))
    weights = sum(weight.nbytes for _, weight in draw_weights(replay))
    return max(largest, played, len(replay.row) * transition + weights)


def member_rows(learner: Members) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors with a row for each member, by path: [P, ...], or [P + 1, ...] with the champion's row last."""
    for leaf in leaves(learner):
        # What is derived follows from the rest, and every worker builds its own.
        if isinstance(leaf.value, Tensor) and not leaf.derived:
            yield leaf.path, leaf.value


def transition_columns(replay: RowReplay) -> Iterator[tuple[str, Tensor]]:
    """Yield the columns of a replay with an entry for each transition, by name."""
    for name in ("row", "following", "action", "reward", "discount", "member", "account"):
        if (column := getattr(replay, name)) is not None:
            yield name, column


def draw_weights(replay: RowReplay) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that say how likely each transition is to be drawn; none where all are alike."""
    if replay.priorities is not None:
        yield "mass", replay.priorities.mass
        yield "top", replay.priorities.top


def _share_row_bytes(learner: Members, members: int, share: int) -> int:
    """Count the bytes of a share's rows, the champion's with them."""
    return sum(leaf.nbytes // len(leaf) * (share + len(leaf) - members) for _, leaf in member_rows(learner))
