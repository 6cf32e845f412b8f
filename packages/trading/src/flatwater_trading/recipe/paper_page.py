"""`report.html` of a paper account: its equity, its tear sheet, what it holds, and its newest orders."""

import csv
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from pathlib import Path

import polars as pl

from flatwater_trading.recipe.paper import Evening, read_journal
from flatwater_trading.recipe.sections import equity_chart
from flatwater_trading.recipe.tear_sheet import tear_sheet
from flatwater_trading.recipe.trader_names import CHAMPION
from flatwater_watch.errors import DataError
from flatwater_watch.pages.blocks import Block, Paragraph, Section, Table, Tile
from flatwater_watch.pages.document import document
from flatwater_watch.phrases import count_phrase

PAGE = "report.html"
MAXIMUM_EVENINGS = 20
"""Newest evenings whose orders are listed."""


def paper_report(path: Path) -> tuple[Path, Callable[[], str]]:
    """Return the path at which `flatwater report` writes the page of a paper account, and a function that makes it."""
    return path / PAGE, lambda: paper_page(path)


def paper_page(path: Path) -> str:
    """Build the page of a paper account as HTML.

    Raises:
        DataError: the journal is damaged, or has no evening.
    """
    evenings = read_journal(path)
    if not evenings:
        raise DataError(f"{path}: the account has no evening yet. Play one with: flatwater paper RUN --account {path}")
    first, newest, count = evenings[0], evenings[-1], count_phrase(len(evenings), "evening")
    return document(
        path.resolve().name,
        subtitle=f"paper account of {newest.run}, {count}, {first.date} to {newest.date}",
        tiles=_figure_tiles(evenings),
        sections=[
            Section(title="Account", blocks=list(_account_blocks(evenings))),
            Section(title="Orders", blocks=list(_order_blocks(evenings))),
        ],
        footer=f"Written by Flatwater, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}.",
    )


def account_equity(evenings: Sequence[Evening]) -> pl.DataFrame:
    """Return date and equity of an account, with a first row for the money before the first orders.

    The equity's column is `CHAMPION`, which the tear sheet and the chart read. The first row has the date of the day
    before the first evening; between them only costs change the equity.
    """
    days = [date.fromisoformat(evening.date) for evening in evenings]
    opening = evenings[0].equity + evenings[0].cost
    frame = pl.DataFrame({"date": days, CHAMPION: [evening.equity for evening in evenings]})
    opening_row = frame[:1].with_columns(pl.col("date").dt.offset_by("-1d"), pl.lit(opening).alias(CHAMPION))
    return pl.concat([opening_row, frame])


def _figure_tiles(evenings: Sequence[Evening]) -> Iterator[Tile]:
    """Yield the figures at the top of the page: equity, return, cash as a share of the equity, and costs."""
    newest = evenings[-1]
    # The money before the first orders: on the first evening only costs have changed it.
    opening = evenings[0].equity + evenings[0].cost
    yield Tile("equity", f"{newest.equity:,.2f}", f"on {newest.date}")
    yield Tile("return", f"{newest.equity / opening - 1:+.1%}", f"since {evenings[0].date}")
    yield Tile("cash", f"{newest.cash / newest.equity:.0%}" if newest.equity else "", f"{newest.cash:,.2f}")
    yield Tile("costs", f"{sum(evening.cost for evening in evenings):,.2f}", "of all orders")


def _account_blocks(evenings: Sequence[Evening]) -> Iterator[Block]:
    """Yield the chart of equity, the tear sheet, and the table of holdings after the newest evening."""
    equity = account_equity(evenings)
    yield equity_chart(equity, "paper")
    yield from tear_sheet(equity, None, {})
    # The text of `held.csv`: a header row, then a row for each holding, its name first.
    titles, *rows = csv.reader(evenings[-1].held.splitlines())
    cells = [[row[0], *map(_short_number, row[1:])] for row in rows]
    yield Table([title.replace("_", " ") for title in titles], cells)


def _short_number(cell: str) -> str:
    """Format a cell that is a number with six significant digits; return other text as it is."""
    try:
        return f"{float(cell):,.6g}"
    except ValueError:
        return cell


def _order_blocks(evenings: Sequence[Evening]) -> Iterator[Block]:
    """Yield the orders of the newest evenings, or that there were none."""
    rows = [
        (evening.date, order.order, order.instrument, f"{order.shares:,.4g}", f"{order.price:,.2f}")
        for evening in reversed(evenings[-MAXIMUM_EVENINGS:])
        for order in evening.orders
    ]
    if not rows:
        yield Paragraph(f"Nothing was ordered on the last {count_phrase(MAXIMUM_EVENINGS, 'evening')}.", "missing")
        return
    titles = ("date", "order", "instrument", "shares", "price")  # the first three have no numbers
    yield Table(titles, rows, text_columns=3)
