"""Text and vendor types to dates and numbers, or an error that says which cell cannot be read."""

from pathlib import Path

import polars as pl

from flatwater.errors import DataError
from flatwater.printable import shown

MISSING = ("", "nan", "na", "n/a", "null", "none", "-")
"""What counts as a missing number in text, in any case."""

_ISO = r"^(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})(?:[T ].*)?$"


_POINTED = r"^-?\d{1,3}(?:\.\d{3})*,\d+$|^-?\d+,\d+$"
_DOTTED = r"^(\d{1,2}\.\d{1,2}\.\d{4})(?:[T ].*)?$"


def with_points(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns with numbers such as `1.234,5` as `1234.5`: where one cell is written so, all of its column are."""
    columns = []
    for column in frame.get_columns():
        if column.dtype == pl.String and column.str.strip_chars().str.contains(_POINTED).any():
            columns.append(column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True))
        else:
            columns.append(column)
    return pl.DataFrame(columns)


def as_text(source: Path, column: pl.Series) -> pl.Series:
    """A column as text, without space around it.

    Raises:
        DataError: it holds lists, tables or bytes.
    """
    if column.dtype.is_nested() or column.dtype in {pl.Binary, pl.Object}:
        raise DataError(
            f"{source}: column {column.name}: holds {column.dtype}, no text and no numbers. Unpack it first."
        )
    return column.cast(pl.String).str.strip_chars()


def parse_dates(source: Path, column: pl.Series) -> pl.Series:
    """Calendar days, of text that begins with year, month and day (2013-03-01, 2013/03/01, 20130301) or as 31.12.2013.

    A time is dropped.

    Raises:
        DataError: a date is missing or unreadable; the message names the first such row.
    """
    if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        days = column.cast(pl.Date, strict=False)
    else:
        text = as_text(source, column)
        dotted = text.set(~text.str.contains(_DOTTED).fill_null(value=False), None).str.replace(_DOTTED, "$1")
        # The pattern is tried first: strptime alone would take 01/02/2013 by whichever convention fits.
        days = text.str.replace(_ISO, "$1-$2-$3").str.strptime(pl.Date, "%Y-%m-%d", strict=False)
        days = days.fill_null(dotted.str.strptime(pl.Date, "%d.%m.%Y", strict=False))
    if days.null_count():
        row = int(days.is_null().arg_true()[0])
        raise DataError(
            f"{source}: row {row + 1}, column {column.name}: {shown(column[row])} is not a date. Write 2013-03-01."
        )
    return days


def parse_numbers(source: Path, column: pl.Series) -> pl.Series:
    """Numbers as float64, null where missing (empty, NaN or one of `MISSING`).

    Raises:
        DataError: a cell is neither a number nor missing, or is infinite; the message names the first such row.
    """
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        numbers = column.cast(pl.Float64, strict=False)
        unread = pl.repeat(value=False, n=len(column), eager=True)
    else:
        text = as_text(source, column)
        known = ~text.str.to_lowercase().is_in(MISSING).fill_null(value=True)
        numbers = text.cast(pl.Float64, strict=False)
        unread = known & numbers.is_null()
    unread |= numbers.is_infinite().fill_null(value=False)
    if unread.any():
        row = int(unread.arg_true()[0])
        raise DataError(
            f"{source}: row {row + 1}, column {column.name}: {shown(column[row])} is not a finite number. "
            "Leave the cell empty where there is no price."
        )
    return numbers.fill_nan(None)
