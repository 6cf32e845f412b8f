"""Splits and dividends: scaling of prices by an adjusted close, and notes on columns and prices of a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from flatwater_trading.panel.naming import ADJUSTED_CLOSE
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import PRICES
from flatwater_watch.errors import DataError
from flatwater_watch.phrases import list_phrase

FAR_PRICE_FACTOR = 5
"""Multiple of the larger of open and close from which a high is probably a mistake, and so for the low below them."""
RAW_CLOSE = "raw close"
"""Column of closes before they are scaled. A feature cannot have this name, because it is not an identifier."""


def adjust_prices(source: Path, table: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Scale the prices of each row by its adjusted close over its close; the unscaled close is kept as `RAW_CLOSE`.

    Args:
        source: file, for messages.
        table: table of row, symbol, open, high, low, close, adj_close.
        columns: the file's name of the adjusted close, by instrument. Other instruments stay as they are.

    Raises:
        DataError: a row with a close has no adjusted close above 0.
    """
    is_adjusted = pl.col("symbol").is_in(list(columns))
    adjusted_close = pl.col(ADJUSTED_CLOSE)
    unadjusted = table.filter(
        is_adjusted & pl.col("close").is_not_null() & (adjusted_close.is_null() | (adjusted_close <= 0))
    )
    if not unadjusted.is_empty():
        first_row = unadjusted.row(0, named=True)
        column, cell = columns[first_row["symbol"]], first_row[ADJUSTED_CLOSE]
        raise DataError(
            f"{source}: row {first_row['row']}, column {column}: {'empty' if cell is None else cell} for a close of "
            f"{first_row['close']:g}. Fill it, or drop the column to use prices as they are."
        )
    # One factor for all four prices of a row, so that high, low and close keep their order.
    factor = adjusted_close / pl.col("close")
    scaled_columns = [
        pl.when(is_adjusted).then(pl.col(price) * factor).otherwise(pl.col(price)).alias(price) for price in PRICES
    ]
    return table.with_columns(*scaled_columns, pl.col("close").alias(RAW_CLOSE)).drop(ADJUSTED_CLOSE)


def note_adjustment(source: Path, column: str, count: int = 1) -> None:
    """Note that the prices are scaled by `count` columns of adjusted closes, of which `column` is the first."""
    more_columns = f" and {count - 1} more" if count > 1 else ""
    note_about_file(source, f"open, high, low and close are scaled by the adjusted close ({column}{more_columns}).")


def note_unused_columns(source: Path, columns: list[str]) -> None:
    """Note which columns of a file are left out."""
    if columns:
        column_names = [column.strip() or "a column without a name" for column in columns]
        note_about_file(source, f"not used: {list_phrase(column_names, maximum=8)}.")


def note_far_prices(source: Path, table: pl.DataFrame, investable_names: Sequence[str]) -> None:
    """Note the first row whose high or low is far beyond its open and its close, as if a decimal point were missing.

    Args:
        source: file, for messages.
        table: table of symbol, date, open, high, low and close.
        investable_names: instruments that can be bought; others may have any sign.
    """
    # Without an open the close alone counts.
    upper, lower = pl.max_horizontal("open", "close"), pl.min_horizontal("open", "close")
    is_far = (pl.col("high") >= FAR_PRICE_FACTOR * upper) | (pl.col("low") * FAR_PRICE_FACTOR <= lower)
    far_rows = table.filter(is_far & pl.col("symbol").is_in(list(investable_names)))
    if far_rows.is_empty():
        return
    name, day = far_rows["symbol"][0], far_rows["date"][0]
    prices = ", ".join(f"{price} = {far_rows[price][0]:.7g}" for price in ("high", "low", "close"))
    more_rows = f"; and {far_rows.height - 1} more rows" if far_rows.height > 1 else ""
    note_about_file(
        source,
        f"prices of a day that are far apart: {name} on {day}: {prices}{more_rows}. A high that was never paid reaches "
        "sale targets: correct such cells, or leave them empty.",
    )
