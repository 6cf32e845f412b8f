"""Positions in a file: a CSV table that a person can read, edit and keep from one day to the next.

The money of the account is in a separate row, `cash`, with the amount under `shares`. A spreadsheet runs text that
begins with `=`, `+`, `-` or `@` as a formula, so such a name is written with an apostrophe before it.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path

from flatwater_trading.market.orders import Position
from flatwater_trading.recipe.weights.orders import StopRecord
from flatwater_watch.errors import DataError
from flatwater_watch.files.output import replace_output, table_kind
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.options.bounds import Bounds
from flatwater_watch.phrases import list_phrase
from flatwater_watch.sanitize import short_repr

COLUMNS = tuple(field.name for field in fields(Position))
POSITIONS = table_kind("a table of positions", COLUMNS)
SHARE_COLUMNS = ("instrument", "shares")
SHARES = table_kind("a table of shares", SHARE_COLUMNS)
CASH = "cash"
PEAK, SINCE = "stop.peak", "stop.since"
"""Rows of a stop: the highest equity, and the day on which the account was stopped."""
# Also names with apostrophes in front: writing adds an apostrophe and reading removes one, so every name survives.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
MAXIMUM_AMOUNT = 1e15
MAXIMUM_NAMED = 8
"""Columns of a file that is no such table that a message names."""
PRICES, MONEY, SHORT_OR_LONG = (
    Bounds(1e-9, MAXIMUM_AMOUNT),
    Bounds(0, MAXIMUM_AMOUNT),
    Bounds(-MAXIMUM_AMOUNT, MAXIMUM_AMOUNT),
)
"""Bounds of a price, a target and a highest equity; of cash and of shares that were bought; and of shares that may be
sold short."""
# A purchase without any cash left has 0 shares: the simulator holds it as well.
_BOUNDS = {"entry_price": PRICES, "target": PRICES, "shares": MONEY}


@dataclass(frozen=True)
class Portfolio:
    """Positions and cash before a day."""

    positions: tuple[Position, ...] = ()
    cash: float | None = None
    """Money of the account besides the positions; None if the file has no row of cash."""

    @property
    def shares(self) -> dict[str, float]:
        """Shares by instrument."""
        return {position.instrument: position.shares for position in self.positions}

    @property
    def text(self) -> str:
        """The text of the table."""
        text = io.StringIO()
        # restval: the row of cash has no other cells.
        table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        for position in self.positions:
            table.writerow(asdict(position) | {"instrument": spreadsheet_cell(position.instrument)})
        table.writerow({"instrument": CASH, "shares": self.cash})
        return text.getvalue()

    def multiply_shares(self, factors: Mapping[str, float], *, has_entry_prices: bool) -> "Portfolio":
        """Return the portfolio after splits: the shares of each instrument multiplied by its factor.

        Args:
            factors: factor by instrument, such as 2 for a split of 2 to 1; instruments that it lacks do not change.
            has_entry_prices: whether prices of purchases are divided by the factor. They are if the whole past of the
                prices was adjusted; prices as traded keep the value of their own day.
        """
        positions = []
        for position in self.positions:
            factor = factors.get(position.instrument, 1.0)
            price = position.entry_price / factor if has_entry_prices else position.entry_price
            positions.append(replace(position, shares=position.shares * factor, entry_price=price))
        return Portfolio(tuple(positions), self.cash)

    def write(self, file: Path) -> None:
        """Write the table to a file, atomically.

        Raises:
            RunError: `file` cannot be written, or exists and is not a table of positions.
        """
        replace_output(file, self.text.encode(), POSITIONS)


def read_positions(file: Path) -> Portfolio:
    """Read the positions of a file with the columns instrument, entry_date, entry_price, target (percent) and shares.

    Raises:
        DataError: the file or a cell of it cannot be read; the message names row, column and the expected value.
    """
    rows, cash = _read_rows(file, COLUMNS)
    return Portfolio(tuple(_parse_position(file, number, row) for number, row in rows), cash)


@dataclass(frozen=True)
class ShareTable:
    """Shares, cash and the stop of an account of target weights before a day."""

    shares: Mapping[str, float]
    """Shares by instrument; below 0 if they are sold short."""
    cash: float | None
    """Money of the account besides the shares; None if the file has no row of cash."""
    stop: StopRecord | None
    """Record of the stop; None if the file has no row of the highest equity."""

    @property
    def text(self) -> str:
        """The text of the table; the cash must be known."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(SHARE_COLUMNS)
        # repr: the shortest text that is read as the same number.
        table.writerows((spreadsheet_cell(name), repr(count)) for name, count in self.shares.items())
        table.writerow((CASH, repr(self.cash)))
        if self.stop is not None:
            table.writerow((PEAK, repr(self.stop.peak)))
            if self.stop.since:
                table.writerow((SINCE, self.stop.since))
        return text.getvalue()

    def multiply_shares(self, factors: Mapping[str, float], *, has_entry_prices: bool) -> "ShareTable":  # noqa: ARG002  (it has none)
        """Return the shares of each instrument times its factor; 1 for others."""
        return replace(self, shares={name: count * factors.get(name, 1.0) for name, count in self.shares.items()})

    def write(self, file: Path) -> None:
        """Write the table to a file, atomically.

        Raises:
            RunError: `file` cannot be written, or exists and is not a table of shares.
        """
        replace_output(file, self.text.encode(), SHARES)


def read_shares(file: Path) -> ShareTable:
    """Read a file with the columns instrument and shares: instruments, cash, and the rows of a stop.

    Raises:
        DataError: the file or a cell of it cannot be read, or a name has two rows.
    """
    rows, cash = _read_rows(file, SHARE_COLUMNS)
    shares: dict[str, float] = {}
    names = set[str]()
    # Of the stop: the highest equity so far, and the date on which it sold everything.
    peak, stop_day = None, ""
    for number, row in rows:
        # A cell that a short row lacks is None.
        name, cell_name = name_in_cell((row["instrument"] or "").strip()), f"{file}: row {number}, column shares"
        if name in names:
            raise DataError(f"{file}: row {number}: a second row of {name}. Leave one of them out.")
        names.add(name)
        if name == PEAK:
            peak = _parse_number(cell_name, row["shares"], PRICES)
        elif name == SINCE:
            stop_day = _parse_day(cell_name, row["shares"])
        else:
            shares[name] = _parse_number(cell_name, row["shares"], SHORT_OR_LONG)
    return ShareTable(shares, cash, None if peak is None else StopRecord(peak=peak, since=stop_day))


def _read_rows(file: Path, columns: Sequence[str]) -> tuple[list[tuple[int, dict[str, str | None]]], float | None]:
    """Return the rows of a table with these columns, each with its line in the file, and the cash of its separate row.

    The cash is None if there is no such row.

    Raises:
        DataError: the file cannot be read, lacks a column, or has two rows of cash.
    """
    try:
        # utf-8-sig: spreadsheets write a byte order mark, which would become part of the first column's name.
        table = csv.DictReader(io.StringIO(read_regular(file).decode("utf-8-sig"), newline=""))
        absent = [name for name in columns if name not in (table.fieldnames or ())]
        if absent:
            found = list_phrase(table.fieldnames or (), MAXIMUM_NAMED) or "no column"
            raise DataError(
                f"{file}: expected the columns {', '.join(columns)}, got {found}. `flatwater orders RUN --after FILE` "
                "writes such a table."
            )
        rows = [(table.line_num, row) for row in table]
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {error.strerror}. Check the path.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: the file cannot be read as a CSV table: {error}.") from error
    cash_rows = [(number, row) for number, row in rows if row["instrument"] == CASH]
    other_rows = [(number, row) for number, row in rows if row["instrument"] != CASH]
    if not cash_rows:
        return other_rows, None
    number, row = cash_rows[0]
    cash = _parse_number(f"{file}: row {number}, column shares", row["shares"], MONEY)
    if len(cash_rows) > 1:
        second_number, _ = cash_rows[1]
        raise DataError(f"{file}: row {second_number}: a second row of {CASH}. One says how much there is.")
    return other_rows, cash


def _parse_position(file: Path, number: int, row: dict[str, str | None]) -> Position:
    """Parse a row of the file as a position; `number` is its line in the file, for messages.

    Raises:
        DataError: the date or a number cannot be read, or a number is out of its bounds.
    """
    cell_name = f"{file}: row {number}, column"
    day = _parse_day(f"{cell_name} entry_date", row["entry_date"])
    values = {name: _parse_number(f"{cell_name} {name}", row[name], bounds) for name, bounds in _BOUNDS.items()}
    return Position(instrument=name_in_cell((row["instrument"] or "").strip()), entry_date=day, **values)


def _parse_day(cell_name: str, text: str | None) -> str:
    """Parse a day in ISO format; `cell_name` names file, row and column at the start of a message.

    Raises:
        DataError: the text is missing or not a date.
    """
    day = (text or "").strip()
    try:
        date.fromisoformat(day)
    except ValueError as error:
        raise DataError(f"{cell_name}: {short_repr(day)} is not a date. Write it as 2024-01-31.") from error
    return day


def _parse_number(cell_name: str, text: str | None, bounds: Bounds) -> float:
    """Parse a number within bounds; `cell_name` names file, row and column at the start of a message.

    Raises:
        DataError: the text is missing or not such a number.
    """
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")  # outside of all bounds
    if not bounds.allows(value):
        raise DataError(f"{cell_name}: {short_repr(text)}: expected {bounds}, with a point for its decimals.")
    return value


def spreadsheet_cell(name: str) -> str:
    """Return a name as a cell that spreadsheets do not take for a formula."""
    return f"'{name}" if _FORMULA.match(name) else name


def name_in_cell(text: str) -> str:
    """Return the name that `spreadsheet_cell` wrote as this cell; a cell without its apostrophe stays as it is."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
