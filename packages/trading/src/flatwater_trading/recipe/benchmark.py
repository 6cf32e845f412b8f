"""A benchmark: one price that is bought on the first day and held, against which a trader's risk is measured.

It is a column of the panel, tradable or not, or of another file. Nothing is chosen by it, so it may be named after the
days were played.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.market.baselines import buy_and_hold_equity
from flatwater_trading.market.config import AccountConfig
from flatwater_trading.market.market import last_usable_closes
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days
from flatwater_watch.errors import DataError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.phrases import list_phrase


@dataclass(frozen=True)
class Benchmark:
    """The closes of one instrument on the days of a panel."""

    name: str
    closes: Float[np.ndarray, "T 1"]
    """The last close up to each day; 0 before the first."""

    @property
    def trader(self) -> str:
        """Name of the account that holds it, in tables and charts."""
        return f"{self.name} held"

    def equity(self, days: Days, account: AccountConfig) -> Mapping[str, Float[Tensor, "D1"]]:
        """Return the equity of an account that holds the instrument over `days`, under its name `trader`.

        Raises:
            DataError: the instrument has no close up to the first day.
        """
        closes = torch.from_numpy(self.closes[days.first : days.stop]).double()
        # 0 if there is no close so far.
        if not float(closes[0, 0]) > 0:
            raise DataError(f"benchmark {self.name}: expected a close up to the first day that is played, found none.")
        return {self.trader: buy_and_hold_equity(closes, is_listed=closes[0] > 0, account=account)}


def panel_benchmark(name: str | None, panel: Panel) -> Benchmark | None:
    """Return a column of the panel as the benchmark; None for no name.

    Raises:
        DataError: the panel has no such column.
    """
    return None if name is None else Benchmark(name, _column_closes(panel, name, "benchmark"))


def find_benchmark(value: str, prices: Panel) -> Benchmark:
    """Return the benchmark that a value of `--benchmark` names.

    Args:
        value: name of a column of the prices, a file of prices with one column, or `FILE:COLUMN`.
        prices: all columns of the prices that are played, also those that the policy does not know.

    Raises:
        DataError: neither the prices nor a file has it, or the file has several columns and none is named.
    """
    if value in prices.instruments:
        return Benchmark(value, _column_closes(prices, value, "--benchmark"))
    # `FILE:COLUMN`, unless the whole value is a file, as a file's name may have a colon.
    if expand_home(value).exists():
        file, column = value, ""
    else:
        file, _, column = value.rpartition(":")
    if not file or not expand_home(file).exists():
        columns = list_phrase(prices.instruments)
        raise DataError(
            f"--benchmark {value}: expected a column of the prices ({columns}), a file of prices, or FILE:COLUMN."
        )
    panel = load_panel(file)
    if not column and len(panel.instruments) > 1:
        raise DataError(
            f"--benchmark {file}: has {len(panel.instruments)} columns ({list_phrase(panel.instruments)}). Name one: "
            f"--benchmark {file}:{panel.instruments[0]}"
        )
    name = column or panel.instruments[0]
    closes = _column_closes(panel, name, f"--benchmark {file}")
    # The file's last row up to each day of the prices; -1 before its first day, where the close is 0.
    rows = np.searchsorted(panel.dates, prices.dates, side="right") - 1
    return Benchmark(name, np.where(rows[:, None] >= 0, closes[np.maximum(rows, 0)], 0).astype(np.float32))


def _column_closes(panel: Panel, name: str, where: str) -> Float[np.ndarray, "T 1"]:
    """Return the last close of a column up to each day; 0 before the first.

    Args:
        panel: panel with the column.
        name: name of the column.
        where: setting or option that names it, for messages.

    Raises:
        DataError: the panel has no such column, or a close of it is 0 or below.
    """
    if name not in panel.instruments:
        raise DataError(f"{where}: expected one of {list_phrase(panel.instruments)}, got {name}.")
    closes = panel.closes(np.array([panel.instruments.index(name)]))  # a table of one column: [T, 1]
    # `initial` is infinite, so that a column without any close passes.
    if np.nanmin(closes, initial=np.inf) <= 0:
        raise DataError(f"{where} {name}: expected closes above 0, got {np.nanmin(closes):g}. Name a price.")
    return last_usable_closes(closes)
