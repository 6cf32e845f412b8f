"""The numbers that a run and its workers exchange: rows of members, transitions, and their priorities."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Members
from flatwater.state.tree import leaves
from flatwater_trading.training.row_replay import RowReplay
from flatwater_trading.training.state import ErlState

UPDATES_PER_GATHERING = 8
"""Updates after which members' rows are fetched from workers: if a worker dies, at most these are computed again."""
POSITION_BYTES = np.dtype(np.int64).itemsize
"""Bytes of a transition's position in the ring."""


def largest_message(run: ErlState, members: int, shares: Sequence[Span]) -> int:
    """Return the bytes of the largest message between a run and its workers.

    The candidates are the rows of a worker's members, the transitions of members that play together and, for a worker
    that replaces a dead one, the whole replay with its priorities. Only sizes are read, so the run may be on the meta
    device.

    Args:
        run: state of the run.
        members: number of members of the whole population.
        shares: members [low, high) of each worker; empty without workers, and then there are no messages.
    """
    if not shares:
        return 0
    largest = max(_share_row_bytes(run.learner, members, high - low) for low, high in shares)
    replay = run.replay
    # Traders without a replay exchange the rows of members alone.
    if replay is None or run.played is None:
        return largest
    # Worst case of the second and the third kind: all that one tile of members plays, and the whole ring.
    played_bytes = sum(leaf.value.nbytes for leaf in leaves(run.played) if isinstance(leaf.value, Tensor))
    transition_bytes = POSITION_BYTES + sum(column.nbytes // len(column) for _, column in transition_columns(replay))
    priority_bytes = sum(tensor.nbytes for _, tensor in priority_tensors(replay))
    whole_replay_bytes = len(replay.row) * transition_bytes + priority_bytes
    return max(largest, played_bytes, whole_replay_bytes)


def member_rows(learner: Members) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors with a row for each member, by path: [P, ...], or [P + 1, ...] with the champion's row last."""
    for leaf in leaves(learner):
        # Derived tensors are computed from the others, by every worker for itself.
        if isinstance(leaf.value, Tensor) and not leaf.derived:
            yield leaf.path, leaf.value


def transition_columns(replay: RowReplay) -> Iterator[tuple[str, Tensor]]:
    """Yield the replay's columns with an entry for each transition, by name; without those that it does not keep."""
    for name in ("row", "following", "action", "reward", "discount", "member", "account"):
        if (column := getattr(replay, name)) is not None:
            yield name, column


def priority_tensors(replay: RowReplay) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of the priorities by name: `mass` of each transition and `top`, the largest mass so far.

    Yield nothing if all transitions are equally likely to be drawn.
    """
    if replay.priorities is not None:
        yield "mass", replay.priorities.mass
        yield "top", replay.priorities.top


def _share_row_bytes(learner: Members, members: int, share: int) -> int:
    """Count the bytes of the rows of `share` members, and of the champion's row where there is one."""
    # `len(leaf) - members` is 1 for a tensor with the champion's row, else 0.
    return sum(leaf.nbytes // len(leaf) * (share + len(leaf) - members) for _, leaf in member_rows(learner))
