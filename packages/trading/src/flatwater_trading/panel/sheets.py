"""Prices in a workbook of a spreadsheet program: a sheet as a table, each cell with its own type.

A cell stays a number, a date or a text: the decimal mark of a number does not have to be guessed. Numbers in text
(`1.234,5`) are read as in a CSV file. Rows above the table (such as a title) are left out.
"""

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import polars as pl

from flatwater_trading.panel.file_rows import set_preceding_rows
from flatwater_trading.panel.naming import join_header_rows
from flatwater_trading.panel.notes import note_about_file
from flatwater_trading.panel.parsing import MISSING_TEXTS, Decimal, plain_numbers
from flatwater_watch.errors import DataError

_WRITTEN_NUMBER = re.compile(r"[$€£+-]?\s*\d[\d.,:/\sTZ-]*")
"""Pattern of text that is a number or a date."""
_ROWS_SEARCHED = 100
"""Number of the first rows in which the table must begin."""


def read_sheet(source: Path, file: IO[bytes], sheet: str | None, decimal: Decimal | None) -> pl.DataFrame:
    """Read the table of a sheet.

    Args:
        source: file, for messages.
        file: workbook, open for reading.
        sheet: name of the sheet; None for the only sheet with a table.
        decimal: decimal mark of cells that are text; None to guess it.

    Raises:
        DataError: the package that reads workbooks is missing, the file is not a workbook, or the sheet is missing or
            ambiguous.
    """
    try:
        import python_calamine as calamine  # noqa: PLC0415  (an extra of the package)
    except ImportError as no_package:
        raise DataError(
            f"{source}: a workbook needs the package python-calamine. Install it with: pip install "
            "'flatwater-trading[excel]', or save the sheet as CSV."
        ) from no_package
    try:
        book = calamine.load_workbook(file)
        # Empty areas are kept, so that row numbers in the note below are those of the spreadsheet.
        tables = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in book.sheet_names}
    except (calamine.CalamineError, OSError) as error:
        raise DataError(
            f"{source}: the workbook cannot be read: {error}. Open it in the program that wrote it, and save it again."
        ) from error
    name = _choose_sheet(source, tables, sheet)
    rows = tables[name]
    header = _header_row(rows)
    if header:
        note_about_file(source, f"sheet {name}: the table begins in row {header + 1}; rows above it are left out.")
    return _build_frame(source, name, rows[header:], decimal, rows_above=header)


def _choose_sheet(source: Path, tables: dict[str, list[list[Any]]], sheet: str | None) -> str:
    """Return the named sheet, or the only sheet with a table, which is noted if there are other sheets.

    Raises:
        DataError: there is no sheet of this name, or several have a table.
    """
    sheet_names = ", ".join(tables)
    if sheet is not None:
        if sheet not in tables:
            raise DataError(f"{source}: --sheet {sheet}: there is no such sheet (found: {sheet_names}). Name one.")
        return sheet
    table_names = [name for name, rows in tables.items() if _first_number_row(rows) is not None]
    if not table_names:
        # No sheet has numbers: the first is read, and a later message says what is wrong with it.
        table_names = list(tables)[:1]
    if len(table_names) != 1:
        raise DataError(
            f"{source}: {len(table_names)} sheets hold a table ({', '.join(table_names)}). "
            "Add --sheet NAME for one of them."
        )
    if len(tables) > 1:
        note_about_file(source, f"sheet {table_names[0]} is read, the only one with a table (found: {sheet_names}).")
    return table_names[0]


def _first_number_row(rows: list[list[Any]]) -> int | None:
    """Find the first row of numbers, below row 0, that fills more than half of the columns; None without such a row.

    A title with the day of printing has a number too, and is narrower than the table below it.
    """
    top_rows = rows[:_ROWS_SEARCHED]
    width = max((_count_filled_cells(row) for row in top_rows), default=0)
    for row_number, row in enumerate(top_rows):
        has_number = any(_is_number_or_date(cell) for cell in row)
        # Row 0 does not count, as there must be a row of names above.
        if row_number > 0 and has_number and _count_filled_cells(row) > 1 and 2 * _count_filled_cells(row) > width:
            return row_number
    return None


def _header_row(rows: list[list[Any]]) -> int:
    """Return the number of the row with the names of the columns, counted from 0; 0 if no row has numbers.

    It is the last row above the first row of numbers that has more than half as many filled cells; if no row is so
    wide, the row just above. If the names are in two rows, as yfinance writes them, it is the upper one.
    """
    number_row = _first_number_row(rows)
    if number_row is None:
        return 0
    wide_rows = [
        row for row in range(number_row) if 2 * _count_filled_cells(rows[row]) > _count_filled_cells(rows[number_row])
    ]
    header = wide_rows[-1] if wide_rows else number_row - 1
    # Two header rows, `Price` and `Ticker`: the upper one is the first.
    has_second_header = header > 0 and join_header_rows(_rows_as_text(rows[header - 1 : header + 2])) is not None
    return header - 1 if has_second_header else header


def _rows_as_text(rows: list[list[Any]]) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in rows]


def _count_filled_cells(row: list[Any]) -> int:
    return sum(cell != "" for cell in row)


def _is_number_or_date(cell: object) -> bool:
    """Return whether a cell is a number, a date, or text that is written like one of them."""
    if isinstance(cell, str):
        return _WRITTEN_NUMBER.fullmatch(cell.strip()) is not None
    # Other cells are numbers and dates, and bools, which are ints in Python but no numbers of a table.
    return not isinstance(cell, bool)


def _build_frame(
    source: Path, sheet: str, rows: list[list[Any]], decimal: Decimal | None, *, rows_above: int
) -> pl.DataFrame:
    """Return the rows as a table: names from one or several header rows, then columns by their types.

    Columns without a name and without a cell are left out, and so are empty rows at the end.

    Args:
        source: workbook, for messages.
        sheet: name of the sheet, for messages.
        rows: cells of each row, from the header on, "" if empty; empty rows at the end are removed in place.
        decimal: decimal mark of text; None to guess it.
        rows_above: rows of the sheet above the header.

    Raises:
        DataError: there is no row, or two columns have the same name.
    """
    while rows and not _count_filled_cells(rows[-1]):
        rows.pop()
    if not rows:
        raise DataError(f"{source}: sheet {sheet} is empty. Add --sheet NAME for another one.")
    single_header = [str(cell).strip() for cell in rows[0]]
    # yfinance writes two or three header rows, whose names are joined; None for a single header row.
    joined_header = join_header_rows(_rows_as_text(rows[:3]))
    names, header_rows = (single_header, 1) if joined_header is None else joined_header
    set_preceding_rows(rows_above + header_rows)
    columns: dict[str, list[Any]] = {}
    for column, name in enumerate(names):
        cells = [row[column] for row in rows[header_rows:]]
        is_empty = name == "" and all(cell == "" for cell in cells)
        if is_empty:
            continue
        if name in columns:
            raise DataError(f"{source}: sheet {sheet}: two columns are named {name!r}. Drop one, or rename it.")
        columns[name] = cells
    text_frame = _parse_text_columns(source, columns, decimal)
    return pl.DataFrame(
        [
            _mixed_column(text_frame[name], cells) if name in text_frame.columns else _typed_column(name, cells)
            for name, cells in columns.items()
        ]
    )


def _parse_text_columns(source: Path, columns: Mapping[str, list[Any]], decimal: Decimal | None) -> pl.DataFrame:
    """Return the columns that have a cell of text, with numbers in text such as `1.234,5` in plain form.

    Their other cells, numbers and dates, are missing here; `_mixed_column` adds them.

    Args:
        source: workbook, for messages.
        columns: cells of each column by name, "" if empty.
        decimal: decimal mark of text; None to guess it.
    """
    text_columns = {name: cells for name, cells in columns.items() if any(_is_text(cell) for cell in cells)}
    text_frame = pl.DataFrame(
        {name: [cell if isinstance(cell, str) else None for cell in cells] for name, cells in text_columns.items()},
        schema=dict.fromkeys(text_columns, pl.String),
    )
    # With a tab as separator, the decimal mark is a comma if nothing else determines it.
    return plain_numbers(source, text_frame, separator="\t", decimal=decimal)


def _is_text(cell: object) -> bool:
    """Return whether a cell makes its column one of text: a text that is not a missing number, or a bool."""
    return isinstance(cell, bool) or (isinstance(cell, str) and cell.strip().lower() not in MISSING_TEXTS)


def _typed_column(name: str, cells: list[Any]) -> pl.Series:
    """Build a column of numbers, days or times, or of text if it has days and numbers; text cells become missing."""
    values = [None if isinstance(cell, str) else cell for cell in cells]
    # A date-time is a date too in Python: `date` stands for both.
    if not any(isinstance(cell, dt.date) for cell in values):
        return pl.Series(name, values, dtype=pl.Float64)
    if not all(cell is None or isinstance(cell, dt.date) for cell in values):
        return pl.Series(name, [None if cell is None else str(cell) for cell in values], dtype=pl.String)
    # A time of midnight is a day.
    if any(isinstance(cell, dt.datetime) and cell.time() != dt.time() for cell in values):
        times = [
            cell if cell is None or isinstance(cell, dt.datetime) else dt.datetime.combine(cell, dt.time())
            for cell in values
        ]
        return pl.Series(name, times, dtype=pl.Datetime("us"))
    days = [cell.date() if isinstance(cell, dt.datetime) else cell for cell in values]
    return pl.Series(name, days, dtype=pl.Date)


def _mixed_column(text: pl.Series, cells: list[Any]) -> pl.Series:
    """Fill a column of text with its numbers and days, written in the form that the parsers read."""
    other_cells = [None if isinstance(cell, str) else _cell_text(cell) for cell in cells]
    return text.fill_null(pl.Series(text.name, other_cells, dtype=pl.String))


def _cell_text(cell: object) -> str:
    """Return a number or day in the form that the parsers read: whole numbers without .0, days as 2024-01-31."""
    if isinstance(cell, float):
        # Workbooks store whole numbers as floats: 20240102 is a date, and 20240102.0 is not.
        return str(int(cell)) if cell.is_integer() else repr(cell)
    if isinstance(cell, dt.datetime) and cell.time() == dt.time():
        return cell.date().isoformat()
    return str(cell)
