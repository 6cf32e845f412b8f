"""The panel of a run, and the market that its traders see: the same in the run's own process and in every worker."""

import torch

from flatwater.envs.trading.market import Market, build_market
from flatwater.panel.locate import load_panel
from flatwater.panel.normalise import observation_panel, statistics
from flatwater.panel.panel import Panel, first_days
from flatwater.panel.splits import Splits, split_days
from flatwater.recipes.erl.config import ErlRunConfig


def panel_of(config: ErlRunConfig) -> Panel:
    """The panel, cut where the configuration says so.

    Raises:
        DataError: it cannot be used.
        ConfigError: it has fewer days than are asked for.
    """
    return first_days(load_panel(config.panel), config.splits.days)


def market_of(config: ErlRunConfig, panel: Panel, device: torch.device) -> tuple[Market, Splits]:
    """Prices and normalised observations, and how the days are shared out. Statistics are of training days alone."""
    splits = split_days(len(panel.dates), context=config.env.episode.context, config=config.splits)
    features = config.observation_features
    stats = statistics(panel, features, range(splits.train.stop))
    observations = torch.empty((len(panel.instruments), len(panel.dates), len(features)))
    observation_panel(panel, features, stats, observations)
    return build_market(panel, observations, device), splits
