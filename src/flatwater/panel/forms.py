"""Long and wide files to one table: row, symbol, date and four prices as numbers."""

import logging
from pathlib import Path

import polars as pl

from flatwater.errors import DataError
from flatwater.panel.adjusting import adjust, say_adjusted, say_unused
from flatwater.panel.checking import PRICES, Prices
from flatwater.panel.naming import ADJUSTED, IGNORED, adjusted_column, find_columns, long_columns, wide_column
from flatwater.panel.parsing import as_text, parse_dates, parse_numbers

_log = logging.getLogger(__name__)


def long_prices(source: Path, frame: pl.DataFrame) -> Prices:
    """One row for each instrument and day, in the order of the file.

    Raises:
        DataError: columns are missing, a date or a number cannot be read, or a symbol is empty.
    """
    named = long_columns(source, frame.columns)
    symbol = as_text(source, frame[named["symbol"]])
    nameless = symbol.is_null() | (symbol == "")
    if nameless.any():
        row = int(nameless.arg_true()[0]) + 1
        raise DataError(f"{source}: row {row}, column {named['symbol']}: the symbol is empty.")
    adjusted = adjusted_column(frame.columns)
    table = pl.DataFrame(
        [
            pl.int_range(1, frame.height + 1, eager=True).alias("row"),
            symbol.alias("symbol"),
            parse_dates(source, frame[named["date"]]).alias("date"),
            *(parse_numbers(source, frame[named[price]]).alias(price) for price in PRICES),
        ]
    )
    if adjusted is not None:
        table = adjust(source, table, adjusted, parse_numbers(source, frame[adjusted]))
        say_adjusted(source, adjusted)
    say_unused(source, [column for column in frame.columns if column not in {*named.values(), adjusted}])
    instruments = tuple(sorted(symbol.unique().to_list()))
    return Prices(table, instruments, {(name, price): named[price] for name in instruments for price in PRICES})


def wide_prices(source: Path, frame: pl.DataFrame) -> Prices:
    """Wide form as long: the rows of the first instrument, then those of the next.

    Raises:
        DataError: an instrument lacks a price, two columns mean the same, or a date or number cannot be read.
    """
    date = find_columns(source, frame.columns, ("date",))["date"]
    columns = _wide_columns(source, [column for column in frame.columns if column != date])
    instruments = tuple(dict.fromkeys(name for name, _ in columns))
    days = parse_dates(source, frame[date])
    prices = dict.fromkeys(column for (_, price), column in columns.items() if price in PRICES)
    numbers = {column: parse_numbers(source, frame[column]) for column in prices}
    parts = []
    for name in instruments:
        part = pl.DataFrame(
            [
                pl.int_range(1, frame.height + 1, eager=True).alias("row"),
                days.alias("date"),
                *(numbers[columns[name, price]].alias(price) for price in PRICES),
            ]
        ).with_columns(symbol=pl.lit(name))
        if (adjusted := columns.get((name, ADJUSTED[0]))) is not None:
            part = adjust(source, part, adjusted, parse_numbers(source, frame[adjusted]))
        parts.append(part)
    if scaled := [column for (_, price), column in columns.items() if price == ADJUSTED[0]]:
        say_adjusted(source, scaled[0], len(scaled))
    say_unused(source, [column for column in frame.columns if column != date and column not in columns.values()])
    return Prices(pl.concat(parts), instruments, columns)


def _wide_columns(source: Path, columns: list[str]) -> dict[tuple[str, str], str]:
    """The file's column of each (instrument, price)."""
    found: dict[tuple[str, str], str] = {}
    for column in columns:
        place = wide_column(column)
        if place is not None and place[1] in {*PRICES, ADJUSTED[0]}:
            if place in found:
                raise DataError(f"{source}: columns {found[place]!r} and {column!r} are the same price. Drop one.")
            found[place] = column
    if not found:
        return _closes(source, columns)
    for name in dict.fromkeys(name for name, _ in found):
        missing = [price for price in PRICES if (name, price) not in found]
        if len(missing) == len(PRICES):
            alone = found[name, ADJUSTED[0]]
            raise DataError(f"{source}: column {alone}: {name} has no other price. Call it {name}_close.")
        if missing and missing != ["open", "high", "low"]:
            raise DataError(f"{source}: instrument {name} has no column for {' and '.join(missing)}.")
    closes = [name for name, price in found if price == "close" and (name, "open") not in found]
    if closes:
        _say_closes(source, len(closes))
    return found | {(name, price): found[name, "close"] for name in closes for price in PRICES}


def _closes(source: Path, columns: list[str]) -> dict[tuple[str, str], str]:
    names = [column for column in columns if column.strip().lower() not in IGNORED]
    if not names:
        raise DataError(f"{source}: the file has dates, but no column with prices.")
    _say_closes(source, len(names))
    return {(name.strip(), price): name for name in names for price in PRICES}


def _say_closes(source: Path, count: int) -> None:
    _log.warning(
        "%s: one price a day for %d instruments. It is taken as the close, and open, high and low are set equal to it: "
        "sale targets are then reached at closes only.",
        source,
        count,
    )
