"""The panel that a run is trained on: read, described, and cut to the days that the run began with."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from flatwater_trading.market.config import CostConfig
from flatwater_trading.panel.extension import find_difference
from flatwater_trading.panel.locate import cached_panel, load_panel
from flatwater_trading.panel.normalise import scale_kind
from flatwater_trading.panel.panel import Panel, first_days
from flatwater_trading.panel.specification import is_synthetic
from flatwater_trading.panel.splits import Splits
from flatwater_trading.panel.traded_closes import traded_fingerprint
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.panel_settings import PanelSettings
from flatwater_watch.errors import DataError, require
from flatwater_watch.files.directory import expand_home
from flatwater_watch.phrases import count_phrase

C = TypeVar("C", bound=PanelSettings)


def read_run_panel(config: PanelSettings) -> Panel:
    """Load the panel of a run, cut to `splits.days`; check that the benchmark's closes are above 0.

    Raises:
        DataError: the panel's file cannot be used, or the cache cannot be written.
        ConfigError: the benchmark is not a column of the panel or has a close of 0 or less, `splits.days` is more than
            the panel has, or the specification of a synthetic market is wrong.
    """
    panel = first_days(load_panel(config.panel), config.splits.days)
    if (name := config.benchmark) is not None:
        require(name in panel.instruments, "benchmark", name, f"one of {', '.join(panel.instruments)}")
        column = panel.instruments.index(name)
        known_closes = panel.feature("close")[panel.valid[:, column], column]
        # Infinite for a column without any close, which passes.
        lowest = float(np.min(known_closes, initial=np.inf))
        require(lowest > 0, "benchmark", name, f"an instrument with closes above 0 (the lowest is {lowest:g})")
    return panel


def with_absolute_panel(config: C) -> C:
    """Return the settings with an absolute path of the panel, so that the run can be resumed from any folder."""
    if config.panel is None or is_synthetic(config.panel):
        return config
    return replace(config, panel=str(expand_home(config.panel).absolute()))  # type: ignore[type-var]  # a dataclass


def describe_instruments(panel: Panel) -> str:
    """Return a phrase with the number of instruments that can be bought, and of those that are only watched."""
    watched = len(panel.instruments) - len(panel.investable)
    instruments = count_phrase(len(panel.investable), "instrument")
    return f"{instruments} (and {watched} only watched)" if watched else instruments


def describe_days(panel: Panel) -> str:
    """Return a phrase with the number of a panel's days, the first and the last day."""
    return f"{count_phrase(len(panel.dates), panel.calendar.unit)} ({panel.dates[0]} to {panel.dates[-1]})"


def describe_splits(panel: Panel, splits: Splits) -> str:
    """Return a line with the number of days and the last day of each split."""
    named_days = (("training", splits.train), ("validation", splits.validation), ("holdout", splits.holdout))
    phrases = (f"{len(days):,} {name} (to {panel.dates[days.stop - 1]})" for name, days in named_days)
    return f"{panel.calendar.units}: {', '.join(phrases)}"


def describe_costs(panel: Panel, costs: CostConfig) -> list[str]:
    """Return a warning in one line if a commission per share is counted at prices that may be adjusted for splits.

    Empty without such a commission, or if the panel has closes as traded.
    """
    if not costs.per_share or panel.raw_close is not None:
        return []
    reason = "counts shares at the panel's prices, as it has no closes as traded: if they are adjusted for splits"
    return [f"{costs.table}.per_share {reason}, it is charged for more shares than were traded, or for fewer"]


def panel_facts(panel: Panel, costs: CostConfig) -> dict[str, Any]:
    """Return facts about the contents of a panel, with a hash of its traded closes where costs depend on them."""
    traded = {} if costs.is_proportional else {"traded_fingerprint": traded_fingerprint(panel)}
    return traded | {
        "fingerprint": panel.fingerprint,
        "days": len(panel.dates),
        "instruments": len(panel.instruments),
        "first_day": str(panel.dates[0]),
        "last_day": str(panel.dates[-1]),
    }


def with_first_days(config: ErlRunConfig, original: ErlRunConfig, data: Mapping[str, Any]) -> ErlRunConfig:
    """Return the settings that cut the panel to the days that a run began with, if the panel has newer days now.

    Args:
        config: settings of the run.
        original: settings that the run began with.
        data: facts about the panel in the run's checkpoint.

    Raises:
        DataError: see `cut_to_days`; or the run's version scaled its context columns in another way.
    """
    # None for a panel without context columns (columns that cannot be bought), which every version scales alike; and
    # without facts to compare with.
    scales = scale_kind(load_panel(config.panel)) if data else None
    if scales is not None and data.get("scales") != scales:
        raise DataError(
            "the run was begun with a version of Flatwater that scaled context columns together with the instruments "
            f"that can be bought; this version scales {scales}, so its networks would see other numbers than they "
            "learned from. Go on with that version, or train again."
        )
    return cut_to_days(config, original, data)


def cut_to_days(config: C, original: PanelSettings, data: Mapping[str, Any]) -> C:
    """Return the settings of a run that is resumed, with the panel cut to the days that the run began with.

    If the panel's file has no newer days, the settings are returned unchanged. So they are if the original panel is
    gone from this machine: a later check of the fingerprint refuses them.

    Args:
        config: settings of the run.
        original: settings that the run began with.
        data: facts about the panel in the run's checkpoint: its number of `days` and its `fingerprint`.

    Raises:
        DataError: the panel lacks a day or an instrument of the run's panel, or differs from it on a common day.
    """
    days, fingerprint = data.get("days"), data.get("fingerprint")
    current_panel = load_panel(config.panel)
    # Nothing to compare with, or nothing new.
    if not isinstance(days, int) or current_panel.fingerprint == fingerprint:
        return config
    first_part = first_days(current_panel, min(days, len(current_panel.dates)))
    if first_part.fingerprint == fingerprint:
        # The old panel with newer days: these are cut off, unless the settings cut them already.
        return config if config.splits.days else replace(config, splits=replace(config.splits, days=days))  # type: ignore[type-var]  # a dataclass
    # The old values have changed. The message names the first difference, if the old panel is still there.
    old_panel = _find_original_panel(original, str(fingerprint), days)
    if old_panel is not None and (difference := find_difference(old_panel, first_part)):
        raise DataError(
            f"{config.panel or 'the panel that comes with Flatwater'}: not the panel that the run began with, nor one "
            f"that extends it by newer days: {difference}. "
            f"Give a panel with the same values up to {old_panel.dates[-1]}, or train again."
        )
    return config


def _find_original_panel(original: PanelSettings, fingerprint: str, days: int) -> Panel | None:
    """Find the panel that a run began with, at its path or in the cache; None if it is gone.

    Args:
        original: settings that the run began with, with the panel's path.
        fingerprint: hash of the values that the run has read.
        days: number of days that it has read; the file may have newer days now.
    """
    with suppress(DataError):
        panel = load_panel(original.panel)
        if len(panel.dates) >= days and (first_part := first_days(panel, days)).fingerprint == fingerprint:
            return first_part
    return cached_panel(fingerprint)
