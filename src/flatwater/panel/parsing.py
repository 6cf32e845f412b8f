"""Text and vendor types to numbers, or an error that says which cell cannot be read."""

from pathlib import Path

import polars as pl

from flatwater.errors import DataError
from flatwater.printable import shown

MISSING = ("", "nan", "na", "n/a", "null", "none", "-")
"""What counts as a missing number in text, in any case."""

_MONEY = r"^\s*[$€£]\s*(-?[\d.,]+)\s*$"
_GERMAN = r"^-?\d{1,3}(?:\.\d{3})*(?:,\d+)?$|^-?\d+,\d+$"
_ENGLISH = r"^-?\d{1,3}(?:,\d{3})+(?:\.\d+)?$"
_ONLY_ENGLISH = r"^-?\d{1,3}(?:,\d{3})+\.\d+$|^-?\d{1,3}(?:,\d{3}){2,}$"
_ONLY_GERMAN = r"^-?\d{1,3}(?:\.\d{3})+,\d+$|^-?\d+,(?:\d{1,2}|\d{4,})$"


def plain_numbers(frame: pl.DataFrame, *, separator: str) -> pl.DataFrame:
    """Text such as `1.234,5`, `1,234.5` and `$9.5` as `1234.5` and `9.5`, one way of writing for a whole file.

    A comma stands before decimals where one number of the file can only be read so, or where none says and commas do
    not separate its fields; else it stands between thousands.
    """
    text = pl.col(pl.String)
    frame = frame.with_columns(text.str.replace(_MONEY, "$1"))
    stripped = text.str.strip_chars()
    columns = frame.select(stripped).get_columns()
    if not any(column.str.contains(",", literal=True).any() for column in columns):
        return frame  # a point alone stands before decimals
    german, english = (any(each.str.contains(way).any() for each in columns) for way in (_ONLY_GERMAN, _ONLY_ENGLISH))
    german = german or (separator != "," and not english)
    if german:
        points = stripped.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
        return frame.with_columns(pl.when(stripped.str.contains(_GERMAN)).then(points).otherwise(text))
    without = stripped.str.replace_all(",", "", literal=True)
    return frame.with_columns(pl.when(stripped.str.contains(_ENGLISH)).then(without).otherwise(text))


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
