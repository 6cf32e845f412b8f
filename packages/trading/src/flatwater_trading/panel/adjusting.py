"""Splits and dividends: prices scaled by an adjusted close, and moves that look like a split that nobody adjusted."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from flatwater_trading.panel.calendar import DAILY, infer_calendar
from flatwater_trading.panel.naming import ADJUSTED_CLOSE
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import PRICES
from flatwater_watch.errors import DataError
from flatwater_watch.forms import list_phrase

SPLIT_RATIOS = (1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0)
"""Usual ratios of a split, new shares for an old one; the inverse of each is usual as well."""
RATIO_DISTANCE, SMALL_RATIO_DISTANCE = 0.08, 0.03
"""Largest distance of a move from such a ratio, in logarithms: the day's own move comes on top. 99 % of the days of
108 US shares moved less than 0.08. The second is for ratios below 2, which shares also reach by themselves."""
MINIMUM_SPLIT_MOVE_FACTOR = 15
"""Times the usual move of a day that a split is at least: shares have splits once in years. A yield that goes from 0.1
to 0.2 has moved so on many days; no share has split."""
MAXIMUM_JUMPS_SHOWN = 3
RAW_CLOSE = "raw close"
"""Column of closes before they are scaled. No feature can be called so, as it is no identifier."""


def adjust_prices(source: Path, table: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Scale the prices of each row by its adjusted close over its close, which is kept as `RAW_CLOSE`.

    Args:
        source: for messages.
        table: row, symbol, open, high, low, close, adj_close.
        columns: the file's name of the adjusted close, by instrument. Others stay as they are.

    Raises:
        DataError: a row has a close without an adjusted one, or one that is not above 0.
    """
    is_adjusted, adjusted = pl.col("symbol").is_in(list(columns)), pl.col(ADJUSTED_CLOSE)
    unadjusted = table.filter(is_adjusted & pl.col("close").is_not_null() & (adjusted.is_null() | (adjusted <= 0)))
    if not unadjusted.is_empty():
        row, close, adj_close = (unadjusted[name][0] for name in ("row", "close", ADJUSTED_CLOSE))
        column = columns[unadjusted["symbol"][0]]
        raise DataError(
            f"{source}: row {row}, column {column}: {'empty' if adj_close is None else adj_close} beside a close of "
            f"{close:g}. Fill it, or drop the column to use prices as they are."
        )
    # All four prices of a row by one factor: high, low and close keep their order.
    factor = adjusted / pl.col("close")
    scaled = [
        pl.when(is_adjusted).then(pl.col(price) * factor).otherwise(pl.col(price)).alias(price) for price in PRICES
    ]
    return table.with_columns(*scaled, pl.col("close").alias(RAW_CLOSE)).drop(ADJUSTED_CLOSE)


def say_adjusted(source: Path, column: str, count: int = 1) -> None:
    """Note that the prices are scaled by the adjusted close."""
    more = f" and {count - 1} more" if count > 1 else ""
    note_about_file(source, f"open, high, low and close are scaled by the adjusted close ({column}{more}).")


def say_unused(source: Path, columns: list[str]) -> None:
    """Note which columns of a file are left out."""
    if columns:
        note_about_file(source, f"not used: {list_phrase(columns, maximum=8)}.")


def find_jumps(instruments: tuple[str, ...], dates: np.ndarray, close: np.ndarray) -> list[str]:
    """Find moves from one close to the next that look like a split, such as `AAPL -50.0% on 2020-01-03 (2:1)`, by date.

    Args:
        instruments: [N] names.
        dates: [T].
        close: [T, N] above 0, NaN where missing.

    Only ratios from 2 on count where rows are weeks or months: shares reach smaller ones by themselves.
    """
    jumps, calendar = [], infer_calendar(dates)
    ratios = SPLIT_RATIOS if calendar.a_year >= DAILY.a_year else SPLIT_RATIOS[1:]
    for n, name in enumerate(instruments):
        rows = np.flatnonzero(np.isfinite(close[:, n]))
        # Over holes as well, and in float64: a split during a halt is a move between the closes around it.
        moves = np.diff(np.log(close[rows, n].astype(np.float64)))
        # Less than that moves a share on many days, and a rate near 0 or an index of unrest on most of its large ones.
        least_move = (
            MINIMUM_SPLIT_MOVE_FACTOR * np.median(np.abs(moves)) * (calendar.a_year / DAILY.a_year) ** 0.5
            if len(moves)
            else 0
        )
        if not (np.abs(moves) > max(least_move, np.log(ratios[0]) - RATIO_DISTANCE)).any():
            continue
        for ratio in ratios:
            tolerance = RATIO_DISTANCE if ratio >= 2 else SMALL_RATIO_DISTANCE  # noqa: PLR2004  (two shares for one)
            for sign, word in ((-1, f"{ratio:g}:1"), (1, f"1:{ratio:g}")):
                # Shares double at 2:1, so their price halves: the sign of the logarithm is against the ratio's.
                matches = np.flatnonzero(
                    (np.abs(moves - sign * np.log(ratio)) < tolerance) & (np.abs(moves) > least_move)
                )
                jumps += [(str(dates[rows[step + 1]]), name, float(np.expm1(moves[step])), word) for step in matches]
    return [f"{name} {move:+.1%} on {day} ({word})" for day, name, move, word in sorted(jumps)]


def say_jumps(source: Path, jumps: list[str]) -> None:
    """Note the moves that look like a split."""
    if jumps:
        more = f"; and {len(jumps) - MAXIMUM_JUMPS_SHOWN} more" if len(jumps) > MAXIMUM_JUMPS_SHOWN else ""
        listed = "; ".join(jumps[:MAXIMUM_JUMPS_SHOWN])
        note_about_file(
            source,
            f"moves that look like splits: {listed}{more}. Use prices that are adjusted, or be sure that they fell so.",
        )
