"""Checks of prices before they become a panel. Nothing is repaired: an error names the first wrong row."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import PRICES
from flatwater_watch.errors import DataError

TOLERANCE = 1e-5
"""Relative tolerance between high, low and close: adjusted prices are rounded to float32 one by one."""

PRICE_RANGE = (1e-30, 1e30)
"""Least and greatest price: float32 has all its digits in this range, with a margin for indicators of these prices."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The contents of a file as numbers."""

    frame: pl.DataFrame
    """Table of row, symbol, date, open, high, low, close: a row for each instrument and day, in the file's order."""
    instruments: tuple[str, ...]
    """Names of the instruments, in the order of the panel's columns."""
    columns: dict[tuple[str, str], str]
    """The file's name of each (instrument, price), for messages."""


def check_order(source: Path, prices: Prices) -> None:
    """Check that the dates of every instrument increase from row to row; if all decrease instead, note it.

    Raises:
        DataError: a date is repeated, or is earlier than the date above it; names row, instrument and both dates.
    """
    # Over symbol, as rows of other instruments may be in between.
    previous_date = pl.col("date").shift(1).over("symbol")
    previous_row = pl.col("row").shift(1).over("symbol")
    steps = prices.frame.with_columns(date_above=previous_date, row_above=previous_row)
    misplaced = steps.filter(pl.col("date") <= pl.col("date_above")).sort("row")
    if misplaced.is_empty():
        return
    if not (steps["date"] >= steps["date_above"]).any():  # each date is earlier than the one above it
        note_about_file(source, "the newest day comes first: sorted by date.")
        return
    first_wrong = misplaced.row(0, named=True)
    row, name, date = first_wrong["row"], first_wrong["symbol"], first_wrong["date"]
    same_day = prices.frame.filter((pl.col("symbol") == name) & (pl.col("date") == date) & (pl.col("row") < row))
    if not same_day.is_empty():
        raise DataError(f"{source}: row {row}, {name}: {date} is there already in row {same_day['row'][0]}. Drop one.")
    raise DataError(
        f"{source}: row {row}, {name}: {date} comes after {first_wrong['date_above']} (row "
        f"{first_wrong['row_above']}). "
        "Sort the rows by date within each instrument."
    )


def check_prices(source: Path, prices: Prices, investable: Collection[str]) -> None:
    """Check that prices are within `PRICE_RANGE`, closes between low and high, and that every instrument has a close.

    An instrument that is not traded may be a spread or a rate, of any sign.

    Raises:
        DataError: a row breaks a rule (names the first, with instrument, date and numbers), or an instrument has no
            close.
    """
    # Checked first, as the rules below find nothing in a column without a close.
    closes = prices.frame.filter(pl.col("close").is_not_null())["symbol"].unique()
    empty_instruments = sorted(set(prices.instruments) - set(closes))
    if empty_instruments:
        column = prices.columns[empty_instruments[0], "close"]
        raise DataError(
            f"{source}: column {column}: {empty_instruments[0]} has not one closing price. Drop the instrument."
        )
    can_be_bought = (
        pl.lit(value=True) if len(investable) == len(prices.instruments) else pl.col("symbol").is_in(list(investable))
    )
    rules = _price_rules(can_be_bought)
    # One pass over the table for all rules; rows are only searched if a rule is broken.
    any_broken = prices.frame.select(broken.any().alias(str(n)) for n, (broken, *_) in enumerate(rules)).row(0)
    for (broken, shown_prices, reason), is_broken in zip(rules, any_broken, strict=True):
        if is_broken:
            wrong_rows = prices.frame.filter(broken).sort("row")  # the first of the file is named
            name = wrong_rows["symbol"][0]
            cells = ", ".join(f"{prices.columns[name, price]} = {wrong_rows[price][0]:.7g}" for price in shown_prices)
            raise DataError(
                f"{source}: row {wrong_rows['row'][0]}, {name} on {wrong_rows['date'][0]}: {cells}: {reason}."
            )


def _price_rules(can_be_bought: pl.Expr) -> list[tuple[pl.Expr, tuple[str, ...], str]]:
    """Return the rules of prices: the mask of the rows that break a rule, the prices that a message shows, the reason.

    Args:
        can_be_bought: mask of the rows whose instrument can be bought; others may have prices of any sign.
    """
    must_be_positive = "expected a price above 0; leave it empty if missing, or name what is traded with --investable"
    rules: list[tuple[pl.Expr, tuple[str, ...], str]] = [
        (can_be_bought & (pl.col(price) <= 0), (price,), must_be_positive) for price in PRICES
    ]
    # Outside of this range prices and indicators, which are float32, become infinite, or 0, which means missing.
    # An exact 0 of an instrument that is not traded, such as a spread, is allowed.
    rules += [
        (
            (can_be_bought | (pl.col(price) != 0)) & ~pl.col(price).cast(pl.Float32).abs().is_between(*PRICE_RANGE),
            (price,),
            f"expected {PRICE_RANGE[0]:g} to {PRICE_RANGE[1]:g}: rescale it",
        )
        for price in PRICES
    ]
    return [
        *rules,
        (_is_clearly_smaller("high", "low"), ("high", "low"), "the high is below the low"),
        (_is_clearly_smaller("high", "close"), ("close", "high"), "the close is above the high"),
        (_is_clearly_smaller("close", "low"), ("close", "low"), "the close is below the low"),
    ]


def _is_clearly_smaller(smaller: str, greater: str) -> pl.Expr:
    """Return an expression of each row: whether `smaller` is below `greater` by more than `TOLERANCE`."""
    # abs, as prices of instruments that are not traded may be negative.
    return pl.col(smaller) + TOLERANCE * pl.col(smaller).abs() < pl.col(greater)
