"""Folds of a walk-forward: the panel in equal parts; the first is only for training, each other is tested once.

The same cut as scikit-learn's TimeSeriesSplit. Each fold is an ordinary run on the panel as it was at the end of the
fold: its holdout are the fold's test days, its validation days are the last before them, and it trains on the rest.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.fitting_lengths import SPLIT_PARTS, shorten_traders
from flatwater_trading.recipe.panel_settings import PanelSettings
from flatwater_watch.errors import ConfigError

C = TypeVar("C", bound=PanelSettings)


@dataclass(frozen=True)
class Fold:
    """One part of the panel that is tested."""

    number: int
    """Number of the fold, from 1."""
    test: Days
    """Rows of the panel that it is tested on."""


def cut_folds(days: int, folds: int) -> list[Fold]:
    """Cut a panel of `days` days into folds; the remainder is only for training. Test days may be empty."""
    length = days // (folds + 1)
    # The remainder goes to the front, so that the newest days are tested.
    first_test_day = days - folds * length
    first_days = [first_test_day + index * length for index in range(folds)]
    return [Fold(number, test=Days(first, first + length)) for number, first in enumerate(first_days, 1)]


def fold_config(base: C, fold: Fold, seed: int) -> C:
    """Return the settings of a fold's run: the panel ends with the fold, whose test days are the holdout."""
    splits = replace(base.splits, days=fold.test.stop, holdout_days=len(fold.test))
    return replace(base, splits=splits, seed=seed)  # type: ignore[type-var]  # a dataclass


def find_folds(base: PanelSettings, days: int, folds: int) -> list[Fold]:
    """Cut a panel of `days` days into folds, and check that each is long enough.

    Raises:
        ConfigError: a fold has too few days to train, to validate or to test; says how many folds there can be, and
            with how many validation days there can be more.
    """
    return _require_folds(base, days, cut_folds(days, folds), f"--folds {folds}", most=folds)


def choose_folds(base: PanelSettings, days: int, most: int) -> list[Fold]:
    """Cut a panel into `most` folds, or into as many as its days allow if these are fewer.

    Raises:
        ConfigError: the panel is too short for one fold; says what else fits, as in `find_folds`.
    """
    for count in range(most, 0, -1):
        folds = cut_folds(days, count)
        if _folds_fit(base, folds):
            return folds
    # Not even one fold fits: this raises, and says why.
    return _require_folds(base, days, cut_folds(days, 1), "one fold, the fewest", most=most)


def fits_a_study(panel: Panel) -> bool:
    """Return whether a panel has enough days for a study of traders with default settings and at least one fold."""
    config, rows = ErlRunConfig(), len(panel.dates)
    try:
        config.split(rows)
    except ConfigError:
        if panel.calendar.unit == "day":  # lengths are only shortened for weeks, months and so on
            return False
        config = shorten_traders(config, panel, rows)
    return _folds_fit(config, cut_folds(rows, 1))


def _require_folds(base: PanelSettings, days: int, folds: list[Fold], subject: str, *, most: int) -> list[Fold]:
    """Return the folds if each is long enough; else raise an error that says which folds would be.

    Args:
        base: settings that all runs share.
        days: number of days of the panel.
        folds: folds of the panel.
        subject: beginning of the message, such as `--folds 5`.
        most: number of folds that was asked for; the message offers as many or fewer.

    Raises:
        ConfigError: a fold is too short.
    """
    try:
        _check_first_fold(base, folds)
    except ConfigError as error:
        fewer_counts = range(most - 1, 0, -1)
        most_folds = next((count for count in fewer_counts if _folds_fit(base, cut_folds(days, count))), 0)
        remedies = []
        if most_folds:
            remedies.append(f"--folds {most_folds}{' or fewer' if most_folds > 1 else ''}")
        # More folds than these fit only with fewer validation days.
        if options := _find_more_folds(base, days, range(most, most_folds, -1)):
            remedies.append(options)
        remedy = f"Give {', or '.join(remedies)}." if remedies else "It is too short for one fold: give a longer panel."
        raise ConfigError(
            f"{subject}: of {days:,} rows the first fold would train on {folds[0].test.first:,} and be tested on "
            f"{len(folds[0].test):,}. {remedy} In that fold {error}"
        ) from error
    return folds


def _find_more_folds(base: PanelSettings, days: int, counts: range) -> str:
    """Return options with the first number of folds in `counts` that fits with fewer validation days; empty if none.

    Validation then takes a fifth of the days before the first test, the default on panels whose rows are not days.
    """
    for count in counts:
        parts = cut_folds(days, count)
        validation_days = parts[0].test.first // SPLIT_PARTS
        is_lower = 0 < validation_days < base.splits.validation_days
        if not is_lower:
            continue
        splits = replace(base.splits, validation_days=validation_days)
        if _folds_fit(replace(base, splits=splits), parts):  # type: ignore[type-var]  # a dataclass
            return f"--folds {count} --splits.validation-days {validation_days}"
    return ""


def _check_first_fold(base: PanelSettings, folds: list[Fold]) -> None:
    """Check that the first fold can train, validate and test; it has the fewest days, so all others fit if it does.

    Raises:
        ConfigError: the fold has no test day, or one of its splits is too short.
    """
    if not len(folds[0].test):
        raise ConfigError("there is no day to test on.")
    # For the checks of `split`: its result is not needed.
    fold_config(base, folds[0], seed=0).split(folds[0].test.stop)


def _folds_fit(base: PanelSettings, folds: list[Fold]) -> bool:
    """Return whether these folds are long enough to train, validate and test."""
    try:
        _check_first_fold(base, folds)
    except ConfigError:
        return False
    return True
