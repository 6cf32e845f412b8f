"""Orders of a day in all forms of `flatwater orders`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from flatwater_trading.recipe.positions import Portfolio, ShareTable


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
