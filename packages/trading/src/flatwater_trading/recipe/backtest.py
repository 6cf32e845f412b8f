"""Backtests of a trader on days that the user names, by the simulator's rules and against a run's baselines."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from flatwater.rundir.results import write_json
from flatwater_trading.panel.locate import load_truth
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.recipe.benchmark import Benchmark
from flatwater_trading.recipe.result import equity_frame, prices_note, score_as_json, sheet_frame
from flatwater_trading.recipe.score import ChampionEvaluation, score_champion
from flatwater_trading.recipe.tables import write_frame
from flatwater_trading.recipe.threads import one_thread
from flatwater_trading.training.lessons import purchase_rows
from flatwater_trading.training.setup import build_setup
from flatwater_watch.errors import ConfigError, DataError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.files.output import flatwater_folder_kind
from flatwater_watch.sanitize import short_repr

if TYPE_CHECKING:
    from flatwater_trading.recipe.trader import Trader

TABLES, RESULT = ("equity.parquet", "trades.parquet", "sheet.parquet"), "result.json"
"""Files of a backtest; it is complete if it has the result."""


@dataclass(frozen=True)
class Backtest:
    """The result of consecutive days."""

    result: Mapping[str, Any]
    """Numbers as in `result.json` of a run: a row for each trader, the comparison with its interval, the verdict."""
    equity: pl.DataFrame
    """Date, and each trader's equity at the close; the first row is the opening cash on the day before."""
    trades: pl.DataFrame
    """The champion's trades, in the order of their purchases."""
    sheet: pl.DataFrame
    """Date, the champion's exposure and turnover, and the rank correlation of its scores with later returns."""

    def write(self, folder: Path | str, *, force: bool = False) -> None:
        """Write `equity.parquet`, `trades.parquet`, `sheet.parquet` and `result.json`, each atomically.

        Args:
            folder: folder of the files; made if it does not exist.
            force: whether existing files are replaced.

        Raises:
            ConfigError: the folder is a file or belongs to a run, or has a backtest and `force` is False.
        """
        folder_path = expand_home(folder)
        require_free_folder(folder_path, force=force)
        for name, table in zip(TABLES, (self.equity, self.trades, self.sheet), strict=True):
            write_frame(table, folder_path / name)
        # Written last: its presence means that the tables are there too.
        write_json(self.result, folder_path / RESULT)


def require_free_folder(folder: Path, *, force: bool) -> None:
    """Check before the days are played that a backtest can be written to the folder.

    Raises:
        ConfigError: the folder is a file or belongs to a run, or has a backtest and `force` is False.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, got a file. Name another folder.")
    if kind := flatwater_folder_kind(folder):
        raise ConfigError(f"{folder}: is the folder of {kind}, which has files of the same names. Name another folder.")
    existing = [name for name in (*TABLES, RESULT) if (folder / name).exists()]
    if existing and not force:
        raise ConfigError(
            f"{folder}: a backtest is there already ({', '.join(existing)}). Name another folder, "
            "or replace it with --force (force=True)."
        )


def find_days(trader: "Trader", panel: Panel, first: str | None, last: str | None) -> Days:
    """Return the rows of the days from `first` to `last`, if a backtest can play them.

    On the last `settlement_days` of them nothing is bought, so there must be more days than these.

    Args:
        trader: trader that will play; its validation days determine the first day if none is given.
        panel: panel with the trader's columns.
        first: ISO date of the first day; None for the day after the champion's validation days.
        last: ISO date of the last day; None for the newest.

    Raises:
        ConfigError: a date cannot be read, or the last date is before the first.
        DataError: there are too few such days, or too few before them.
    """
    first_row, stop_row = find_date_rows(panel, first, last, chosen_until=trader.provenance.chosen_until)
    episode = trader.config.episode
    # A decision reads the `lookback` rows that end at its day. At least row 1: the opening cash is of the day before.
    earliest_row = max(trader.lookback - 1, 1)
    refuse_early_day(panel, first_row, earliest_row, trader.lookback_reason)
    count, settlement_days = stop_row - first_row, episode.settlement_days
    if count > settlement_days:
        return Days(first_row, stop_row)
    # The message names the dates that the user gave, or the default first day; both may be absent.
    chosen_until = trader.provenance.chosen_until
    start = f" after {chosen_until}, the last one on which the champion was chosen," if first is None else ""
    end = "" if last is None else f" up to {last}"
    raise DataError(
        f"there are {max(0, count)} {panel.calendar.units} to play{start}{end}, but {settlement_days + 1} or more are "
        f"needed, as the last {settlement_days} only close (env.episode.settlement_days): "
        f"the prices have {panel.dates[0]} to {panel.dates[-1]}. "
        "Give more prices, or begin earlier."
    )


def find_date_rows(panel: Panel, first: str | None, last: str | None, *, chosen_until: str) -> tuple[int, int]:
    """Return the row of the first day, and the row after the last day.

    Args:
        panel: panel of which the dates are read.
        first: ISO date of the first day; None for the day after `chosen_until`.
        last: ISO date of the last day; None for the newest.
        chosen_until: ISO date of the last day that the policy was chosen on.

    Raises:
        ConfigError: a date cannot be read, or the last date is before the first.
    """
    begin, end = _parse_day("first", first), _parse_day("last", last)
    if begin is not None and end is not None and end < begin:
        raise ConfigError(f"the first day is {begin} and the last day {end}: exchange them.")
    # searchsorted gives the first row on or after a date; with "right", the first row after it.
    if begin is None:
        first_row = np.searchsorted(panel.dates, np.datetime64(chosen_until), "right")
    else:
        first_row = np.searchsorted(panel.dates, begin)
    stop_row = len(panel.dates) if end is None else np.searchsorted(panel.dates, end, "right")
    return int(first_row), int(stop_row)


def refuse_early_day(panel: Panel, first_row: int, earliest: int, reason: str) -> None:
    """Check that the first row that is played is row `earliest` of the panel or a later one.

    Args:
        panel: panel with the dates.
        first_row: first row that is to be played.
        earliest: lowest row that is allowed.
        reason: clause of the message on why the rows before `earliest` are needed, such as "a decision looks back ...".

    Raises:
        DataError: `first_row` is below `earliest`.
    """
    if first_row < earliest:
        # Empty if the panel ends before that row.
        first_day = f", on {panel.dates[earliest]}" if earliest < len(panel.dates) else ""
        raise DataError(
            f"the first day is {panel.dates[first_row]}, number {first_row + 1} of the prices: expected number "
            f"{earliest + 1} or later, as {reason}: the prices have {panel.dates[0]} to {panel.dates[-1]}. Begin at "
            f"least {earliest - first_row} {panel.calendar.units} later{first_day}, or give prices that reach further "
            "back."
        )


def _parse_day(name: str, text: str | None) -> np.datetime64 | None:
    """Parse a date such as 2024-01-31; None, a date that was not given, stays None.

    Args:
        name: `first` or `last`, for the message.
        text: the date as the user gave it.

    Raises:
        ConfigError: `text` is not a date.
    """
    try:
        return None if text is None else np.datetime64(date.fromisoformat(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the {name} day is {short_repr(text)}: expected a date, such as 2024-01-31.") from error


def known_true_returns(prices: object, panel: Panel) -> np.ndarray[Any, Any] | None:
    """Return the expected log returns [T, K] by the law of a synthetic market; None for other prices.

    Args:
        prices: prices as the user gave them; only a text, such as `synthetic:60x1500`, names a synthetic market.
        panel: panel of these prices, of which the trader may use a part.
    """
    true_returns = load_truth(prices) if isinstance(prices, str) else None
    if true_returns is None:
        return None
    # They have the rows and columns of the whole market, and do not fit a part of it.
    is_whole = true_returns.shape == (len(panel.dates), len(panel.investable))
    return true_returns if is_whole else None


# On one thread, as sums in another order differ in their last bit.
@one_thread()
def play_backtest(
    trader: "Trader",
    panel: Panel,
    days: Days,
    true_returns: np.ndarray[Any, Any] | None = None,
    benchmark: Benchmark | None = None,
) -> Backtest:
    """Play the days, and compare the trader with the baselines.

    Args:
        trader: trader that plays.
        panel: panel of the trader's `align_panel`.
        days: rows of the panel from `find_days`.
        true_returns: expected log returns of a synthetic market [T, K], for the oracle; None if they are unknown.
        benchmark: price that is bought and held besides; None for none.
    """
    market = trader.observe_market(panel)
    splits = _find_splits(trader, panel)
    evaluation = ChampionEvaluation(
        setup=build_setup(trader.settings, market, splits, torch.device("cpu")),
        panel=panel,
        market=market,
        actor=trader.weights,
        days=days,
        # Training days whose purchases are sold within the training: the ridge regression learns from these.
        learned_rows=purchase_rows(splits.train, trader.config.trade.hold_days),
        truth=true_returns,
        benchmark=benchmark,
    )
    score = score_champion(evaluation)
    days_by_use = trader.count_days_by_use(panel, days)
    result = score_as_json(panel, score, "backtest") | {
        "generations": trader.provenance.generations,
        "seed": trader.settings.seed,
        "settlement_days": trader.config.episode.settlement_days,
        "days_of": days_by_use,
        "note": f"{note_of_days(days_by_use, panel.calendar.unit)}; on the last "
        f"{trader.config.episode.settlement_days} nothing is bought, and what is open at the end is sold"
        + prices_note(panel, days),
    }
    return Backtest(result, equity_frame(panel, score), score.trades, sheet_frame(panel, score))


def _find_splits(trader: "Trader", panel: Panel) -> Splits:
    """Return the splits of the trader's training as rows of the panel, found by the dates on which each split ended.

    A split is empty if the panel lacks its days.
    """
    # The first row at which a decision is possible: it has a whole context (the rows that a decision looks back over).
    first = trader.config.episode.context - 1
    last_train_day = np.datetime64(trader.provenance.learned_until)
    last_validation_day = np.datetime64(trader.provenance.chosen_until)
    # A split that ended before the panel begins gets `first` as its end, so it is empty.
    train_stop = max(first, int(np.searchsorted(panel.dates, last_train_day, "right")))
    validation_stop = max(first, int(np.searchsorted(panel.dates, last_validation_day, "right")))
    return Splits(
        train=Days(first, train_stop),
        validation=Days(train_stop, validation_stop),
        holdout=Days(validation_stop, max(validation_stop, len(panel.dates))),
    )


def note_of_days(days_by_use: Mapping[str, int], unit: str) -> str:
    """Return a note on how far a result can be trusted: how many of its days had which use in the training.

    Args:
        days_by_use: number of days by use, as `PanelPolicy.count_days_by_use` counts them; a use without days is left
            out.
        unit: name of a row of the prices, such as `day`.
    """
    phrase_by_use = {
        "training": "of the training, so that what was earned on them says nothing",
        "validation": "of the validation, on which the champion was chosen: expect less elsewhere",
        "holdout": "of the run's holdout",
        "newer": "newer than all of the run",
    }
    phrases = [
        f"{count} {unit}{'s' if count > 1 else ''} {phrase_by_use[use]}" for use, count in days_by_use.items() if count
    ]
    return "; ".join(phrases)
