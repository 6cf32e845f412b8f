"""Prices of long and wide tables in long form: a row for each instrument and day, with symbol, date and prices."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from flatwater_trading.panel.adjusting import adjust_prices, note_adjustment
from flatwater_trading.panel.checking import Prices
from flatwater_trading.panel.dates import DateOrder, parse_dates, seconds_of_day
from flatwater_trading.panel.file_kinds import file_kind
from flatwater_trading.panel.file_rows import row_number
from flatwater_trading.panel.naming import ADJUSTED_CLOSE, ColumnLayout, note_lone_closes
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.panel import PRICES
from flatwater_trading.panel.parsing import parse_columns, parse_numbers, to_text
from flatwater_watch.errors import DataError


def long_prices(
    source: Path, frame: pl.DataFrame, layout: ColumnLayout, order: DateOrder | None, own_features: Sequence[str]
) -> Prices:
    """Read the prices of a long table, which has a row for each instrument and day, in the order of the file.

    A file without a column for symbols has one instrument, which has the file's name.

    Args:
        source: file, for messages.
        frame: columns of the file.
        layout: the file's names of date, symbol and prices.
        order: order of month, day and year, for numbers that leave it open.
        own_features: columns of the file that become features of the panel.

    Raises:
        DataError: a date or a number cannot be read, or a symbol is empty.
    """
    names_by_role = layout.roles
    days = parse_dates(source, frame[names_by_role["date"]], order)
    if "symbol" in names_by_role:
        symbol = to_text(source, frame[names_by_role["symbol"]])
    else:
        symbol = _symbol_from_file_name(source, frame[names_by_role["date"]], days)
    is_nameless = symbol.is_null() | (symbol == "")
    if is_nameless.any():
        row = row_number(int(is_nameless.arg_true()[0]))
        raise DataError(f"{source}: row {row}, column {names_by_role['symbol']}: the symbol is empty.")
    instruments = tuple(sorted(symbol.unique().to_list()))
    if "open" not in names_by_role:
        note_lone_closes(source, len(instruments))
    # A close alone becomes all four prices, so sale targets are met at closes only.
    columns = {price: names_by_role.get(price, names_by_role["close"]) for price in PRICES}
    table = pl.DataFrame(
        [
            pl.int_range(row_number(0), row_number(frame.height), eager=True).alias("row"),
            symbol.alias("symbol"),
            days.alias("date"),
            *(parse_numbers(source, frame[column]).alias(price) for price, column in columns.items()),
            *(parse_numbers(source, frame[name]).alias(name) for name in own_features),
        ]
    )
    adjusted_column = names_by_role.get(ADJUSTED_CLOSE)
    if adjusted_column is not None and adjusted_column != names_by_role["close"]:
        table = table.with_columns(parse_numbers(source, frame[adjusted_column]).alias(ADJUSTED_CLOSE))
        table = adjust_prices(source, table, dict.fromkeys(instruments, adjusted_column))
        note_adjustment(source, adjusted_column)
    column_names = {(name, price): columns[price] for name in instruments for price in PRICES}
    return Prices(frame=table, instruments=instruments, columns=column_names)


def _symbol_from_file_name(source: Path, dates: pl.Series, days: pl.Series) -> pl.Series:
    """Return the file's name as the symbol of every row, for a file of one instrument without symbols; noted.

    Args:
        source: file.
        dates: column of dates as the file has it, possibly with times.
        days: dates as calendar days.

    Raises:
        DataError: a day occurs twice and no row has a time: the file must have several instruments.
    """
    name = source.name.split(".")[0] if file_kind(source) == ".csv.gz" else source.stem
    # A day that occurs twice without times is a table of several instruments whose symbols are missing.
    if days.is_duplicated().any() and seconds_of_day(dates) is None:
        twice = int(days.is_duplicated().arg_true()[0])
        raise DataError(
            f"{source}: column symbol missing, and {days[twice]} (row {row_number(twice)}, column {dates.name}) is "
            "there more than once. Add --map symbol=COLUMN."
        )
    note_about_file(source, f"no column for symbols: all rows are taken as {name}, the file's name.")
    return pl.repeat(name, len(days), eager=True)


def wide_prices(
    source: Path, frame: pl.DataFrame, layout: ColumnLayout, order: DateOrder | None, own_features: Sequence[str]
) -> Prices:
    """Read the prices of a wide table, which has a row for each day, as long form: instrument after instrument.

    Args:
        source: file, for messages.
        frame: columns of the file.
        layout: the file's names of the date, and of each instrument's prices.
        order: order of month, day and year, for numbers that leave it open.
        own_features: fields of the instruments, besides prices, that become features of the panel, such as `signal`.

    Raises:
        DataError: a date or a number cannot be read.
    """
    columns, height = layout.wide_columns, frame.height
    instruments = tuple(dict.fromkeys(name for name, _ in columns))
    days = parse_dates(source, frame[layout.roles["date"]], order)
    adjusted_columns = {name: column for (name, field), column in columns.items() if field == ADJUSTED_CLOSE}
    fields = [*PRICES, *own_features]
    if adjusted_columns:
        fields.append(ADJUSTED_CLOSE)
    number_columns = [column for (_, field), column in columns.items() if field in fields]
    # Each column is parsed once, as a close alone is used as four prices.
    numbers = parse_columns(source, frame, [*dict.fromkeys(number_columns)])
    missing_column = pl.repeat(None, height, dtype=pl.Float64, eager=True)

    def stack_field(field: str) -> pl.Series:
        """Return the numbers of a field, instrument by instrument; null for an instrument without its column."""
        parts = []
        for name in instruments:
            column = columns.get((name, field))
            parts.append(missing_column if column is None else numbers[column])
        return pl.concat(parts).alias(field)

    # Row r of the result is row r % height of the file, for instrument r // height.
    rows = np.arange(len(instruments) * height)
    table = pl.DataFrame(
        [
            # The number of the file's row, which messages name.
            pl.Series("row", rows % max(1, height) + row_number(0)),
            pl.Series("symbol", instruments, dtype=pl.Enum(instruments)).gather(rows // max(1, height)),
            pl.concat([days] * len(instruments)).alias("date"),
            *map(stack_field, fields),
        ]
    )
    if adjusted_columns:
        table = adjust_prices(source, table, adjusted_columns)
        note_adjustment(source, next(iter(adjusted_columns.values())), len(adjusted_columns))
    return Prices(frame=table, instruments=instruments, columns=columns)
