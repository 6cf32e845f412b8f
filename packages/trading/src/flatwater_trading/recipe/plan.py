"""Memory plans of runs of evolving traders: build and phases on the meta device, and advice for smaller runs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from flatwater.algorithms.adam import Span
from flatwater.cluster.work_division import worker_shares
from flatwater.memory.nodes import worker_capacity
from flatwater.memory.planner import Plan
from flatwater.runs.planning import META, Alternative, make_plan, with_advice
from flatwater.runs.team import place_workers
from flatwater.state.tree import nbytes
from flatwater_trading.market.market import outline_market
from flatwater_trading.panel.features import find_features
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.exchange import largest_message
from flatwater_trading.recipe.market import can_be_mapped
from flatwater_trading.recipe.score import measure_score_bytes, score_extra_bytes
from flatwater_trading.training.config import replay_capacity
from flatwater_trading.training.executor import LocalTileExecutor
from flatwater_trading.training.setup import ErlSetup, build_setup
from flatwater_trading.training.state import ErlState, build_erl
from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.process import free_cores
from flatwater_watch.meters.torch_ops import peak_bytes

MARKET_OWNER = "market"
"""Path of the market in the state."""
SCORE_PHASE = "score"
"""Phase in which the champion plays against the baselines, after training and in every evaluation."""


def _check_purchases(config: ErlRunConfig, instruments: int) -> None:
    """Check that no setting allows more purchases a day than there are instruments, as each is of another instrument.

    Raises:
        ConfigError: a setting allows more.
    """
    candidates = config.choice.purchases_a_day or ()
    choice = {f"choice.purchases_a_day[{n}]": purchases for n, purchases in enumerate(candidates)}
    for name, purchases in {"env.trade.purchases_a_day": config.env.trade.purchases_a_day, **choice}.items():
        if purchases > instruments:
            raise ConfigError(
                f"{name} = {purchases}: expected at most {instruments}, as many as the panel has instruments that can "
                "be bought: each purchase of a day is of another one"
            )


def plan_erl(config: ErlRunConfig, panel: Panel, device: torch.device, *, private: bool | None = None) -> Plan:
    """Plan the memory of a run with this configuration on this panel.

    Args:
        config: configuration of the run, with its `budget`.
        panel: panel of the run; only its sizes are read.
        device: device on which the run will compute, and whose memory counts.
        private: whether each process has its own copy of the market, instead of a file that all map; None to find out.
    """
    find_features(config.observation_features, panel.features)
    _check_purchases(config, len(panel.investable))
    setup, run = build_on_meta(config, panel, device.type)
    # An owner is a tensor of the run, by its path in the state, such as `market.close`; its value is a size in bytes.
    market_owners = {f"{MARKET_OWNER}.{path}": size for path, size in nbytes(run.market).items()}
    if private is None:
        private = not can_be_mapped(device, sum(market_owners.values()))
    # All processes share the pages of a mapped market, so none of them counts these among its owners.
    mapped = {} if private else market_owners
    owners = {path: size for path, size in nbytes(run).items() if path not in mapped}
    shares = split_members(setup, config)
    workers = []  # owners of each worker, whose state has its share of the members only
    for span in shares:
        worker_owners = nbytes(build_erl(replace(setup, share=span), run.market))
        workers.append({path: size for path, size in worker_owners.items() if path not in mapped})
    plan = make_plan(
        owners,
        lambda: measure_phase_peaks_(setup, run),
        config=config,
        device=device,
        workers=workers,
        # Workers on a cluster are on other machines than the run's process.
        apart=bool(config.cluster),
        largest_message=largest_message(run, config.population.size, shares),
        mapped=mapped,
        # The run's process plays the score by itself, without workers.
        here=frozenset({SCORE_PHASE}),
        extra_bytes={SCORE_PHASE: score_extra_bytes(run.market)},
    )
    if plan.apart and shares:
        plan = place_workers(plan, config)
        most_workers = worker_capacity(plan.nodes)
        # Planned again if the nodes hold fewer workers than were chosen for an open number.
        if not isinstance(config.workers, int) and most_workers < len(shares):
            return plan_erl(replace(config, workers=max(1, most_workers)), panel, device, private=private)
    return with_advice(
        plan,
        _smaller_configs(config),
        owners,
        lambda smaller_config: nbytes(build_on_meta(smaller_config, panel, device.type)[1]),  # [1] is the state
    )


def split_members(setup: ErlSetup, config: ErlRunConfig) -> list[Span]:
    """Return the members [low, high) of each worker; empty if this process computes alone.

    A worker gets whole tiles; a tile is a group of members whose networks are computed in one call.

    Args:
        setup: setup of the whole population.
        config: configuration with the number of workers and the cluster; `plan_erl` limits an open number on a cluster.
    """
    tiles, workers = setup.tiles, config.workers
    if not isinstance(workers, int):
        workers = len(tiles) if config.cluster else free_cores()
    # Tiles [low, high) of each worker.
    tile_ranges = worker_shares(len(tiles), workers)
    if len(tile_ranges) <= 1:  # one worker would only take the place of this process
        return []
    # From the first member of its first tile to the last member of its last tile.
    return [(tiles[low][0], tiles[high - 1][1]) for low, high in tile_ranges]


def build_on_meta(config: ErlRunConfig, panel: Panel, device_type: str) -> tuple[ErlSetup, ErlState]:
    """Build setup and state on the meta device, with the sizes that they have on devices of type `device_type`."""
    # Without compilation, as an update would be compiled for the plan too.
    config = replace(config, learner=replace(config.learner, compile=False))
    splits = config.split(len(panel.dates))
    market = outline_market(
        columns=len(panel.instruments),
        days=len(panel.dates),
        features=len(config.observation_features),
        investable=len(panel.investable),
        device=META,
        costs=config.env.account,
    )
    setup = build_setup(config, market, splits, META, device_type=device_type)
    return setup, build_erl(setup, market)


def measure_phase_peaks_(setup: ErlSetup, run: ErlState) -> dict[str, int]:
    """Return the peak temporary bytes of each phase, counted on the meta device.

    `run.replay.appended` is overwritten, so `run` must be a state that is thrown away.
    """
    if run.replay is not None:
        # As if the replay were full: an update can then draw, and takes as much memory as later.
        run.replay.appended = len(run.replay.row)
    executor = LocalTileExecutor(setup, run)
    # Tile 0 stands for all: tiles have the same size, and are computed one after the other.
    phases: dict[str, Callable[[], object]] = {
        "evaluate": partial(executor.train, 0),
        "validate": partial(executor.validate, 0),
        "learn": executor.learn_,
    }
    return {
        **{name: peak_bytes(step) for name, step in phases.items()},
        # Selection needs values of fitness, so this phase cannot run on meta. `cross_` gathers both parents and
        # their blend, one block at a time: 3 copies at most.
        "evolve": 3 * max(rows.nbytes for rows in run.learner.inherited),
        # The last row of the weights is the champion's.
        SCORE_PHASE: measure_score_bytes(setup, run.market, run.learner.actor[-1:], longest_split(setup.splits)),
    }


def longest_split(splits: Splits) -> Days:
    """Return the longer split of validation and holdout."""
    return max(splits.validation, splits.holdout, key=len)


def _smaller_configs(config: ErlRunConfig) -> Iterator[Alternative[ErlRunConfig]]:
    """Yield changes of settings that take less memory: the change as text, the owner that shrinks, the new settings.

    Each halves one setting, and is left out where half of it is not allowed.
    """
    if not config.learns_from_outcomes:  # learning from outcomes, in hindsight, has no replay
        yield from _smaller_replay(config)
    yield from _smaller_batch(config)
    net = config.net
    if config.population.size >= 4:  # noqa: PLR2004  (two parents are the least)
        half_population = config.population.size // 2
        smaller = replace(config, population=replace(config.population, size=half_population))
        yield f"population.size = {half_population}", "learner", smaller
    if net.hidden > 1 and net.channels > 1:
        half_net = replace(net, hidden=net.hidden // 2, channels=net.channels // 2)
        change = f"net.hidden = {half_net.hidden} and net.channels = {half_net.channels}"
        yield change, "learner", replace(config, net=half_net)


def _smaller_replay(config: ErlRunConfig) -> Iterator[Alternative[ErlRunConfig]]:
    """Yield the change to half of the replay, if that has room for its warm-up: with less, no update is ever made."""
    replay = config.replay
    half_replay = replay.generations // 2
    # The capacity is in proportion to the generations: capacity * half / generations >= warmup, without a division.
    fits_warmup = replay_capacity(config) * half_replay >= replay.warmup * replay.generations
    if half_replay and fits_warmup:
        smaller = replace(config, replay=replace(replay, generations=half_replay))
        yield f"replay.generations = {half_replay}", "replay", smaller


def _smaller_batch(config: ErlRunConfig) -> Iterator[Alternative[ErlRunConfig]]:
    """Yield the change to half of a batch, if that can still be divided into its stretches of consecutive days."""
    learner = config.learner
    settings, stretches = learner.own, 1
    # A number of stretches that is left out is chosen later, so that it divides any batch.
    if config.learns_from_outcomes and settings.stretches is not None:
        stretches = settings.stretches
    if settings.batch_size > stretches and settings.batch_size % (2 * stretches) == 0:
        half_batch = settings.batch_size // 2
        # The tensors that the batch makes large: a buffer of stretches, or one of observations.
        owner = "outcomes" if config.learns_from_outcomes else "windows"
        change = f"learner.{learner.algorithm}.batch_size = {half_batch}"
        yield change, owner, replace(config, learner=learner.with_algorithm_settings(batch_size=half_batch))
