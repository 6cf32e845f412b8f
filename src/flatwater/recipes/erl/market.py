"""The panel of a run, and the market that its traders see: the same in the run's own process and in every worker."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from flatwater.envs.trading.market import Market, build_market
from flatwater.errors import DataError
from flatwater.panel.extending import difference
from flatwater.panel.locate import cached_panel, load_panel
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


def begun_on(config: ErlRunConfig, was: ErlRunConfig, data: Mapping[str, Any]) -> ErlRunConfig:
    """The settings that cut the panel to the days that a run began with, where it has newer ones by now.

    Args:
        config: of the run, or with another place of its panel.
        was: as they stand in the run's folder.
        data: what the run's checkpoint says of its panel.

    Raises:
        DataError: the panel lacks a day or an instrument of the run's own, or differs from it on a day that both have.
            Where the run's own panel is gone from this machine, whoever compares fingerprints says so.
    """
    days, mark = data.get("days"), data.get("fingerprint")
    given = load_panel(config.panel)
    if not isinstance(days, int) or given.fingerprint == mark:
        return config
    begun = first_days(given, min(days, len(given.dates)))
    if begun.fingerprint == mark:
        return config if config.splits.days else replace(config, splits=replace(config.splits, days=days))
    own = _own_panel(was, str(mark), days)
    if own is not None and (found := difference(own, begun)):
        raise DataError(
            f"{config.panel or 'the panel that comes with Flatwater'}: not the panel that the run began with, nor one "
            f"that extends it by newer days: {found}. Give one with the same values up to {own.dates[-1]}, or train "
            "anew."
        )
    return config


def _own_panel(was: ErlRunConfig, mark: str, days: int) -> Panel | None:
    """The panel that a run began with, from where it was or from the cache; None where it is gone."""
    with suppress(DataError):
        there = load_panel(was.panel)
        if len(there.dates) >= days and (cut := first_days(there, days)).fingerprint == mark:
            return cut
    return cached_panel(mark)


def market_of(config: ErlRunConfig, panel: Panel, device: torch.device) -> tuple[Market, Splits]:
    """Prices and normalised observations, and how the days are shared out. Statistics are of training days alone."""
    splits = split_days(len(panel.dates), context=config.env.episode.context, config=config.splits)
    features = config.observation_features
    stats = statistics(panel, features, range(splits.train.stop))
    observations = torch.empty((len(panel.instruments), len(panel.dates), len(features)))
    observation_panel(panel, features, stats, observations)
    return build_market(panel, observations, device), splits
