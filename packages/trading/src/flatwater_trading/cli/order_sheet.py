"""Orders of a day in every form in which `flatwater orders` is asked for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rich.table import Table


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
    write_after: "Callable[[Path], None]"
    """Write what is held after the orders to a file."""
