"""Numbers of rows in messages about a file, as an editor or a spreadsheet shows them: rows of names count too."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# A context variable instead of a global: two threads may import at the same time.
_rows_above: ContextVar[int] = ContextVar("rows_above", default=0)


@contextmanager
def numbering_of_a_file() -> Iterator[None]:
    """Number the rows of one file in the block; until `set_preceding_rows` is called there are none above its data."""
    token = _rows_above.set(0)
    try:
        yield
    finally:
        _rows_above.reset(token)


def set_preceding_rows(count: int) -> None:
    """Set the number of rows above the first row of data: names, and what a workbook has above them."""
    _rows_above.set(count)


def row_number(index: int) -> int:
    """Return the number in the file of a row of data; `index` counts rows of data from 0."""
    return _rows_above.get() + index + 1
