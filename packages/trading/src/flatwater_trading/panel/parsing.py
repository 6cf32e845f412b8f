"""Parsing of numbers from text and vendor types; an error names the cell that cannot be read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from flatwater_trading.panel.file_rows import row_number
from flatwater_trading.panel.notes import note_about_file
from flatwater_watch.errors import DataError
from flatwater_watch.phrases import list_phrase
from flatwater_watch.progress import count_steps
from flatwater_watch.sanitize import short_repr

MISSING_TEXTS = ("", "nan", "na", "n/a", "null", "none", "-", "#n/a", "#n/a n/a")
"""Texts that count as a missing number, in any case."""

CURRENCY_SIGNS = "$€£"
_MONEY = rf"^\s*[{CURRENCY_SIGNS}]\s*(-?[\d.,]+)\s*$"  # `$9.5`
_GERMAN = r"^-?\d{1,3}(?:\.\d{3})*(?:,\d+)?$|^-?\d+,\d+$"  # `1.234,5` or `1234,5`
_ENGLISH = r"^-?\d{1,3}(?:,\d{3})+(?:\.\d+)?$"  # `1,234.5`
# 1,234 and 1.234 can be read in both ways: only another number of digits, or both marks, determine the way.
_ONLY_ENGLISH = (
    r"^-?\d{1,3}(?:,\d{3})+\.\d+$|^-?\d{1,3}(?:,\d{3}){2,}$|^-?\d*\.(?:\d{1,2}|\d{4,})$|^-?(?:0?|\d{4,})\.\d+$"
)
_ONLY_GERMAN = r"^-?\d{1,3}(?:\.\d{3})+,\d+$|^-?\d+,(?:\d{1,2}|\d{4,})$|^-?(?:0|\d{4,}),\d+$"

COLUMNS_AT_ONCE = 100
"""Columns that are parsed in one call: separate calls would take longer than the parsing."""

Decimal = Literal["point", "comma"]
"""Decimal mark."""


def plain_numbers(source: Path, frame: pl.DataFrame, *, separator: str, decimal: Decimal | None = None) -> pl.DataFrame:
    """Rewrite text such as `1.234,5`, `1,234.5` and `$9.5` to `1234.5` and `9.5`.

    A number that can be read with only one decimal mark determines the mark of its column. A column without such a
    number is read like most other columns; if no column determines a mark, the mark is a comma in a file whose fields
    a comma does not separate, else a point. A column with numbers of both kinds stays as it is. Signs of more than one
    currency are noted, as an account adds all prices up.

    Args:
        source: file, for notes.
        frame: frame with text in all columns.
        separator: separator of the file's fields.
        decimal: decimal mark of all columns; None to guess it.
    """
    text_columns = pl.col(pl.String)
    if pl.String not in frame.dtypes:
        return frame
    if decimal is None and not any(frame.select(text_columns.str.contains_any([",", *CURRENCY_SIGNS]).any()).row(0)):
        return frame  # like nearly all files: the only mark is a decimal point
    signs = [
        sign for sign in CURRENCY_SIGNS if any(frame.select(text_columns.str.contains(sign, literal=True).any()).row(0))
    ]
    note_currencies(source, signs)
    # `$1` is the number within the pattern, without the sign before it.
    frame = frame.with_columns(text_columns.str.replace(_MONEY, "$1"))
    columns = frame.select(text_columns.str.strip_chars()).get_columns()
    if decimal is None and not any(column.str.contains(",", literal=True).any() for column in columns):
        return frame  # the only mark is a decimal point
    marks_by_column = {column.name: {decimal} if decimal else _required_marks(column) for column in columns}
    # Numbers of columns in which only a comma can be the decimal mark, and in which only a point can be.
    commas = sum(marks == {"comma"} for marks in marks_by_column.values())
    points = sum(marks == {"point"} for marks in marks_by_column.values())
    # A file that separates its fields by commas hardly uses them as decimal marks.
    usual_mark: Decimal = "comma" if commas > points or (commas == points and separator != ",") else "point"
    return frame.with_columns([_plain_column(name, marks or {usual_mark}) for name, marks in marks_by_column.items()])


def note_currencies(source: Path, currencies: Sequence[str]) -> None:
    """Note that prices are in several currencies, if there are more than one."""
    if len(currencies) > 1:
        note_about_file(
            source,
            f"prices in {list_phrase(list(currencies), 3)}: an account adds them up as one currency. Convert them.",
        )


def _required_marks(column: pl.Series) -> set[Decimal]:
    """Return the decimal marks that numbers of a column require; empty if all can be read with both marks."""
    patterns: tuple[tuple[Decimal, str], ...] = (("comma", _ONLY_GERMAN), ("point", _ONLY_ENGLISH))
    return {mark for mark, pattern in patterns if column.str.contains(pattern).any()}


def _plain_column(name: str, marks: set[Decimal]) -> pl.Expr:
    """Return the column `name` with numbers in plain form; cells that cannot be read with the mark stay as they are.

    Args:
        name: name of a column of text.
        marks: decimal mark, `comma` or `point`; a column that requires both stays as it is.
    """
    text, stripped_text = pl.col(name), pl.col(name).str.strip_chars()
    if marks == {"comma"}:
        with_point = stripped_text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
        return pl.when(stripped_text.str.contains(_GERMAN)).then(with_point).otherwise(text).alias(name)
    if marks == {"point"}:
        without_commas = stripped_text.str.replace_all(",", "", literal=True)
        return pl.when(stripped_text.str.contains(_ENGLISH)).then(without_commas).otherwise(text).alias(name)
    return text


def parse_columns(source: Path, frame: pl.DataFrame, names: Sequence[str]) -> dict[str, pl.Series]:
    """Parse many columns: several at once if all their cells are finite numbers, other columns by `parse_numbers`.

    Raises:
        DataError: a cell is neither a finite number nor missing.
    """
    numbers_by_name: dict[str, pl.Series] = {}
    type_by_name = dict(frame.schema)  # once, as polars builds the schema on every access
    chunks = [
        names[first_column : first_column + COLUMNS_AT_ONCE] for first_column in range(0, len(names), COLUMNS_AT_ONCE)
    ]
    for chunk in count_steps(f"columns, {COLUMNS_AT_ONCE} at once", chunks):
        text_names = [name for name in chunk if type_by_name[name] == pl.String]
        numbers = frame.select(pl.col(text_names).str.strip_chars().cast(pl.Float64, strict=False))
        finite_names = set[str]()
        if text_names:
            # True only if all cells are finite numbers: other text is null here, and a null gives False or None.
            is_finite = numbers.select(pl.col(text_names).is_finite().all(ignore_nulls=False)).row(0)
            finite_names = {name for name, finite in zip(text_names, is_finite, strict=True) if finite}
        for name in chunk:
            numbers_by_name[name] = numbers[name] if name in finite_names else parse_numbers(source, frame[name])
    return numbers_by_name


def to_text(source: Path, column: pl.Series) -> pl.Series:
    """Return a column as text, stripped of spaces.

    Raises:
        DataError: the column holds lists, tables or bytes.
    """
    if column.dtype.is_nested() or column.dtype in {pl.Binary, pl.Object}:
        raise DataError(
            f"{source}: column {column.name}: holds {column.dtype}, no text and no numbers. Unpack it first."
        )
    return column.cast(pl.String).str.strip_chars()


def parse_numbers(source: Path, column: pl.Series) -> pl.Series:
    """Parse a column to float64; null for a missing number (empty, NaN or one of `MISSING_TEXTS`).

    Raises:
        DataError: a cell is neither a number nor missing, or is infinite; the message names the first such row.
    """
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        numbers = column.cast(pl.Float64, strict=False)
        unreadable = pl.repeat(value=False, n=len(column), eager=True)  # a number is always readable
    else:
        text = to_text(source, column)
        is_given = ~text.str.to_lowercase().is_in(MISSING_TEXTS).fill_null(value=True)
        numbers = text.cast(pl.Float64, strict=False)
        unreadable = is_given & numbers.is_null()
    unreadable |= numbers.is_infinite().fill_null(value=False)
    if unreadable.any():
        row = int(unreadable.arg_true()[0])
        raise DataError(
            f"{source}: row {row_number(row)}, column {column.name}: {short_repr(column[row])} is not a finite number. "
            "Leave the cell empty if there is no price."
        )
    return numbers.fill_nan(None)  # NaN means missing, too
