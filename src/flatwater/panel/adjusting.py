"""Splits and dividends: prices scaled by an adjusted close, and moves that look like a split that nobody adjusted."""

from pathlib import Path

import numpy as np
import polars as pl

from flatwater.errors import DataError
from flatwater.panel.calendar import DAILY, calendar_of
from flatwater.panel.notes import note

SPLITS = (1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0)
"""New shares for an old one, as they are usual; the inverse of each as well."""
NEAR, NEAR_SMALL = 0.08, 0.03
"""How far a move may be from such a ratio, in logarithms: the day's own move comes on top. 99 % of the days of 108 US
shares moved less than 0.08. The second is for ratios below 2, which shares also reach by themselves."""
SHOWN = 3
RAW_CLOSE = "raw close"
"""Column of closes before they are scaled. No feature can be called so, as it is no identifier."""


def adjust(source: Path, table: pl.DataFrame, column: str, adjusted: pl.Series) -> pl.DataFrame:
    """Scale the prices of each row by its adjusted close over its close, which is kept as `RAW_CLOSE`.

    Args:
        source: for messages.
        table: row, open, high, low, close.
        column: the file's name of the adjusted close.
        adjusted: of each row.

    Raises:
        DataError: a row has a close without an adjusted one, or one that is not above 0.
    """
    table = table.with_columns(adjusted=adjusted)
    wrong = table.filter(pl.col("close").is_not_null() & (pl.col("adjusted").is_null() | (pl.col("adjusted") <= 0)))
    if not wrong.is_empty():
        row, close, given = (wrong[name][0] for name in ("row", "close", "adjusted"))
        raise DataError(
            f"{source}: row {row}, column {column}: {'empty' if given is None else given} beside a close of {close:g}. "
            "Fill it, or drop the column to use prices as they are."
        )
    factor = pl.col("adjusted") / pl.col("close")
    scaled = [(pl.col(price) * factor).alias(price) for price in ("open", "high", "low", "close")]
    return table.with_columns(*scaled, pl.col("close").alias(RAW_CLOSE)).drop("adjusted")


def say_adjusted(source: Path, column: str, count: int = 1) -> None:
    """Say what the prices are scaled by."""
    more = f" and {count - 1} more" if count > 1 else ""
    note(source, f"open, high, low and close are scaled by the adjusted close ({column}{more}).")


def say_unused(source: Path, columns: list[str]) -> None:
    """Say which columns of a file are left out."""
    if columns:
        more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""  # noqa: PLR2004
        note(source, f"not used: {', '.join(columns[:8])}{more}.")


def find_jumps(instruments: tuple[str, ...], dates: np.ndarray, close: np.ndarray) -> list[str]:
    """Moves from one close to the next that look like a split, such as `AAPL -50.0% on 2020-01-03 (2:1)`, by date.

    Args:
        instruments: [N] names.
        dates: [T].
        close: [T, N] above 0, NaN where missing.

    Only ratios from 2 on count where rows are weeks or months: shares reach smaller ones by themselves.
    """
    found, ratios = [], SPLITS if calendar_of(dates).a_year >= DAILY.a_year else SPLITS[1:]
    for n, name in enumerate(instruments):
        rows = np.flatnonzero(np.isfinite(close[:, n]))
        moves = np.diff(np.log(close[rows, n].astype(np.float64)))
        for ratio in ratios:
            slack = NEAR if ratio >= 2 else NEAR_SMALL  # noqa: PLR2004  (two shares for one)
            for sign, word in ((-1, f"{ratio:g}:1"), (1, f"1:{ratio:g}")):
                near = np.flatnonzero(np.abs(moves - sign * np.log(ratio)) < slack)
                found += [(str(dates[rows[at + 1]]), name, float(np.expm1(moves[at])), word) for at in near]
    return [f"{name} {move:+.1%} on {day} ({word})" for day, name, move, word in sorted(found)]


def say_jumps(source: Path, jumps: list[str]) -> None:
    """Say which moves look like a split."""
    if jumps:
        more = f"; and {len(jumps) - SHOWN} more" if len(jumps) > SHOWN else ""
        listed = "; ".join(jumps[:SHOWN])
        note(
            source,
            f"moves that look like splits: {listed}{more}. Use prices that are adjusted, or be sure that they fell so.",
        )
