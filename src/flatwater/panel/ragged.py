"""Rows of a CSV file that are shorter or longer than its head: prices in them may stand in the wrong column."""

import csv
import io
from pathlib import Path

from flatwater.errors import DataError
from flatwater.regular import open_regular


def check_rows(source: Path) -> None:
    """Every row must have as many fields as the head.

    Raises:
        DataError: one has not, or is no CSV; names its line.
        OSError: the file cannot be read.
    """
    # Bytes that are no UTF-8 are told by whoever reads the fields; here they only have to be counted.
    with io.TextIOWrapper(open_regular(source), encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file)
        try:
            head = next(rows, [])
            for row in rows:
                if row and len(row) != len(head):
                    raise DataError(
                        f"{source}: line {rows.line_num}: has {len(row)} fields, and the head has {len(head)}. "
                        "Complete the row, or remove it."
                    )
        except csv.Error as wrong:
            raise DataError(f"{source}: line {rows.line_num}: cannot be read as CSV: {wrong}.") from wrong
