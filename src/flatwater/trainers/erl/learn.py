"""The learning phase: from the outcomes of the training days, or from transitions that members have played.

Transitions are drawn by number, and their windows are gathered from the panel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.nets.trader import MarketObs
from flatwater.replay.batch import Batch
from flatwater.replay.priority import set_priorities_
from flatwater.replay.rows import RowReplay, draw, held, windows
from flatwater.trainers.erl.lessons import Outcomes, draw_lessons
from flatwater.trainers.erl.setup import Setup, members_at_once
from flatwater.trainers.erl.state import Erl, Windows
from flatwater.trainers.loop import Phase


def member_groups(setup: Setup, run: Erl) -> list[tuple[int, int]]:
    """Consecutive members whose observations of one micro-batch stand in memory together."""
    size, members = members_at_once(setup, run.market), setup.config.population.size
    return [(low, min(low + size, members)) for low in range(0, members, size)]


def learning(setup: Setup, run: Erl) -> Phase:
    """The phase in which every member learns, each from a draw of its own, bound to the run's state."""
    if run.outcomes is not None:
        return _from_outcomes(setup, run, run.outcomes)
    assert run.replay is not None  # noqa: S101  (a run has one of both)
    assert run.windows is not None  # noqa: S101
    return _from_transitions(setup, run, run.replay, run.windows)


def _from_outcomes(setup: Setup, run: Erl, outcomes: Outcomes) -> Phase:
    learner = setup.config.learner
    update_ = setup.algorithm.make_update(learner, setup.nets, run.learner, member_groups(setup, run))
    rng = run.generators["lessons"]

    def learn_(_step: int) -> None:
        update_(draw_lessons(setup, run.market, outcomes, rng))

    return Phase("learn", lambda: learner.own.updates, learn_)


def _from_transitions(setup: Setup, run: Erl, replay: RowReplay, buffers: Windows) -> Phase:
    config = setup.config
    update_ = setup.algorithm.make_update(config.learner, setup.nets, run.learner, member_groups(setup, run))
    shape = (config.population.size, config.learner.micro_batches, config.learner.own.batch_size)

    def due() -> int:
        """None until the replay holds its minimum."""
        return config.learner.own.updates if held(replay) >= config.replay.warmup else 0

    def learn_(_step: int) -> None:
        index, weight = draw(replay, shape, run.generators["replay"])
        source = Source(replay, buffers, run.market.observations, config.env.episode.context)
        td_error = update_([micro_batch(source, index, weight, g) for g in range(shape[1])])
        if replay.priorities is not None and td_error is not None:
            set_priorities_(replay.priorities, index, td_error)

    return Phase("learn", due, learn_)


@dataclass(frozen=True)
class Source:
    """Where transitions are gathered from, and into."""

    replay: RowReplay
    buffers: Windows
    observations: Float[Tensor, "N T F"]
    context: int


def micro_batch(
    source: Source, index: Int[Tensor, "P G B"], weight: Tensor | None, g: int
) -> Callable[[int, int], Batch]:
    """Gathers micro-batch `g` of members low ... high - 1 into the run's buffers: it is good until the next one."""
    replay = source.replay

    def gather(low: int, high: int) -> Batch:
        at = index[low:high, g]
        return Batch(
            obs=observe(source, at),
            action=replay.action[at],
            reward=replay.reward[at],
            discount=replay.discount[at],
            next_obs=observe_next(source, at),
            weight=None if weight is None else weight[low:high, g],
        )

    return gather


def observe(source: Source, at: Int[Tensor, "P B"]) -> MarketObs:
    """What was seen at ring positions `at`, in the run's buffer."""
    copies = source.replay.windows
    return _observed(source, at, at, None if copies is None else copies.seen, source.buffers.seen)


def observe_next(source: Source, at: Int[Tensor, "P B"]) -> MarketObs:
    """What followed on ring positions `at`, in the run's other buffer."""
    copies, day = source.replay.windows, source.replay.following[at].long()
    return _observed(source, at, day, None if copies is None else copies.following, source.buffers.following)


def _observed(
    source: Source,
    at: Int[Tensor, "P B"],
    day: Int[Tensor, "P B"],
    copies: Float[Tensor, "C N W F"] | None,
    buffer: Float[Tensor, "R N W F"],
) -> MarketObs:
    """The windows of the transitions that acted on `day`, rebuilt from the panel; or the copies kept with `at`."""
    replay = source.replay
    if copies is None:
        seen = windows(source.observations, replay.row[day].long(), source.context, out=buffer)
    else:
        seen = torch.index_select(copies, 0, at.flatten(), out=buffer[: at.numel()]).view(*at.shape, *copies.shape[1:])
    return MarketObs(seen, None if replay.account is None else replay.account[day])
