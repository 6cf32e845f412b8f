"""Lengths for prices that are not daily: the defaults are meant for days, and a file of months has too few rows.

Only settings at their defaults are changed, and only if the defaults do not fit; the chosen lengths are noted and
written to the run's `config.toml`. Daily prices that are too short are refused, with the lengths that would fit: a
shorter validation proves less, so the user has to choose it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from flatwater.config.mappings import flat_settings, to_mapping
from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.features import find_features, observed_features
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.specification import is_synthetic
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.panel_settings import PanelSettings
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.directory import expand_home

DEFAULT_CONFIG = ErlRunConfig()
SPLIT_PARTS = 5
"""Number of parts that all rows are cut into: one is the holdout, and one is for validation."""
MAXIMUM_EPISODE_YEARS, QUARTERS_A_YEAR = 2, 4
"""Most years of an episode, and quarters of a year: a position is held for a quarter."""
MINIMUM_CONTEXT, MINIMUM_HOLD = 4, 2
"""Fewest rows that a decision sees, and that a position is held."""
MINIMUM_KNOWN_SHARE = 0.5
"""Least share of the training rows with a number of a feature: `return_120` of months has no number in 10 years."""


C = TypeVar("C", bound=PanelSettings)


def with_fitting_lengths(config: C, shorten: Callable[[C, Panel, int], C]) -> C:
    """Return the configuration, with shorter lengths if its panel is a file of weeks, months or years that needs them.

    Args:
        config: settings of a run.
        shorten: function of the settings, the panel and its number of rows; it returns the settings with shorter
            lengths in the place of defaults.

    Raises:
        DataError: the file cannot be used.
        ConfigError: the lengths do not fit the file and cannot be chosen; names those that would fit.
    """
    if config.panel is None or is_synthetic(config.panel):  # their rows are days, as the defaults expect
        return config
    panel = load_panel(config.panel)
    # `splits.days` of None uses all rows.
    rows = min(len(panel.dates), config.splits.days or len(panel.dates))
    length_error = _length_error(config, rows)
    if length_error is None:
        return config
    fitting = shorten(config, panel, rows)
    if _length_error(fitting, rows) is not None:
        # Of the two errors the first, as its lengths are those that the user knows.
        raise length_error
    old_settings, new_settings = flat_settings(to_mapping(config)), flat_settings(to_mapping(fitting))
    lengths = ", ".join(f"{name} = {value}" for name, value in new_settings.items() if value != old_settings[name])
    if panel.calendar.unit == "day":
        raise ConfigError(f"{length_error} These fit: {lengths}.")
    note_about_file(
        expand_home(config.panel),
        f"{rows} {panel.calendar.units} are too few for lengths that are meant for days. Set instead: {lengths}.",
    )
    return fitting


def _length_error(config: PanelSettings, rows: int) -> ConfigError | None:
    """Return the error that says why the lengths do not fit a panel of `rows` rows; None if they fit."""
    try:
        config.split(rows)
    except ConfigError as error:
        return error
    return None


def shorten_splits(splits: SplitConfig, rows: int) -> SplitConfig:
    """Return the splits, with a fifth of `rows` for holdout and for validation in the place of longer defaults."""
    split_rows = max(1, rows // SPLIT_PARTS)
    short_splits: SplitConfig = _shorten_table(
        splits, SplitConfig(), holdout_days=split_rows, validation_days=split_rows
    )
    return short_splits


def shorten_traders(config: ErlRunConfig, panel: Panel, rows: int) -> ErlRunConfig:
    """Return the settings of traders, with lengths that fit `rows` rows in the place of defaults that are longer."""
    env, splits, calendar = config.env, shorten_splits(config.splits, rows), panel.calendar
    hold_days = max(MINIMUM_HOLD, round(calendar.a_year / QUARTERS_A_YEAR))
    trade = _shorten_table(env.trade, DEFAULT_CONFIG.env.trade, hold_days=hold_days)
    shortest_split = min(splits.holdout_days, splits.validation_days)
    episode = _shorten_table(
        env.episode,
        DEFAULT_CONFIG.env.episode,
        context=max(MINIMUM_CONTEXT, calendar.a_year),
        # An episode must fit into each split, with the settlement after its trading days: half is left for that.
        trading_days=max(1, min(MAXIMUM_EPISODE_YEARS * calendar.a_year, shortest_split // 2)),
        settlement_days=trade.hold_days,
    )
    short_config = replace(config, splits=splits, env=replace(env, trade=trade, episode=episode))
    # Features that the user has chosen stay.
    if config.observation_features != DEFAULT_CONFIG.observation_features:
        return short_config
    # Training rows alone, as later rows must not choose the features; at least one row.
    train_stop = max(episode.context, rows - splits.holdout_days - splits.validation_days)
    learned_rows = slice(episode.context - 1, train_stop)
    return replace(short_config, observation_features=_known_features(panel, config.observation_features, learned_rows))


def _shorten_table(table: Any, default: Any, **lengths: int) -> Any:  # noqa: ANN401  (a table of settings)
    """Return the table of settings with each of `lengths` in the place of a longer default.

    A setting that differs from `default`, since the user has set it, stays.
    """
    replaced_lengths = {}
    for name, length in lengths.items():
        default_length = getattr(default, name)
        is_at_default = getattr(table, name) == default_length
        if is_at_default and length < default_length:
            replaced_lengths[name] = length
    return replace(table, **replaced_lengths)


def _known_features(panel: Panel, features: tuple[str, ...], learned_rows: slice) -> tuple[str, ...]:
    """Return the features with numbers in enough of the rows that are learned from; all features if none has enough."""
    all_columns = slice(None)
    values = observed_features(
        panel, find_features(features, panel.features), stop=learned_rows.stop, columns=all_columns
    )[learned_rows]
    # For each feature, over all days and columns: its count of finite numbers, divided by the count of prices.
    shares = np.isfinite(values).sum((0, 1)) / max(1, panel.valid[learned_rows].sum())
    known_features = [
        name for name, share in zip(features, shares.tolist(), strict=True) if share >= MINIMUM_KNOWN_SHARE
    ]
    return tuple(known_features) or features
