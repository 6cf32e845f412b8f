"""What every policy that was trained on a panel does alike: prices in its columns, money, and days that are played."""

from abc import ABC, abstractmethod
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from flatwater.memory.planner import Plan, refuse
from flatwater.rundir.layout import RunFolder
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import Panel, choose_instruments
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.panel.traded_closes import with_raw_closes
from flatwater_trading.recipe.backtest import Backtest, known_truth, note_look
from flatwater_watch.errors import ConfigError, DataError

Prices = Path | str | Panel
"""What `--panel` takes, or a panel."""


@dataclass(frozen=True)
class Provenance:
    """The training that a policy comes from."""

    generations: int
    """Rounds of its run."""
    learnt: str
    """The last training day, ISO."""
    chosen: str
    """The last validation day, on which it was chosen."""
    ended: str
    """The last day of the run's panel: those after `chosen` are its holdout."""

    @classmethod
    def of_run(cls, panel: Panel, splits: Splits, rounds: int) -> Self:
        """Return the past of a run with so many rounds."""
        learnt, chosen = (str(panel.dates[days.stop - 1]) for days in (splits.train, splits.validation))
        return cls(rounds, learnt, chosen, str(panel.dates[-1]))


class PanelPolicy(ABC):
    """A policy with the columns that it was trained on."""

    past: Provenance
    instruments: tuple[str, ...]
    """Names [N] of the columns that it was trained on, in their order."""
    investable: tuple[str, ...]
    """Names [K] of the columns that it may hold."""
    folder: RunFolder | None
    """Folder of the run; None where there is none."""

    @property
    @abstractmethod
    def lookback(self) -> int:
        """Rows of prices that it looks at."""

    @property
    @abstractmethod
    def opening_cash(self) -> float:
        """Money that an account begins with."""

    @abstractmethod
    def plan_orders(self, panel: Panel, budget: str | None = None) -> Plan:
        """Plan what it takes to decide on the newest day of a panel."""

    @abstractmethod
    def plan_backtest(self, panel: Panel, days: Days, budget: str | None = None) -> Plan:
        """Plan what it takes to play days of a panel against the baselines."""

    @abstractmethod
    def find_days(self, panel: Panel, first: str | None, last: str | None) -> Days:
        """Find the rows that are played; see `backtest`."""

    @abstractmethod
    def play_backtest(self, panel: Panel, days: Days, truth: np.ndarray[Any, Any] | None = None) -> Backtest:
        """Play rows of a panel that `find_days` gave, against the baselines.

        Args:
            panel: panel, as `align_panel` gives it.
            days: rows that are played.
            truth: what an oracle knows of a synthetic market [T, K]; None where nobody knows.
        """

    def align_panel(self, prices: Prices) -> Panel:
        """Return the prices with the columns of training, in their order.

        Raises:
            DataError: a column is missing, or there are fewer rows than the policy looks at.
        """
        aligned = choose_instruments(_read_prices(prices), self.instruments, self.investable)
        if len(aligned.dates) < self.lookback:
            raise DataError(
                f"{len(aligned.dates)} rows of prices: the policy looks at the last {self.lookback}. Give more."
            )
        return aligned

    def align_traded(self, prices: Prices, raw_prices: Prices | None) -> Panel:
        """Return the aligned prices with closes as they were traded, where these are given."""
        panel = self.align_panel(prices)
        return panel if raw_prices is None else with_raw_closes(panel, _read_prices(raw_prices))

    def sizing_cash(self, cash: float | None, held: Sized, name: str) -> float:
        """Return the money beside what is held: the given one, or where nothing is held, that of a new account.

        Args:
            cash: the given money.
            held: what is held.
            name: name of `held`, for messages.

        Raises:
            ConfigError: something is held and `cash` is not given, or is not a number of 0 or more.
        """
        if cash is None and held:
            raise ConfigError(f"cash is left out: expected the money beside the {name}, which sizes the orders")
        money = self.opening_cash if cash is None else float(cash)
        if not 0 <= money < float("inf"):
            raise ConfigError(f"cash = {cash}: must be 0 or more")
        return money

    def backtest(
        self, prices: Prices, first: str | None = None, last: str | None = None, *, budget: str | None = None
    ) -> Backtest:
        """Play a stretch of days against the baselines: as `flatwater backtest` does.

        Args:
            prices: prices, as in `orders`.
            first: ISO date of the first day that is played. Left out: the first one after those that the policy was
                chosen on.
            last: date of the last one. Left out: the newest.
            budget: memory that may be taken, as in `orders`.

        Where holdout days of its run are among them, the look is logged in the run's folder.

        Raises:
            MemoryLimitError: the backtest would need more memory than `budget`; no look is logged.
        """
        panel = self.align_panel(prices)
        days = self.find_days(panel, first, last)
        refuse(self.plan_backtest(panel, days, budget))
        # Before the days are played, and after the plan: a look that was refused is none, one that is interrupted is.
        note_look(self, panel, days)
        return self.play_backtest(panel, days, known_truth(prices, panel))


def _read_prices(prices: Prices) -> Panel:
    return prices if isinstance(prices, Panel) else load_panel(str(prices))
