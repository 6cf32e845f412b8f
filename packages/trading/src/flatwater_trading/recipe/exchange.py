"""Bytes of numbers that a run and its workers exchange, by a formula of sizes alone.

P members in T tiles on N workers, S slices of D days, U updates, K instruments, C transitions in the replay. A
generation in which nothing is lost moves

    rows          (1 + ceil(U / gathered)) * (P + N champions) rows      out once, home every few updates
    transitions   T tiles * D S * (13 + 8 K) home, P S D * (26 + 8 K) to each worker
    priorities    of C transitions, home with the rows and out to each worker; U errors of P members, home and to each
    results       of the slices of each member, and of the champion beside each tile

and some hundred bytes a message around them. With an account, 12 K more for each transition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Members
from flatwater.state.tree import leaves
from flatwater_trading.training.rows import RowReplay
from flatwater_trading.training.setup import ErlSetup
from flatwater_trading.training.state import TRAINING_MEASURES, VALIDATION_MEASURES, ErlState

UPDATES_PER_GATHERING = 8
"""Updates after which members' rows are brought home: no more are computed again where a worker dies."""
PLACE, NUMBER = np.dtype(np.int64).itemsize, np.dtype(np.float32).itemsize


@dataclass(frozen=True)
class WireBytes:
    """The bytes on the wire between a run and its workers."""

    generation: int
    """Bytes of a generation in which all updates are due and nothing is lost, both ways."""
    largest: int
    """Bytes of the largest message: what a worker is sent that takes another's place."""


def measure_wire_bytes(setup: ErlSetup, run: ErlState, shares: Sequence[Span]) -> WireBytes:
    """Compute the bytes on the wire; only sizes are read, so the run may be one of the meta device.

    Args:
        setup: setup of the whole population.
        run: its state.
        shares: the members of each worker.
    """
    config, workers, tiles = setup.config, len(shares), len(setup.tiles)
    members, updates, slices = config.population.size, config.learner.own.updates, config.evaluation
    gathers = -(-updates // UPDATES_PER_GATHERING)
    rows = [_share_row_bytes(run.learner, members, high - low) for low, high in shares]
    # Fitness and the columns of the training slices; then value and activity, the columns of the validation slices and
    # the attention.
    results = NUMBER * members * (1 + len(TRAINING_MEASURES) * slices.train_slices)
    results += (
        NUMBER
        * (members + tiles)
        * (2 + len(VALIDATION_MEASURES) * slices.validation_slices + len(run.market.observations))
    )
    total, largest, replay = (1 + gathers) * sum(rows) + results, max(rows), run.replay
    if replay is not None and run.played is not None:
        played = sum(leaf.value.nbytes for leaf in leaves(run.played) if isinstance(leaf.value, Tensor))
        transition_bytes = PLACE + sum(column.nbytes // len(column) for _, column in transition_columns(replay))
        weights = sum(weight.nbytes for _, weight in draw_weights(replay))
        # At most the whole ring: what was written over within one generation is not sent.
        appended = members * slices.train_slices * config.env.episode.days
        total += (
            tiles * played + workers * (min(appended, len(replay.row)) * transition_bytes + weights) + gathers * weights
        )
        errors_drawn = members * config.learner.micro_batches * config.learner.own.batch_size if weights else 0
        total += updates * (1 + workers) * NUMBER * errors_drawn
        largest = max(largest, played, len(replay.row) * transition_bytes + weights)
    return WireBytes(total, largest)


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
