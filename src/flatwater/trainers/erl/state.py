"""Everything that a run of evolving traders keeps between rounds, and how it is built."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.trading.market import Market
from flatwater.envs.trading.simulator import Simulator, build_simulator
from flatwater.evolution.schedule import Schedule
from flatwater.learners.ddpg import Learner, build_learner
from flatwater.nets.trader import TraderActor, TraderCritic, build_trader
from flatwater.panel.splits import Splits
from flatwater.replay.rows import RowReplay, build_rows
from flatwater.state.random import generator
from flatwater.state.tree import derived, state
from flatwater.trainers.erl.config import ErlConfig
from flatwater.trainers.loop import Progress


@state
class Lineage:
    """Who is in each slot; the champion's slot is the last."""

    ids: Int[Tensor, "P+1"]
    """Every member ever made has a number of its own; -1 where there is no champion yet."""
    parents: Int[Tensor, "P+1 2"]
    """Numbers of the two parents; -1 for the first generation."""
    born: Int[Tensor, "P+1"]
    """Generation in which the member was made."""
    made: int
    """Members made so far: the next one's number."""


@state
class Scores:
    """What this generation's members reached, kept on the device until the round is settled."""

    fitness: Float[Tensor, "P"]
    """Mean of the lowest training slices."""
    validation: Float[Tensor, "P+1"]
    """Mean of the lowest walk-forward slices; the champion's, on the same slices, is the last."""
    activity: Float[Tensor, "P+1"]
    """Standard deviation of a member's noiseless actions over the days: 0 for a constant policy."""
    importance: Float[Tensor, "N"]
    """Weight of each column in the attention of the champion's actor, averaged over the walk-forward days."""
    champion_value: Float[Tensor, ""]
    """The champion's validation value after this generation's comparison."""
    crowned: Bool[Tensor, ""]
    """Whether this generation brought a new champion."""
    plateau: bool
    """Whether the best validation value stands still."""


@state
class Windows:
    """Where the windows of a batch are gathered: each draw writes over those of the draw before."""

    seen: Float[Tensor, "R N C F"] = derived()
    """R rows: the transitions that a group of members draws for one micro-batch."""
    following: Float[Tensor, "R N C F"] = derived()


@state
class Erl:
    """The root of the state tree."""

    progress: Progress
    learner: Learner
    replay: RowReplay
    windows: Windows
    eval_env: Simulator
    """P x train_slices episodes on training days."""
    val_env: Simulator
    """(P + 1) x validation_slices episodes on walk-forward days."""
    schedule: Schedule
    lineage: Lineage
    scores: Scores
    generators: dict[str, torch.Generator]
    market: Market


@dataclass(frozen=True)
class Recipe:
    """What never changes during a run, and is not state: configuration, networks as functions, days."""

    config: ErlConfig
    actor: TraderActor
    critic: TraderCritic
    splits: Splits
    device: torch.device


WINDOW_BYTES = 64 << 20
"""Windows gathered at a time. Members learn in groups so that more never stand in memory, whatever the panel."""

CONSUMERS = ("slices", "exploration", "replay", "update", "evolution")


def build_recipe(config: ErlConfig, market: Market, splits: Splits, device: torch.device) -> Recipe:
    """The networks for a market's shape."""
    actor, critic = build_trader(
        config.net,
        context=config.env.episode.context,
        features=market.observations.shape[2],
        investable=market.investable,
        account=config.env.account_observation,
        threshold=2 * config.env.trade.buy_threshold / config.env.trade.coefficient_max - 1,
    )
    return Recipe(config, actor, critic, splits, device)


def build_erl(recipe: Recipe, market: Market) -> Erl:
    """Allocate a run whole. On the meta device this is its plan."""
    config, device = recipe.config, recipe.device
    members, instruments = config.population.size, len(market.investable)

    def env(batch: int) -> Simulator:
        days = config.env.episode.days
        return build_simulator(config.env, batch=batch, max_days=days, instruments=instruments, device=device)

    return Erl(
        progress=Progress(),
        learner=build_learner(
            config.learner,
            recipe.actor,
            recipe.critic,
            members=members,
            rng=generator(config.seed, "initial weights", device),
            device=device,
        ),
        replay=build_rows(
            config.replay,
            instruments=instruments,
            account=config.env.account_observation,
            device=device,
            window=(len(market.observations), config.env.episode.context, market.observations.shape[2]),
        ),
        windows=_windows(recipe, market),
        eval_env=env(members * config.evaluation.train_slices),
        val_env=env((members + 1) * config.evaluation.validation_slices),
        schedule=Schedule(
            rate=config.evolution.mutation_rate,
            deviation=config.evolution.mutation_deviation,
            best=torch.full((config.evolution.plateau_rounds + 1,), -torch.inf, dtype=torch.float64),
        ),
        lineage=_first_generation(members, device),
        scores=_no_scores(members, len(market.observations), device),
        generators={name: generator(config.seed, name, device) for name in CONSUMERS},
        market=market,
    )


def members_at_once(recipe: Recipe, market: Market) -> int:
    """Members whose windows of one micro-batch fit into `WINDOW_BYTES`; at least one."""
    config, (columns, _, features) = recipe.config, market.observations.shape
    each = 4 * config.learner.batch_size * columns * config.env.episode.context * features
    return min(config.population.size, max(1, WINDOW_BYTES // each))


def _windows(recipe: Recipe, market: Market) -> Windows:
    config, (columns, _, features) = recipe.config, market.observations.shape
    rows = members_at_once(recipe, market) * config.learner.batch_size
    shape = (rows, columns, config.env.episode.context, features)
    # Not fresh in every draw: blocks of this size come from the system each time, and their pages are zeroed first.
    seen, following = (torch.empty(shape, device=recipe.device).fill_(0) for _ in range(2))
    return Windows(seen=seen, following=following)


def _first_generation(members: int, device: torch.device) -> Lineage:
    ids = torch.arange(members + 1, device=device)
    ids[members] = -1
    return Lineage(
        ids=ids,
        parents=torch.full((members + 1, 2), -1, device=device),
        born=torch.zeros(members + 1, dtype=torch.int64, device=device),
        made=members,
    )


def _no_scores(members: int, columns: int, device: torch.device) -> Scores:
    return Scores(
        fitness=torch.full((members,), torch.nan, device=device),
        validation=torch.full((members + 1,), torch.nan, device=device),
        activity=torch.full((members + 1,), torch.nan, device=device),
        importance=torch.full((columns,), torch.nan, device=device),
        champion_value=torch.full((), -torch.inf, device=device),
        crowned=torch.zeros((), dtype=torch.bool, device=device),
        plateau=False,
    )


def has_champion(run: Erl) -> bool:
    """Whether a validation has been held, so that the champion's slot holds a member's weights."""
    return bool(np.isfinite(float(run.scores.champion_value)))
