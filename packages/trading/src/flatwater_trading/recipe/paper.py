"""A paper account in a folder: a trained trader's orders of each evening, filled at the close, by the rules of costs.

`journal.jsonl` is the account: a line for each evening, appended whole or not at all. `held.csv` has what is held after
the newest evening, for a person to read and to correct: where a real broker has filled an order otherwise, its rows
are edited, and the next evening begins from them.
"""

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from flatwater_trading.market.market import last_usable_closes
from flatwater_trading.market.orders import Orders
from flatwater_trading.panel.panel import Panel, first_days
from flatwater_trading.panel.traded_closes import traded_ratio
from flatwater_trading.recipe.positions import Portfolio, ShareTable, read_positions, read_shares
from flatwater_trading.recipe.trader import Trader
from flatwater_trading.recipe.weights.orders import WeightOrders
from flatwater_trading.recipe.weights.trader import WeightsTrader
from flatwater_watch.errors import ConfigError, DataError, RunError
from flatwater_watch.files.directory import explain_os_errors, write_object
from flatwater_watch.files.json_values import convert_to_type, encode_json, parse_json
from flatwater_watch.files.output import flatwater_folder_kind
from flatwater_watch.files.regular_files import append_regular, read_regular
from flatwater_watch.phrases import list_phrase
from flatwater_watch.progress import count_steps

JOURNAL, HELD, LOCK = "journal.jsonl", "held.csv", ".lock"
MAXIMUM_BYTES = 1 << 30
"""Most bytes of a journal that is read."""
ADJUSTMENT_TOLERANCE = 1e-5
"""Relative change of a price above which a file's past counts as adjusted again; prices are kept to 1e-7."""
Book = Portfolio | ShareTable
"""The holdings of an account: positions of whole purchases, or shares of target weights; both with cash."""


@dataclass(frozen=True, kw_only=True)
class PaperOrder:
    """An order that was filled."""

    order: str
    """`buy` or `sell`."""
    instrument: str
    shares: float
    price: float


@dataclass(frozen=True, kw_only=True)
class Evening:
    """An evening of the account, after its orders were filled."""

    date: str
    trader: str
    """Recipe of the trader: `erl` or `weights`."""
    run: str
    equity: float
    """Cash and shares at the last closes, after costs."""
    cash: float
    cost: float
    """Costs of the orders; they are already taken from `cash` and `equity`."""
    orders: tuple[PaperOrder, ...]
    prices: Mapping[str, float]
    """Last close of each instrument that is held: a file whose past was adjusted again has another close."""
    held_before: str
    """Hash of the text of `held.csv` before the orders: a call that was killed may have left that table."""
    held: str
    """Text of `held.csv` after the orders."""


@dataclass(frozen=True)
class PlayedEvenings:
    """What a call of the account has done."""

    evenings: tuple[Evening, ...]
    """All evenings of the account."""
    new: int
    """Number of evenings that were played now."""
    orders: Orders | WeightOrders | None
    """Orders of the newest evening; None if no evening was played now."""
    notes: tuple[str, ...]
    """Sentences about what was found in the folder or in the prices."""


@contextmanager
def hold_account(folder: Path) -> Iterator[None]:
    """Make the account's folder and lock it against other processes; the system frees the lock when this process ends.

    Raises:
        ConfigError: the folder is a file, belongs to a run, or has other files and no account.
        RunError: another process plays the account now, or the folder cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, got a file. Name another folder.")
    if kind := flatwater_folder_kind(folder):
        raise ConfigError(f"{folder}: expected a folder for an account, got the folder of {kind}. Name another one.")
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        other_files = sorted(path.name for path in folder.iterdir() if path.name not in {JOURNAL, HELD, LOCK})
        if other_files and not (folder / JOURNAL).exists():
            raise ConfigError(
                f"{folder}: expected the folder of an account, or an empty one, got one with "
                f"{list_phrase(other_files, maximum=3)}. Name another folder."
            )
        lock = append_regular(folder / LOCK)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(f"{folder}: another process plays this account. Wait for it.") from error
        yield


def play_account(
    trader: Trader | WeightsTrader,
    panel: Panel,
    folder: Path,
    *,
    run: str,
    first: str | None = None,
    cash: float | None = None,
    budget: str | None = None,
) -> PlayedEvenings:
    """Play every evening of the prices since the account's last one, and write each before the next begins.

    Args:
        trader: trader of the account; another run may go on with it.
        panel: prices of the trader's `align_panel`, or of `align_traded_panel`.
        folder: folder of the account, held by `hold_account`.
        run: name of the trader's run, for the journal.
        first: ISO date of the first evening of a new account. Left out: the newest day of the prices.
        cash: money of a new account. Left out: that of the settings.
        budget: memory that may be taken.

    Raises:
        ConfigError: `first` or `cash` is given for an account that has begun, or the trader is of another kind.
        DataError: the prices do not have the account's last evening, or a file of the folder cannot be read.
    """
    evenings, notes = list(read_journal(folder)), list[str]()
    _drop_cut_line(folder / JOURNAL, evenings, notes)
    recipe = "weights" if isinstance(trader, WeightsTrader) else "erl"
    if evenings and (first is not None or cash is not None):
        raise ConfigError(f"{folder}: the account began on {evenings[0].date}. Leave --from and --cash out.")
    _require_recipe(folder, evenings, recipe)
    # `text` is the contents of held.csv, and `book` what it describes.
    text, book = _open_book(trader, folder, evenings, cash, notes)
    closes, orders, played_count = AccountCloses(panel), None, 0
    for row in count_steps("evenings", _new_rows(panel, evenings, first)):
        if evenings:  # a split since the last evening changes the shares
            book = closes.rescale_book(book, evenings[-1], row, notes)
        # The trader sees the prices up to and with this evening.
        orders = _decide_orders(trader, first_days(panel, row + 1), book, budget)
        book = _book_after_orders(orders)
        prices = {name: closes.price(row, name) for name in book.shares}
        old_hash = text_hash(text)
        text = book.text
        evenings.append(_evening_record(orders, book, prices, recipe=recipe, run=run, earlier_hash=old_hash, held=text))
        # The journal first: a table that is older than the journal is known by its hash, a newer one would look edited.
        _append_evening(folder / JOURNAL, evenings[-1])
        write_object(folder / HELD, text.encode())
        played_count += 1
    return PlayedEvenings(tuple(evenings), played_count, orders, tuple(notes))


def _require_recipe(folder: Path, evenings: Sequence[Evening], recipe: str) -> None:
    """Check that the account in a folder was begun by a trader of this recipe, or is new.

    Raises:
        ConfigError: it was begun by a trader of another recipe.
    """
    if evenings and evenings[0].trader != recipe:
        raise ConfigError(
            f"{folder}: expected a trader of `train {evenings[0].trader}`, which began the account, got one of "
            f"`train {recipe}`. Name another folder for it."
        )


def _evening_record(
    orders: Orders | WeightOrders,
    book: Book,
    prices: Mapping[str, float],
    *,
    recipe: str,
    run: str,
    earlier_hash: str,
    held: str,
) -> Evening:
    """Return the journal's record of an evening.

    Args:
        orders: orders of the evening.
        book: positions or shares after the orders.
        prices: last close of each instrument that is held.
        recipe: recipe of the trader.
        run: name of the trader's run.
        earlier_hash: hash of `held.csv` before the orders.
        held: text of `held.csv` after the orders.
    """
    return Evening(
        date=orders.date,
        trader=recipe,
        run=run,
        equity=orders.cash + sum(count * prices[name] for name, count in book.shares.items()),
        cash=orders.cash,
        cost=orders.cost,
        orders=tuple(_filled_orders(orders)),
        prices=prices,
        held_before=earlier_hash,
        held=held,
    )


def read_journal(folder: Path) -> tuple[Evening, ...]:
    """Read the evenings of an account; empty for a folder without a journal. A last line that was cut off is left out.

    Raises:
        DataError: the journal is damaged; the message names the line.
    """
    file = folder / JOURNAL
    try:
        lines = read_regular(file, MAXIMUM_BYTES, follow_links=False).splitlines(keepends=True)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {error.strerror}.") from error
    evenings = []
    # Only the last line can lack its end.
    full_lines = [line for line in lines if line.endswith(b"\n")]
    for number, line in enumerate(full_lines, start=1):
        try:
            evenings.append(convert_to_type(parse_json(line), Evening))
        except ValueError as error:
            raise DataError(f"{file}: line {number}: is no evening of an account: {error}. Remove the line.") from error
    return tuple(evenings)


def _drop_cut_line(file: Path, evenings: list[Evening], notes: list[str]) -> None:
    """If the journal's last line has no end, write the journal again without that line, and say so in `notes`.

    A full disk or a power cut leaves such a line; the next evening would be appended to it.

    Args:
        file: the journal.
        evenings: evenings of its whole lines.
        notes: sentences for the user; one is added.
    """
    if file.exists() and not read_regular(file, MAXIMUM_BYTES, follow_links=False).endswith(b"\n"):
        notes.append(f"{file}: the last line was cut off, and its evening is played again.")
        write_object(file, b"".join(_journal_line(evening) for evening in evenings))


def _append_evening(file: Path, evening: Evening) -> None:
    """Append an evening to the journal as one line, and wait until it is on the disk.

    If the process is killed meanwhile, the line is there whole, or `_drop_cut_line` removes its part at the next call.

    Raises:
        RunError: the disk is full, or the file cannot be written.
    """
    line = _journal_line(evening)
    with explain_os_errors(file), append_regular(file) as journal:
        if journal.write(line) < len(line):  # the file has no buffer, so the disk took only a part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(journal.fileno())


def _journal_line(evening: Evening) -> bytes:
    """Return an evening as a line of the journal."""
    return encode_json(asdict(evening)) + b"\n"


def _open_book(
    trader: Trader | WeightsTrader, folder: Path, evenings: list[Evening], cash: float | None, notes: list[str]
) -> tuple[str, Book]:
    """Return the text of `held.csv`, and the book that it describes: what is held before the next evening's orders.

    A new account has an empty text, and cash alone. If the text differs from that which the newest evening has written,
    there are two cases, both of which add a sentence to `notes`:

    - The file is missing, or still that of the evening before: it is written again.
    - A person has edited it: the edited table is taken.
    """
    holds_weights = isinstance(trader, WeightsTrader)
    money = trader.opening_cash if cash is None else cash
    if not evenings:
        return "", ShareTable({}, money, None) if holds_weights else Portfolio((), money)
    file, newest = folder / HELD, evenings[-1]
    text = read_regular(file, MAXIMUM_BYTES).decode(errors="replace") if file.is_file() else None
    # The table of the evening before is left by a call that was killed between journal and table.
    if text is None or (text != newest.held and text_hash(text) == newest.held_before):
        notes.append(f"{file}: the table after {newest.date} was not there, and is written again.")
        text = newest.held
        write_object(file, text.encode())
    elif text != newest.held:
        notes.append(f"{file}: the table was edited, and is taken as it is.")
    return text, read_shares(file) if holds_weights else read_positions(file)


def text_hash(text: str) -> str:
    """Return a short hash of a text."""
    return sha256(text.encode()).hexdigest()[:16]


def _new_rows(panel: Panel, evenings: list[Evening], first: str | None) -> range:
    """Return the rows to play: after the account's last evening; for a new account from `first` or the newest day on.

    Raises:
        DataError: the prices do not have the account's last evening, or no day from `first` on.
    """
    dates, days = panel.dates.astype(str), len(panel.dates)
    if not evenings:
        begin = days - 1 if first is None else int(np.searchsorted(panel.dates, np.datetime64(first)))
        # The search gives `days` if no date is `first` or later.
        if begin >= days:
            raise DataError(f"--from {first}: the prices end on {dates[-1]}. Begin earlier.")
        return range(begin, days)
    rows = np.flatnonzero(dates == evenings[-1].date)
    if not len(rows):
        raise DataError(
            f"the account's last evening is {evenings[-1].date}, which is not a day of the prices ({dates[0]} to "
            f"{dates[-1]}). Give prices that have it."
        )
    return range(int(rows[0]) + 1, days)


class AccountCloses:
    """Closes in the prices of an account: as traded if these are known, else those of the file."""

    def __init__(self, panel: Panel) -> None:
        """Compute the last close up to each day of the instruments that can be bought."""
        self._panel, self._dates = panel, panel.dates.astype(str)
        # Instrument -> its column in `_last_close`.
        self._columns = {name: k for k, name in enumerate(panel.investable_names)}
        self._last_close = last_usable_closes(panel.closes(panel.investable))

    def ratio(self, row: int, name: str) -> float:
        """Return the price as traded over the file's price on a row; 1 if prices as traded are unknown."""
        return traded_ratio(self._panel, row, self._columns[name])

    def price(self, row: int, name: str) -> float:
        """Return the last close of an instrument up to a row."""
        return float(self._last_close[row, self._columns[name]]) * self.ratio(row, name)

    def rescale_book(self, book: Book, last_evening: Evening, row: int, notes: list[str]) -> Book:
        """Return the book with its shares multiplied by the splits since the last evening; note each change in `notes`.

        If the panel has closes as traded, a split shows in the ratio of traded to adjusted closes. If it has not, a
        file whose past was adjusted again has other prices on the last evening: the shares are then multiplied so that
        their value on that evening stays the same.

        Args:
            book: positions or shares after the last evening.
            last_evening: record of that evening, with the prices of what was held.
            row: row of the panel on which the account trades next.
            notes: sentences for the user.
        """
        last_row = int(np.flatnonzero(self._dates == last_evening.date)[0])
        factors = {}
        for name in book.shares:
            if self._panel.raw_close is not None:
                # The price as traded over the adjusted price falls by the factor of a split.
                factors[name] = self.ratio(last_row, name) / self.ratio(row, name)
            # A holding that a person has added since has no price in the journal: its shares stay.
            elif name in last_evening.prices:
                factors[name] = last_evening.prices[name] / self.price(last_row, name)
        changed_factors = {name: factor for name, factor in factors.items() if abs(factor - 1) > ADJUSTMENT_TOLERANCE}
        if changed_factors:
            factors_text = ", ".join(f"{name} x {factor:.4g}" for name, factor in changed_factors.items())
            notes.append(f"{self._dates[row]}: shares after a split, a dividend or another adjustment: {factors_text}.")
        return book.multiply_shares(changed_factors, has_entry_prices=self._panel.raw_close is None)


def _decide_orders(
    trader: Trader | WeightsTrader, panel: Panel, book: Book, budget: str | None
) -> Orders | WeightOrders:
    """Return the orders after the newest day of a panel."""
    if isinstance(trader, WeightsTrader):
        assert isinstance(book, ShareTable)  # noqa: S101  (for the type checker: a book of the trader's kind)
        return trader.orders(panel, book.shares, book.cash, stop=book.stop, budget=budget)
    assert isinstance(book, Portfolio)  # noqa: S101  (for the type checker: a book of the trader's kind)
    return trader.orders(panel, book.positions, book.cash, budget=budget)


def _book_after_orders(orders: Orders | WeightOrders) -> Book:
    """Return the book after the orders."""
    if isinstance(orders, WeightOrders):
        return ShareTable(orders.shares, orders.cash, orders.stop)
    return Portfolio(orders.positions, orders.cash)


def _filled_orders(orders: Orders | WeightOrders) -> Iterator[PaperOrder]:
    """Yield the sales and purchases of an evening."""
    if isinstance(orders, WeightOrders):
        for order in orders.orders:
            yield PaperOrder(order=order.order, instrument=order.instrument, shares=order.shares, price=order.price)
        return
    for sale in orders.sales:
        yield PaperOrder(order="sell", instrument=sale.instrument, shares=sale.shares, price=sale.price)
    for purchase in orders.purchases:
        yield PaperOrder(order="buy", instrument=purchase.instrument, shares=purchase.shares, price=purchase.price)
