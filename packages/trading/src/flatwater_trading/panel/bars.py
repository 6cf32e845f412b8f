"""Prices of hours or minutes, reduced to one row a day: a panel has no finer rows."""

from pathlib import Path
from typing import Literal

import polars as pl

from flatwater_trading.panel.checking import Prices
from flatwater_trading.panel.dates import seconds_of_day
from flatwater_trading.panel.file_rows import row_number
from flatwater_trading.panel.notes import note_about_file
from flatwater_watch.errors import DataError
from flatwater_watch.sanitize import short_repr

Bars = Literal["last", "daily"]
"""Ways to reduce the rows of a day to one: `last` keeps the last row, `daily` makes a bar of all rows (first open,
highest high, lowest low, last close)."""

_DAY_COLUMNS = ["symbol", "date"]


def to_daily_rows(source: Path, prices: Prices, dates: pl.Series, bars: Bars | None) -> Prices:
    """Reduce prices to one row for each instrument and day; unchanged without times of day or repeated days.

    Args:
        source: file, for messages.
        prices: row, symbol, date and numbers.
        dates: the file's column of dates, in its order.
        bars: way to reduce the rows of a day to one; None refuses several rows.

    Raises:
        DataError: a day has several rows and `bars` is None; or an instrument has the same time twice.
    """
    moments = seconds_of_day(dates)  # since midnight, of each row of the file; None if no row has a time
    frame = prices.frame
    if moments is None or not frame.select(pl.struct(_DAY_COLUMNS)).to_series().is_duplicated().any():
        return prices
    # Add columns of times and of the file's cells. They are looked up by the file's row, as a wide file has become
    # long: each of its rows is here once for every instrument.
    file_row = (frame["row"] - row_number(0)).cast(pl.UInt32)
    frame = frame.with_columns(moments.gather(file_row).alias("moment"), dates.gather(file_row).alias("cell"))
    _check_times(source, frame)
    days = frame.group_by(_DAY_COLUMNS, maintain_order=True).agg(
        pl.len(), first=pl.col("moment").min(), last=pl.col("moment").max()
    )
    if bars is None:
        name, day, rows, first, last = days.filter(pl.col("len") > 1).row(0)
        raise DataError(
            f"{source}: intraday prices: {name} has {rows} rows on {day}, from {_clock_text(first)} to "
            f"{_clock_text(last)}. A panel has one row a day. Import it with flatwater panel import FILE --out PANEL "
            "and --bars daily (first open, highest high, lowest low, last close of each day) "
            "or --bars last (the last row of each day)."
        )
    usual_count = days["len"].sort()[len(days) // 2]  # the median
    note_about_file(source, f"intraday prices, {usual_count} rows on a usual day: --bars {bars} made one of each day.")
    # A stable sort: rows with the same time, after a clock was set back, keep the order of the file.
    frame = frame.sort(*_DAY_COLUMNS, "moment", maintain_order=True).drop("moment", "cell")
    daily = _last_rows(frame) if bars == "last" else _daily_bar(frame)
    daily = daily.select(prices.frame.columns)  # in the order of columns that the table had
    return Prices(frame=daily, instruments=prices.instruments, columns=prices.columns)


def _check_times(source: Path, frame: pl.DataFrame) -> None:
    """Check that no instrument has two rows of the same time. Compared is the text of the file's date (column `cell`).

    Raises:
        DataError: two rows of an instrument have the same cell.
    """
    # Not the time itself: after a clock was set back, two rows have the same time, and their cells name other zones.
    repeated_bars = frame.filter(pl.struct("symbol", "cell").is_duplicated())
    if not repeated_bars.is_empty():
        name, cell = repeated_bars["symbol"][0], repeated_bars["cell"][0]
        rows = repeated_bars.filter((pl.col("symbol") == name) & (pl.col("cell") == cell))["row"].sort()
        raise DataError(
            f"{source}: row {rows[1]}, {name}: {short_repr(str(cell))} is there already in row {rows[0]}. Drop one."
        )


def _last_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the last row with a close of each instrument and day; the rows must be in the order of their times."""
    # Rows without a close are left out, as they would hide the last trade of their day.
    return frame.filter(pl.col("close").is_not_null()).group_by(_DAY_COLUMNS, maintain_order=True).last()


def _daily_bar(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each instrument and day: first open, highest high, lowest low, last known value of the others.

    The rows must be in the order of their times.
    """
    # The close is among the other columns, of which the last known value counts.
    bar_prices = {"open": pl.col("open").drop_nulls().first(), "high": pl.col("high").max(), "low": pl.col("low").min()}
    other_columns = [name for name in frame.columns if name not in {*bar_prices, *_DAY_COLUMNS, "row"}]
    named_prices = [price.alias(name) for name, price in bar_prices.items()]
    return frame.group_by(_DAY_COLUMNS, maintain_order=True).agg(
        pl.col("row").last(), *named_prices, pl.col(other_columns).drop_nulls().last()
    )


def _clock_text(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
