"""Summary of a panel for a person who is about to train on it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.oddities import oddity_texts
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import check_episode, split_days
from flatwater_watch.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class InstrumentSummary:
    """Summary of a column of the panel."""

    name: str
    """Name of the instrument."""
    investable: bool
    """False for a context column."""
    first: str | None
    """The first day with a usable close; None for a column without one."""
    last: str | None
    """The last day with a usable close; None for a column without one."""
    missing: float
    """Share of the panel's days without a usable close."""
    gaps: int
    """Days without a usable close between `first` and `last`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureSummary:
    """Summary of a feature over all days and columns."""

    name: str
    """Name of the feature."""
    mean: float | None
    """Mean over days and columns; None if the panel has no value of the feature."""
    deviation: float | None
    """Deviation of the population; None if the panel has no value of the feature."""
    missing: float
    """Share of cells without a value, warm-up days included."""
    origin: str
    """Origin of an own feature, with its version; empty for the features of every panel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitSummary:
    """Summary of a split."""

    name: str
    """Name: `train`, `validation` or `holdout`."""
    first: str
    """First tradable day of the split."""
    last: str
    """Last tradable day of the split."""
    days: int
    """Number of tradable days."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelSummary:
    """Everything that `flatwater panel show` prints."""

    days: int
    """Number of rows: days of daily prices, weeks of weekly prices ..."""
    first: str
    last: str
    frequency: str
    """Frequency of the rows: `daily`, `weekly`, `monthly` ..."""
    unit: str
    """Name of a row: `day`, `week`, `month` ..."""
    periods_per_year: int
    """Rows of a year, by which figures are annualised."""
    missing: float
    """Share of (day, instrument) cells without a usable close."""
    instruments: list[InstrumentSummary]
    features: list[FeatureSummary]
    context: int
    """Days of history that `splits` assumes."""
    splits: list[SplitSummary]
    """Default splits; empty if the panel is too short for them."""
    splits_problem: str | None
    """Reason why `splits` is empty or a split is too short for an episode; None if the splits can be used."""
    oddities: dict[str, str]
    """What should be checked before the panel is used, by its title: moves like splits, instruments that begin later
    or end earlier."""
    fingerprint: str
    file: str | None
    """File that the values are mapped from; None for a panel in memory."""
    file_bytes: int | None


def summarise_panel(panel: Panel, *, context: int, episode: int) -> PanelSummary:
    """Summarise days, instruments, features, splits (default configuration), fingerprint and file of a panel.

    Args:
        panel: stored panel, or panel in memory.
        context: days of history before the first tradable day, including that day.
        episode: days that a split should have.
    """
    splits, problem = _summarise_splits(panel, context, episode)
    calendar = panel.calendar
    file = Path(panel.values.filename) if isinstance(panel.values, np.memmap) and panel.values.filename else None
    return PanelSummary(
        days=len(panel.dates),
        first=str(panel.dates[0]),
        last=str(panel.dates[-1]),
        frequency=calendar.name,
        unit=calendar.unit,
        periods_per_year=calendar.a_year,
        missing=float(1 - panel.valid.mean()),
        instruments=[_summarise_instrument(panel, n) for n in range(len(panel.instruments))],
        features=[_summarise_feature(panel, name) for name in panel.features],
        context=context,
        splits=splits,
        splits_problem=problem,
        oddities=oddity_texts(panel),
        fingerprint=panel.fingerprint,
        file=None if file is None else str(file),
        file_bytes=None if file is None else file.stat().st_size,
    )


def _summarise_instrument(panel: Panel, n: int) -> InstrumentSummary:
    """Summarise column `n` of the panel."""
    valid_rows = np.flatnonzero(panel.valid[:, n])
    has_close = len(valid_rows) > 0
    return InstrumentSummary(
        name=panel.instruments[n],
        investable=n in panel.investable,
        first=str(panel.dates[valid_rows[0]]) if has_close else None,
        last=str(panel.dates[valid_rows[-1]]) if has_close else None,
        missing=float(1 - len(valid_rows) / len(panel.dates)),
        gaps=int(valid_rows[-1] - valid_rows[0] + 1 - len(valid_rows)) if has_close else 0,
    )


def _summarise_feature(panel: Panel, name: str) -> FeatureSummary:
    """Summarise a feature over all days and columns; mean and deviation are None without a value."""
    values = panel.feature(name)
    # In float64, as a float32 mean over millions of cells loses digits.
    finite_values = values[np.isfinite(values)].astype(np.float64)
    return FeatureSummary(
        name=name,
        mean=float(finite_values.mean()) if len(finite_values) else None,
        deviation=float(finite_values.std()) if len(finite_values) else None,
        missing=float(1 - len(finite_values) / values.size),
        origin=panel.origins.get(name, ""),
    )


def _summarise_splits(panel: Panel, context: int, episode: int) -> tuple[list[SplitSummary], str | None]:
    """Return the default splits, none for a short panel, and the reason why they do not fit; None if they fit."""
    try:
        splits = split_days(len(panel.dates), context=context, config=SplitConfig())
    except ConfigError as error:
        return [], str(error)
    # The splits are shown together with the reason, even if they are too short for an episode.
    problem = None
    try:
        check_episode(splits, episode)
    except ConfigError as error:
        problem = str(error)
    days_by_split = {"train": splits.train, "validation": splits.validation, "holdout": splits.holdout}
    return [
        SplitSummary(
            name=name,
            first=str(panel.dates[days.first]),
            last=str(panel.dates[days.stop - 1]),
            days=len(days),
        )
        for name, days in days_by_split.items()
    ], problem
