"""What never changes during a run: configuration, networks as functions, days."""

from dataclasses import dataclass

import torch

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Algorithm, Networks, find_algorithm
from flatwater.envs.trading.market import Market
from flatwater.nets.trader import TraderActor, TraderCritic, build_trader
from flatwater.panel.splits import Splits
from flatwater.trainers.erl.config import ErlConfig


@dataclass(frozen=True)
class Setup:
    """What never changes during a run, and is not state: configuration, networks as functions, days."""

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

    @property
    def members(self) -> int:
        """How many of them there are."""
        return self.share[1] - self.share[0]

    @property
    def tiles(self) -> list[Span]:
        """Of the whole population, in their order."""
        return spans(self.config.population.size, self.tile)

    @property
    def nets(self) -> Networks:
        """Actor and critic."""
        return Networks(self.actor, self.critic)


WINDOW_BYTES = 64 << 20
"""Observations gathered at a time. Members learn in groups so that more never stand in memory, whatever the panel."""


def build_setup(
    config: ErlConfig, market: Market, splits: Splits, device: torch.device, share: Span | None = None
) -> Setup:
    """The networks for a market's shape; of all members, or of a share of them."""
    algorithm = find_algorithm(config.learner)
    actor, critic = build_trader(
        config.net,
        context=config.env.episode.context,
        features=market.observations.shape[2],
        columns=len(market.observations),
        investable=market.investable,
        account=config.env.account_observation,
        threshold=2 * config.env.trade.buy_threshold / config.env.trade.coefficient_max - 1,
        gaussian=algorithm.gaussian,
    )
    size = config.population.size
    tile = min(size, config.population.tile or usual_tile(config, market))
    return Setup(config, actor, critic, algorithm, splits, device, share or (0, size), tile)


def learns_from_outcomes(config: ErlConfig) -> bool:
    """Whether members learn in hindsight, from the panel, and not from transitions that they have played."""
    return not config.learner.own.replays


ROWS_A_DAY = 20
"""Rows of the panel that may be read for each day learnt from, where `learner.hindsight.stretches` is left out."""


def stretch_count(config: ErlConfig) -> int:
    """Stretches of consecutive days in a batch: their first days bring their whole context along."""
    given: int | None = config.learner.own.stretches
    if given is not None:
        return given
    size: int = config.learner.own.batch_size
    most = (ROWS_A_DAY - 1) * size // max(1, config.env.episode.context - 1)
    return max(s for s in range(1, max(1, min(most, size)) + 1) if size % s == 0)


LARGE_TILE, SMALL_TILE = 16, 4
LITTLE_WORK = 1 << 20
"""Bytes of a member's micro-batch below which calls are so short that tiles of 4 took 1.23 CPU seconds to learn where
tiles of 16 took 0.70."""


def usual_tile(config: ErlConfig, market: Market) -> int:
    """Small tiles can be shared out among many workers; little work is done faster in large ones."""
    return LARGE_TILE if window_bytes(config, market) < LITTLE_WORK else SMALL_TILE


def spans(count: int, size: int) -> list[Span]:
    """Consecutive spans of `size`, the last one shorter where they do not come out even."""
    return [(low, min(low + size, count)) for low in range(0, count, size)]


def members_at_once(setup: Setup, market: Market) -> int:
    """Members of a tile whose observations of one micro-batch fit into `WINDOW_BYTES`; at least one."""
    return min(setup.tile, max(1, WINDOW_BYTES // window_bytes(setup.config, market)))


def window_bytes(config: ErlConfig, market: Market) -> int:
    """Of the observations that one member learns from at once."""
    columns, _, features = market.observations.shape
    batch_size: int = config.learner.own.batch_size
    context = config.env.episode.context
    # A stretch has the context of its first day and one row for each further one; a transition has its whole window.
    rows = batch_size * context
    if learns_from_outcomes(config):
        rows = stretch_count(config) * (context - 1) + batch_size
    return 4 * rows * columns * features
