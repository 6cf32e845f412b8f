"""Long and wide files to one table: row, symbol, date and four prices as numbers."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from flatwater.errors import DataError
from flatwater.panel.adjusting import RAW_CLOSE, adjust, say_adjusted
from flatwater.panel.checking import Prices
from flatwater.panel.dates import DateOrder, parse_dates
from flatwater.panel.naming import ADJUSTED, Layout, say_closes
from flatwater.panel.notes import note
from flatwater.panel.panel import PRICES
from flatwater.panel.parsing import as_text, parse_numbers


def long_prices(
    source: Path, frame: pl.DataFrame, layout: Layout, order: DateOrder | None, kept: Sequence[str]
) -> Prices:
    """One row for each instrument and day, in the order of the file.

    A file without a column for symbols is of one instrument, which has the file's name.

    Raises:
        DataError: a date or a number cannot be read, or a symbol is empty.
    """
    named = layout.named
    days = parse_dates(source, frame[named["date"]], order)
    if "symbol" in named:
        symbol = as_text(source, frame[named["symbol"]])
    else:
        symbol = _from_file_name(source, named["date"], days)
    nameless = symbol.is_null() | (symbol == "")
    if nameless.any():
        row = int(nameless.arg_true()[0]) + 1
        raise DataError(f"{source}: row {row}, column {named['symbol']}: the symbol is empty.")
    instruments = tuple(sorted(symbol.unique().to_list()))
    if "open" not in named:
        say_closes(source, len(instruments))
    columns = {price: named.get(price, named["close"]) for price in PRICES}
    table = pl.DataFrame(
        [
            pl.int_range(1, frame.height + 1, eager=True).alias("row"),
            symbol.alias("symbol"),
            days.alias("date"),
            *(parse_numbers(source, frame[column]).alias(price) for price, column in columns.items()),
            *(parse_numbers(source, frame[name]).alias(name) for name in kept),
        ]
    )
    if (adjusted := named.get(ADJUSTED)) not in {None, named["close"]}:
        table = adjust(source, table, adjusted, parse_numbers(source, frame[adjusted]))
        say_adjusted(source, adjusted)
    return Prices(table, instruments, {(name, price): columns[price] for name in instruments for price in PRICES})


def _from_file_name(source: Path, column: str, days: pl.Series) -> pl.Series:
    if days.is_duplicated().any():
        first = int(days.is_duplicated().arg_true()[0])
        raise DataError(
            f"{source}: column symbol missing, and {days[first]} (row {first + 1}, column {column}) is there more than "
            "once. Add --map symbol=COLUMN."
        )
    note(source, f"no column for symbols: all rows are taken as {source.stem}, the file's name.")
    return pl.repeat(source.stem, len(days), eager=True)


def wide_prices(
    source: Path, frame: pl.DataFrame, layout: Layout, order: DateOrder | None, kept: Sequence[str]
) -> Prices:
    """Wide form as long: the rows of the first instrument, then those of the next.

    Raises:
        DataError: a date or a number cannot be read.
    """
    columns = layout.wide
    instruments = tuple(dict.fromkeys(name for name, _ in columns))
    days = parse_dates(source, frame[layout.named["date"]], order)
    prices = dict.fromkeys(column for (_, field), column in columns.items() if field in {*PRICES, *kept})
    numbers = {column: parse_numbers(source, frame[column]) for column in prices}
    nothing = pl.repeat(None, frame.height, dtype=pl.Float64, eager=True)
    parts = []
    for name in instruments:
        part = pl.DataFrame(
            [
                pl.int_range(1, frame.height + 1, eager=True).alias("row"),
                days.alias("date"),
                *(numbers[columns[name, price]].alias(price) for price in PRICES),
            ]
        ).with_columns(
            pl.lit(name).alias("symbol"),
            *(numbers.get(columns.get((name, each), ""), nothing).alias(each) for each in kept),
        )
        if (adjusted := columns.get((name, ADJUSTED))) is not None:
            part = adjust(source, part, adjusted, parse_numbers(source, frame[adjusted]))
        elif any(price == ADJUSTED for _, price in columns):
            part = part.with_columns(pl.col("close").alias(RAW_CLOSE))
        parts.append(part)
    if scaled := [column for (_, price), column in columns.items() if price == ADJUSTED]:
        say_adjusted(source, scaled[0], len(scaled))
    return Prices(pl.concat(parts), instruments, columns)
