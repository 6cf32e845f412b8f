"""The learning phase: from the outcomes of the training days, or from transitions that members have played.

Transitions are drawn by number, and their windows are gathered from the panel.

A tile is a group of members that are computed at once; a group is a part of a tile whose observations of one
micro-batch fit into memory together. `setup.share` are the members that this process computes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.cluster.work_division import split_spans
from flatwater.replay.batch import Batch
from flatwater.replay.priority import set_priorities_
from flatwater.state.random import stream
from flatwater_trading.policy.trader import MarketObs
from flatwater_trading.training.lessons import PurchaseOutcomes, draw_lessons
from flatwater_trading.training.row_replay import RowReplay, draw, drawable_count, gather_windows
from flatwater_trading.training.setup import ErlSetup
from flatwater_trading.training.state import ErlState, WindowBuffers


def member_groups(setup: ErlSetup, run: ErlState) -> list[Span]:
    """Split the members of this process into groups that learn together, one group after the other.

    First into tiles, the members that are computed at once; then each tile into groups [low, high) of members whose
    observations of one micro-batch fit into memory together.
    """
    group_size, groups = setup.members_at_once(run.market), list[Span]()
    for low, high in split_spans(setup.members, setup.tile):
        # Spans of a tile count from its first member, `low`.
        groups += [(low + first, low + stop) for first, stop in split_spans(high - low, group_size)]
    return groups


class PopulationLearning(Protocol):
    """Updates of all members that this process computes, each from its own draw, bound to the run's state."""

    def update_(self) -> Float[Tensor, "P G B"] | None:
        """Do the next update. Returns |TD error| of each member's transitions; None if no values are estimated."""

    def update_priorities_(self, td_error: Float[Tensor, "P G B"] | None) -> None:
        """Set the priorities of the drawn transitions from their errors, for the whole population."""


def make_learning(setup: ErlSetup, run: ErlState) -> PopulationLearning:
    """Make the learning of a run, from the outcomes of the training days or from transitions."""
    if run.outcomes is not None:
        return HindsightLearning(setup, run, run.outcomes)
    assert run.replay is not None  # noqa: S101  (a run has either outcomes or a replay)
    assert run.windows is not None  # noqa: S101  (a run with a replay has windows)
    return ReplayLearning(setup, run, run.replay, run.windows)


def updates_due(setup: ErlSetup, run: ErlState) -> int:
    """Return the number of updates of this generation: 0 until the replay holds `replay.warmup` transitions."""
    is_warm = run.replay is None or drawable_count(run.replay) >= setup.config.replay.warmup
    return setup.config.learner.own.updates if is_warm else 0


class HindsightLearning:
    """Updates from the outcomes of all purchases."""

    def __init__(self, setup: ErlSetup, run: ErlState, outcomes: PurchaseOutcomes) -> None:
        self._setup, self._run, self._outcomes = setup, run, outcomes
        groups = member_groups(setup, run)
        self._update_ = setup.algorithm.make_update(setup.config.learner, setup.nets, run.learner, groups)

    def update_(self) -> None:
        """Do the next update. Returns None, as no value is estimated."""
        setup, run = self._setup, self._run
        # The stream is named by the update's number, so a resumed run draws what it would have drawn.
        rng = stream(setup.config.seed, "lessons", run.learner.tally.updates, device=setup.device)
        self._update_(draw_lessons(setup, run.market, self._outcomes, rng))

    def update_priorities_(self, td_error: Tensor | None) -> None:
        """Do nothing: all days are equally likely to be drawn."""


class ReplayLearning:
    """Updates from the transitions of a replay."""

    def __init__(self, setup: ErlSetup, run: ErlState, replay: RowReplay, buffers: WindowBuffers) -> None:
        """Bind the algorithm's update to the run's members.

        Args:
            setup: configuration and networks.
            run: state; each update writes its members and tally.
            replay: replay that transitions are drawn from.
            buffers: buffers that the windows of transitions are gathered into.
        """
        self._setup, self._run, self._replay = setup, run, replay
        self._source = ReplaySource(
            replay, buffers, observations=run.market.observations, context=setup.config.env.episode.context
        )
        groups = member_groups(setup, run)
        self._update_ = setup.algorithm.make_update(setup.config.learner, setup.nets, run.learner, groups)
        self._drawn_positions: Tensor | None = None  # of the last draw, for `update_priorities_`

    def update_(self) -> Float[Tensor, "P G B"] | None:
        """Draw transitions for all members of the population, and update the members of this process once.

        Returns |TD error| of the transitions that these members drew: P members, G micro-batches of B transitions.
        """
        setup, settings = self._setup, self._setup.config.learner
        shape = (setup.config.population.size, settings.micro_batches, settings.own.batch_size)
        # The stream is named by the update's number, so a resumed run draws what it would have drawn.
        rng = stream(setup.config.seed, "replay", self._run.learner.tally.updates, device=setup.device)
        # Every process draws for the whole population, so a member's draw is the same in each of them.
        self._drawn_positions, weight = draw(self._replay, shape, rng)
        own_members = slice(*setup.share)  # the members that this process computes
        positions = self._drawn_positions[own_members]
        own_weight = None if weight is None else weight[own_members]
        micro_batches = range(settings.micro_batches)
        return self._update_([bind_micro_batch(self._source, positions, own_weight, each) for each in micro_batches])

    def update_priorities_(self, td_error: Float[Tensor, "P G B"] | None) -> None:
        """Set the priorities of the last draw, if the replay is prioritised."""
        if self._replay.priorities is not None and td_error is not None and self._drawn_positions is not None:
            set_priorities_(self._replay.priorities, self._drawn_positions, td_error)


@dataclass(frozen=True)
class ReplaySource:
    """The replay and panel that transitions are gathered from, and the buffers that they are gathered into."""

    replay: RowReplay
    buffers: WindowBuffers
    observations: Float[Tensor, "N T F"]
    context: int
    """Days of an observation."""


def bind_micro_batch(
    source: ReplaySource, positions: Int[Tensor, "P G B"], weight: Tensor | None, number: int
) -> Callable[[int, int], Batch]:
    """Return a function that gathers micro-batch `number` of members low ... high - 1; it is valid until the next call.

    Args:
        source: replay, panel, and the buffers that are written over.
        positions: ring positions of the transitions that each of P members drew, B in each of G micro-batches.
        weight: importance weights [P, G, B] of the transitions; None if all are equally likely.
        number: number of the micro-batch.
    """
    replay = source.replay

    def gather(low: int, high: int) -> Batch:
        """Gather the micro-batch of members low ... high - 1."""
        slots = positions[low:high, number]
        return Batch(
            obs=observe(source, slots),
            action=replay.action[slots],
            reward=replay.reward[slots],
            discount=replay.discount[slots],
            next_obs=observe_next(source, slots),
            weight=None if weight is None else weight[low:high, number],
        )

    return gather


def observe(source: ReplaySource, positions: Int[Tensor, "P B"]) -> MarketObs:
    """Gather the observations of the transitions at `positions` of the ring into `buffers.seen`."""
    return _gather_observations(source, positions, source.buffers.seen)


def observe_next(source: ReplaySource, positions: Int[Tensor, "P B"]) -> MarketObs:
    """Gather the observations after the transitions at `positions` of the ring into `buffers.following`."""
    return _gather_observations(source, source.replay.following[positions].long(), source.buffers.following)


def _gather_observations(
    source: ReplaySource, positions: Int[Tensor, "P B"], buffer: Float[Tensor, "R N W F"]
) -> MarketObs:
    """Gather the windows of the days on which the transitions at `positions` acted, from the panel."""
    replay = source.replay
    # The ring keeps rows as int32, half the memory; indices here are int64.
    observations = gather_windows(source.observations, replay.row[positions].long(), source.context, out=buffer)
    return MarketObs(observations, None if replay.account is None else replay.account[positions])
