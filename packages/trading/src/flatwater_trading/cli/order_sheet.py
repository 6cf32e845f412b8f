"""Orders of a day in all forms of `flatwater orders`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flatwater_watch.phrases import list_phrase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from flatwater_trading.market.orders import Orders
    from flatwater_trading.recipe.positions import Portfolio, ShareTable
    from flatwater_trading.recipe.weights.orders import WeightOrders

MAXIMUM_NAMED = 5
"""Instruments without a close, or with few closes, that are named."""


@dataclass(frozen=True)
class OrderSheet:
    """Orders of any kind of trader, ready to be shown and written."""

    date: str
    """The newest day of the prices."""
    json: "Mapping[str, Any]"
    csv: str
    table: "Table"
    lines: "Sequence[str]"
    """Sentences below the table."""
    holdings: "Portfolio | ShareTable"
    """The account after the orders."""


def price_sentences(orders: "Orders | WeightOrders") -> list[str]:
    """Return the sentences that name the columns without a close on the newest day, and those with few closes."""
    lines = []
    if orders.unpriced:
        names = list_phrase(orders.unpriced, MAXIMUM_NAMED)
        lines.append(f"Without a close on {orders.date}, and so neither seen on that day nor traded: {names}.")
    if orders.short_histories:
        names = list_phrase(orders.short_histories, MAXIMUM_NAMED)
        lines.append(f"With fewer closes than the trader looks back over, and so seen only in part: {names}.")
    return lines
