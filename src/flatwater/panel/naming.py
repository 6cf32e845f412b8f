"""What can be imported, and which column is what: the names that vendors use for dates, instruments and prices."""

import re
from pathlib import Path

from flatwater.errors import DataError

SUFFIXES = (".parquet", ".csv")
"""The files that can be imported."""

SYNONYMS = {
    "symbol": ("symbol", "ticker", "instrument", "sym", "asset", "security", "name"),
    "date": ("date", "timestamp", "datetime", "day", "time"),
    "open": ("open", "o", "open_price"),
    "high": ("high", "h", "high_price"),
    "low": ("low", "l", "low_price"),
    "close": ("close", "c", "close_price"),
}
"""Accepted names of each column in lower case, with spaces as underscores; an earlier one is preferred."""

ADJUSTED = ("adj_close", "adjusted_close", "adjclose", "adjusted")
"""The close after splits and dividends: where it is there, all prices are scaled by it."""
IGNORED = ("volume", "vol", "dividends", "stock_splits", *ADJUSTED)
"""Columns that are no price of a day."""

_PRICES = "open|high|low|close"
_FIELDS = f"adj[_. ]?close|{_PRICES}|volume"
_SUFFIXED = re.compile(rf"(?P<symbol>.+?)[_. :/-](?P<field>{_FIELDS})", re.IGNORECASE)
_PREFIXED = re.compile(rf"(?P<field>{_FIELDS})[_. :/-](?P<symbol>.+)", re.IGNORECASE)
_PAIR = re.compile(r"\(\s*'(?P<first>[^']*)'\s*,\s*'(?P<second>[^']*)'\s*\)")


def find_columns(source: Path, columns: list[str], wanted: tuple[str, ...]) -> dict[str, str]:
    """The file's own names of the wanted columns; those that it does not have are left out.

    Raises:
        DataError: two columns differ only in case.
    """
    plain: dict[str, str] = {}
    for column in columns:
        if _plain(column) in plain:
            raise DataError(f"{source}: columns {plain[_plain(column)]!r} and {column!r} have the same name. Drop one.")
        plain[_plain(column)] = column
    found = {}
    for name in wanted:
        named = [plain[synonym] for synonym in SYNONYMS[name] if synonym in plain]
        if named:
            found[name] = named[0]
    return found


def long_columns(source: Path, columns: list[str]) -> dict[str, str]:
    """The file's names of symbol, date, open, high, low and close, or nothing where the file is in wide form.

    A file with a column for symbols, or with a plain column `close`, is taken as long.

    Raises:
        DataError: the file is in long form, but columns are missing; or it has no column of dates at all.
    """
    found = find_columns(source, columns, tuple(SYNONYMS))
    prices = [column for column in columns if wide_column(column)]
    if "date" not in found or (not prices and found.keys() & {"symbol", "open", "high", "low", "close"}):
        missing = [name for name in SYNONYMS if name not in found]
        if missing:
            raise DataError(
                f"{source}: column {' and '.join(missing)} missing (found: {', '.join(columns[:20])}). Long form needs "
                "symbol, date, open, high, low, close; wide form needs date and columns such as AAPL_open, AAPL_high, "
                "AAPL_low, AAPL_close, or one closing price for each instrument."
            )
        return found
    return {}


def adjusted_column(columns: list[str]) -> str | None:
    """The file's name of the adjusted close, in long form."""
    return next((column for column in columns if _plain(column) in ADJUSTED), None)


def wide_column(column: str) -> tuple[str, str] | None:
    """Instrument and price (`open`, `high` ...) of a column such as `AAPL_close` or `close.AAPL`; None for others.

    Pairs that pandas wrote as text, `('AAPL', 'close')`, count too.
    """
    pair = _PAIR.fullmatch(column)
    text = f"{pair['first']}.{pair['second']}" if pair else column
    found = _SUFFIXED.fullmatch(text) or _PREFIXED.fullmatch(text)
    if found is None or _plain(text) in IGNORED or any(_plain(text) in names for names in SYNONYMS.values()):
        return None
    field = found["field"].lower()
    return found["symbol"], ADJUSTED[0] if field.startswith("adj") else field


def _plain(column: str) -> str:
    return re.sub(r"[\s.-]+", "_", column.strip().lower())
