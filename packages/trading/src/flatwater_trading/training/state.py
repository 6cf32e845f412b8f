"""State of a run of evolving traders: everything that it keeps between rounds, and its build."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.api import Members, Setting, build_members
from flatwater.evolution.generation import Lineage, MutationSchedule, build_schedule, first_generation
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state
from flatwater.trainers.loop import Progress
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, build_simulator
from flatwater_trading.training.config import replay_capacity
from flatwater_trading.training.lessons import PurchaseOutcomes, build_outcomes
from flatwater_trading.training.play import PlayBuffers, build_play_buffers, plan_shapes
from flatwater_trading.training.row_replay import RowReplay, Transitions, build_row_replay, build_transitions
from flatwater_trading.training.setup import ErlSetup


@state
class GenerationScores:
    """Scores of this generation's members, kept on the device until the round is settled."""

    fitness: Float[Tensor, "P"]
    """Fitness: mean of the lowest training slices."""
    training: dict[str, Float[Tensor, "P S"]]
    """Numbers of each member's training slices, by the names of `TRAINING_MEASURES`."""
    judged: dict[str, Float[Tensor, "P+1 V"]]
    """Numbers of each member's and the champion's validation slices, by the names of `VALIDATION_MEASURES`."""
    validation: Float[Tensor, "P+1"]
    """Mean of the lowest validation slices; the champion's, on the same slices, is the last."""
    activity: Float[Tensor, "P+1"]
    """Standard deviation of a member's noiseless actions over the days: 0 for a constant policy."""
    attention: Float[Tensor, "P+1 N"]
    """Weight of each column in an actor's attention, averaged over the validation days."""
    importance: Float[Tensor, "N"]
    """Attention of the champion's actor to each column."""
    holding: Float[Tensor, ""]
    """Mean gain of equal parts of all instruments, held over these slices."""
    champion_value: Float[Tensor, ""]
    """The champion's validation value after this generation's comparison."""
    crowned: Bool[Tensor, ""]
    """True if this generation brought a new champion."""
    plateau: bool
    """True while the best validation value does not improve."""


@state
class WindowBuffers:
    """Buffers in which the windows of a batch are gathered: each draw writes over the draw before."""

    seen: Float[Tensor, "R N C F"] = derived_field()
    """Observations of the R transitions that a group of members draws for a micro-batch."""
    following: Float[Tensor, "R N C F"] = derived_field()
    """Next observations of these transitions."""


@state
class ErlState:
    """The root of the state tree."""

    progress: Progress
    learner: Members
    replay: RowReplay | None
    """Transitions, for an algorithm that learns from them."""
    windows: WindowBuffers | None
    """Buffers of a batch's observations, for an algorithm that learns from transitions."""
    outcomes: PurchaseOutcomes | None
    """Gains of all purchases, for hindsight."""
    eval_env: Simulator = derived_field()
    """Simulator of tile x train_slices episodes on training days: one tile of members after the other."""
    val_env: Simulator = derived_field()
    """Simulator of (tile + 1) x validation_slices episodes on validation days: the champion plays with each tile."""
    room: PlayBuffers
    """Buffers for the planned actions of both environments' episodes, one after the other."""
    played: Transitions | None = derived_field()
    """Transitions of the tile that played last; None if the algorithm does not learn from them."""
    schedule: MutationSchedule
    lineage: Lineage
    scores: GenerationScores
    market: Market


TRAINING_MEASURES = ("trades", "win_rate", "mean_gain", "refused", "total_return", "drawdown", "exposure")
"""Numbers of `episode_summary` that are kept of training slices."""
VALIDATION_MEASURES = ("trades", "refused", "total_return")
"""Numbers of `episode_summary` that are kept of validation slices."""


def build_erl(setup: ErlSetup, market: Market) -> ErlState:
    """Allocate everything that a run keeps between rounds; on the meta device, for its plan."""
    config, device = setup.config, setup.device
    in_hindsight = config.learns_from_outcomes
    members, tile, instruments = setup.members, setup.tile, len(market.investable)
    days, slices = config.env.episode.days, config.evaluation
    training_batch = tile * slices.train_slices

    def make_env(batch: int) -> Simulator:
        """Allocate a simulator of `batch` episodes."""
        return build_simulator(config.env, batch=batch, max_days=days, instruments=instruments, device=device)

    return ErlState(
        progress=Progress(),
        learner=build_members(
            setup.algorithm,
            config.learner,
            setup.nets,
            Setting(members=members, seed=config.seed, device=device, first=setup.share[0]),
        ),
        replay=None if in_hindsight else _empty_replay(setup, market),
        windows=None if in_hindsight else _window_buffers(setup, market),
        outcomes=build_outcomes(setup, market) if in_hindsight else None,
        eval_env=make_env(training_batch),
        val_env=make_env((tile + 1) * slices.validation_slices),  # + 1: the champion plays with each tile
        room=build_play_buffers(
            setup,
            plan_shapes(setup, market, tile, slices.train_slices, explored=not in_hindsight),
            plan_shapes(setup, market, tile + 1, slices.validation_slices),
        ),
        played=None
        if in_hindsight
        else build_transitions(
            days, training_batch, instruments=instruments, sees_account=config.env.account_observation, device=device
        ),
        schedule=build_schedule(config.evolution),
        lineage=first_generation(members, device),
        scores=_empty_scores(setup, len(market.observations)),
        market=market,
    )


def _empty_replay(setup: ErlSetup, market: Market) -> RowReplay:
    """Allocate the empty replay of `replay.generations` generations of transitions."""
    config = setup.config
    return build_row_replay(
        config.replay,
        capacity=replay_capacity(config),
        instruments=len(market.investable),
        sees_account=config.env.account_observation,
        device=setup.device,
    )


def _window_buffers(setup: ErlSetup, market: Market) -> WindowBuffers:
    """Allocate the two buffers of observations, each for one micro-batch of the members that are updated together."""
    config, (columns, _, features) = setup.config, market.observations.shape
    rows = setup.members_at_once(market) * config.learner.own.batch_size
    shape = (rows, columns, config.env.episode.context, features)
    # Kept between draws, as the allocator would return such blocks to the system, which zeroes their pages each time.
    return WindowBuffers(
        seen=filled_tensor(0, *shape, device=setup.device), following=filled_tensor(0, *shape, device=setup.device)
    )


def _empty_scores(setup: ErlSetup, columns: int) -> GenerationScores:
    """Allocate the scores of a run before its first generation: NaN, and -inf for the champion's value."""
    members, device, slices = setup.members, setup.device, setup.config.evaluation

    def unknown(*shape: int) -> Tensor:
        """Allocate a tensor of NaN."""
        return torch.full(shape, torch.nan, device=device)

    return GenerationScores(
        fitness=unknown(members),
        training={name: unknown(members, slices.train_slices) for name in TRAINING_MEASURES},
        judged={name: unknown(members + 1, slices.validation_slices) for name in VALIDATION_MEASURES},
        validation=unknown(members + 1),
        activity=unknown(members + 1),
        attention=unknown(members + 1, columns),
        importance=unknown(columns),
        holding=unknown(),
        # -inf until the first validation, which `has_champion` tests. NaN shows that other scores are unknown.
        champion_value=torch.full((), -torch.inf, device=device),
        crowned=torch.zeros((), dtype=torch.bool, device=device),
        plateau=False,
    )


def has_champion(run: ErlState) -> bool:
    """Return whether a validation has ended, so that the champion's slot has a member's weights."""
    return bool(np.isfinite(float(run.scores.champion_value)))
