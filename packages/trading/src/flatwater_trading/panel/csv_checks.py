"""Checks of a CSV file before it is read: its separator, an unclosed quote, and rows that do not fit the header."""

import csv
import io
from pathlib import Path

from flatwater_watch.errors import DataError
from flatwater_watch.files.regular_files import open_regular

SEPARATORS = (";", "\t")
"""Separators of fields besides the comma: used if the header row has one of them and no comma."""


def find_separator(text: Path) -> str:
    """Return the separator of a file's fields: a semicolon or tab if its header row has one and no comma, else a comma.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(text) as file:
        # Limited, as a file without line ends, such as a binary file, would be read whole. 1 MiB is 50,000 names.
        header = file.readline(1 << 20).decode(errors="replace")
    return next((separator for separator in SEPARATORS if separator in header and "," not in header), ",")


def find_unclosed_quote(text: Path) -> int | None:
    """Return the line number of a quotation mark of a CSV file that is never closed; None if all marks are in pairs.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(text) as file:
        odd_lines = [number for number, line in enumerate(file, 1) if line.count(b'"') % 2]
    # A field may have a line end between its marks. Such lines come in pairs, so with an odd number the last is alone.
    return odd_lines[-1] if len(odd_lines) % 2 else None


def refuse_unclosed_quote(source: Path, text: Path) -> None:
    """Refuse a file in which a quotation mark is never closed.

    Raises:
        DataError: there is such a mark; the message names its line.
        OSError: the file cannot be read.
    """
    if (line := find_unclosed_quote(text)) is not None:
        raise DataError(f'{source}: line {line}: has a quotation mark (") without a second. Close it, or remove it.')


def check_rows(source: Path, separator: str = ",", *, text: Path | None = None) -> None:
    """Check that every row has as many fields as the header.

    Args:
        source: file, for messages.
        separator: separator of fields.
        text: file that is read; None for `source` itself.

    Raises:
        DataError: a row has more or fewer fields, or cannot be read as CSV; the message names its line.
        OSError: the file cannot be read.
    """
    # Bytes that are not UTF-8 are reported when the fields are read; here fields are only counted.
    with io.TextIOWrapper(open_regular(text or source), encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        try:
            header = next(rows, [])
            for row in rows:
                if row and len(row) != len(header):  # an empty line has no fields, and is skipped
                    # Another reason first: a quotation mark that is never closed joins fields and lines.
                    refuse_unclosed_quote(source, text or source)
                    raise DataError(
                        f"{source}: line {rows.line_num}: has {len(row)} fields, and the head has {len(header)}. "
                        "Complete the row, or remove it."
                    )
        except csv.Error as error:
            refuse_unclosed_quote(source, text or source)
            raise DataError(f"{source}: line {rows.line_num}: cannot be read as CSV: {error}.") from error
