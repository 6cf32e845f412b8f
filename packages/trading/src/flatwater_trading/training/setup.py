"""Setups: the parts of a run that never change, which are configuration, networks as functions, and days."""

from dataclasses import dataclass

import torch

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Algorithm, Networks, find_algorithm
from flatwater.cluster.share import split_spans
from flatwater_trading.market.market import Market
from flatwater_trading.panel.splits import Splits
from flatwater_trading.policy.trader import TraderActor, TraderCritic, build_trader
from flatwater_trading.training.config import ErlConfig


@dataclass(frozen=True)
class ErlSetup:
    """The parts of a run that never change and are not part of the state: configuration, networks, days."""

    config: ErlConfig
    actor: TraderActor
    critic: TraderCritic
    algorithm: Algorithm
    splits: Splits
    device: torch.device
    share: Span
    """Members of the population that are computed here: all, or those of one worker."""
    tile: int
    """Members that are computed at once."""
    kind: str
    """Device type of the run, such as "cuda". If `device` is meta, the type of the planned device."""

    @property
    def members(self) -> int:
        """Number of members that are computed here."""
        return self.share[1] - self.share[0]

    @property
    def tiles(self) -> list[Span]:
        """Tiles of the whole population, in their order."""
        return split_spans(self.config.population.size, self.tile)

    @property
    def nets(self) -> Networks:
        """Actor and critic."""
        return Networks(self.actor, self.critic)


WINDOW_BYTES = 64 << 20
"""Bytes of observations that are gathered at a time on a CPU, to stay within its cache. Members learn in groups, so
that no more is in memory whatever the panel."""
GROUP_SIZE_FACTOR = {"cpu": 1, "cuda": 64}
"""Multiple of a CPU's amount that is gathered at a time, by kind of device. A GPU is not limited by such a cache,
and waits for the host between short calls: 16 members of the largest panel are one group of 3.4 GB there, not 16.
It depends on the kind alone, not on the free memory: numbers must not depend on other programs."""


def build_setup(
    config: ErlConfig,
    market: Market,
    splits: Splits,
    device: torch.device,
    *,
    share: Span | None = None,
    kind: str | None = None,
) -> ErlSetup:
    """Build the networks for a market's shape, and determine the size of a tile.

    Args:
        config: configuration of the trainer.
        market: market, of which only the shape is read.
        splits: days to train, to validate and to hold out.
        device: device of all tensors.
        share: members [low, high) that are computed here; None for all.
        kind: kind of the device that a plan is for; None for that of `device`.
    """
    kind = kind or device.type
    algorithm = find_algorithm(config.learner)
    actor, critic = build_trader(
        config.net,
        context=config.env.episode.context,
        features=market.observations.shape[2],
        columns=len(market.observations),
        investable=market.investable,
        account=config.env.account_observation,
        # The threshold in the networks' range [-1, 1]: the inverse of `to_orders`.
        threshold=2 * config.env.trade.buy_threshold / config.env.trade.coefficient_max - 1,
        gaussian=algorithm.gaussian,
        chunk_factor=GROUP_SIZE_FACTOR[kind],
    )
    size = config.population.size
    tile = min(size, config.population.tile or usual_tile(config, market, kind))
    return ErlSetup(config, actor, critic, algorithm, splits, device, share or (0, size), tile, kind)


def learns_from_outcomes(config: ErlConfig) -> bool:
    """Return whether members learn in hindsight, from the panel, and not from transitions that they have played."""
    return not config.learner.own.replays


READ_ROWS_PER_DAY = 20
"""Rows of the panel that may be read for each day learned from, if `learner.hindsight.stretches` is left out."""


def stretch_count(config: ErlConfig) -> int:
    """Return the number of stretches of consecutive days in a batch: the setting or, left out, by the context's length.

    Each stretch reads the whole context of its first day, so a long context allows fewer stretches.
    """
    configured: int | None = config.learner.own.stretches
    if configured is not None:
        return configured
    size: int = config.learner.own.batch_size
    # s stretches read s (context - 1) + size rows for size days: at most READ_ROWS_PER_DAY each, solved for s.
    most_stretches = (READ_ROWS_PER_DAY - 1) * size // max(1, config.env.episode.context - 1)
    return max(s for s in range(1, max(1, min(most_stretches, size)) + 1) if size % s == 0)


LARGE_TILE, SMALL_TILE = 16, 4
LITTLE_WORK_BYTES = 1 << 20
"""Bytes of a member's micro-batch below which calls are so short that tiles of 4 took 1.23 CPU seconds to learn where
tiles of 16 took 0.70."""


def usual_tile(config: ErlConfig, market: Market, kind: str) -> int:
    """Return the number of members of a tile if `population.tile` is 0, for this kind of device.

    Small tiles spread over many workers, which a GPU does not have; large tiles are faster if members are little work.
    """
    uses_large_tile = kind != "cpu" or window_bytes(config, market) < LITTLE_WORK_BYTES
    return LARGE_TILE if uses_large_tile else SMALL_TILE


def members_at_once(setup: ErlSetup, market: Market) -> int:
    """Return the number of members whose observations of a micro-batch may be in memory together; at least 1."""
    return min(setup.tile, max(1, WINDOW_BYTES * GROUP_SIZE_FACTOR[setup.kind] // window_bytes(setup.config, market)))


def window_bytes(config: ErlConfig, market: Market) -> int:
    """Return the bytes of the observations in one micro-batch of one member."""
    columns, _, features = market.observations.shape
    batch_size: int = config.learner.own.batch_size
    context = config.env.episode.context
    # A stretch has the context of its first day and a row for each further day; a transition has its whole window.
    rows = batch_size * context
    if learns_from_outcomes(config):
        rows = stretch_count(config) * (context - 1) + batch_size
    return 4 * rows * columns * features  # float32
