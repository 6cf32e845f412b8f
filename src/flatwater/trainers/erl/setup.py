"""What never changes during a run: configuration, networks as functions, days."""

from dataclasses import dataclass

import torch

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

    @property
    def nets(self) -> Networks:
        """Actor and critic."""
        return Networks(self.actor, self.critic)


WINDOW_BYTES = 64 << 20
"""Observations gathered at a time. Members learn in groups so that more never stand in memory, whatever the panel."""


def build_setup(config: ErlConfig, market: Market, splits: Splits, device: torch.device) -> Setup:
    """The networks for a market's shape."""
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
    return Setup(config, actor, critic, algorithm, splits, device)


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


def members_at_once(setup: Setup, market: Market) -> int:
    """Members whose observations of one micro-batch fit into `WINDOW_BYTES`; at least one."""
    config, (columns, _, features) = setup.config, market.observations.shape
    batch_size: int = config.learner.own.batch_size
    context = config.env.episode.context
    # A stretch has the context of its first day and one row for each further one; a transition has its whole window.
    rows = batch_size * context
    if learns_from_outcomes(config):
        rows = stretch_count(config) * (context - 1) + batch_size
    return min(config.population.size, max(1, WINDOW_BYTES // (4 * rows * columns * features)))
