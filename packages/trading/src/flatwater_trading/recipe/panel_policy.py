"""The base of every policy that was trained on a panel: prices in its columns, money, and days that are played."""

from abc import ABC, abstractmethod
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from flatwater.memory.planner import Plan, require_fit
from flatwater.rundir.holdout_looks import log_look
from flatwater.rundir.layout import RunFolder
from flatwater_trading.panel.calendar import IRREGULAR
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import Panel, choose_instruments
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.panel.traded_closes import with_raw_closes
from flatwater_trading.recipe.backtest import Backtest, known_true_returns
from flatwater_trading.recipe.benchmark import Benchmark, find_benchmark
from flatwater_watch.errors import ConfigError, DataError
from flatwater_watch.phrases import count_phrase

Prices = Path | str | Panel
"""A value of `--panel`, or a panel."""


@dataclass(frozen=True)
class Provenance:
    """The training of a policy."""

    generations: int
    """Rounds of the run."""
    learned_until: str
    """ISO date of the last training day."""
    chosen_until: str
    """ISO date of the last validation day: the policy was chosen on the validation days."""
    ended: str
    """ISO date of the last day of the run's panel: the days after `chosen_until` are the holdout."""
    unit: str = ""
    """Name of a row of the run's panel, such as `day`; empty in files of earlier versions."""
    began: str = ""
    """ISO date of the first day of the run's panel; empty in files of earlier versions."""

    @classmethod
    def of_run(cls, panel: Panel, splits: Splits, rounds: int) -> Self:
        """Return the provenance of a run's policy after `rounds` rounds, with the last dates of the run's splits."""
        return cls(
            generations=rounds,
            learned_until=str(panel.dates[splits.train.stop - 1]),
            chosen_until=str(panel.dates[splits.validation.stop - 1]),
            ended=str(panel.dates[-1]),
            unit=panel.calendar.unit,
            began=str(panel.dates[0]),
        )


class PanelPolicy(ABC):
    """A policy with the columns that it was trained on."""

    provenance: Provenance
    instruments: tuple[str, ...]
    """Names [N] of the columns of training, in their order."""
    investable: tuple[str, ...]
    """Names [K] of the columns that the policy may hold."""
    folder: RunFolder | None
    """Folder of the run; None for a policy without a run."""

    @property
    @abstractmethod
    def lookback(self) -> int:
        """Number of rows of prices that a decision needs."""

    @property
    @abstractmethod
    def lookback_reason(self) -> str:
        """Clause with what needs that many rows."""

    @property
    def remembered_rows(self) -> int:
        """Number of rows that a decision depends on noticeably, if there are more than it needs."""
        return self.lookback

    @property
    @abstractmethod
    def opening_cash(self) -> float:
        """Money that an account begins with."""

    @abstractmethod
    def plan_orders(self, panel: Panel, budget: str | None = None) -> Plan:
        """Plan the memory of deciding on the newest day of a panel."""

    @abstractmethod
    def plan_backtest(self, panel: Panel, days: Days, budget: str | None = None) -> Plan:
        """Plan the memory of playing days of a panel against the baselines."""

    @abstractmethod
    def find_days(self, panel: Panel, first: str | None, last: str | None) -> Days:
        """Find the rows that are played; see `backtest`."""

    @abstractmethod
    def play_backtest(
        self,
        panel: Panel,
        days: Days,
        truth: np.ndarray[Any, Any] | None = None,
        benchmark: Benchmark | None = None,
    ) -> Backtest:
        """Play rows of a panel that `find_days` gave, against the baselines.

        Args:
            panel: panel of `align_panel`.
            days: rows that are played.
            truth: expected log returns of a synthetic market [T, K], for the oracle; None if they are unknown.
            benchmark: price that is bought and held besides; None for that of the settings.
        """

    def align_panel(self, prices: Prices) -> Panel:
        """Return the prices with the columns of training, in their order.

        Raises:
            DataError: a column is missing, there are fewer rows than a decision needs, or they are of another length
                of time than those of training.
        """
        aligned_panel = choose_instruments(_read_prices(prices), self.instruments, self.investable)
        given_unit, trained_unit = aligned_panel.calendar.unit, self.provenance.unit
        # The unit of training is empty in files of earlier versions; irregular rows have no length that could differ.
        if trained_unit and given_unit != trained_unit and IRREGULAR not in {given_unit, trained_unit}:
            raise DataError(
                f"the prices have a row each {given_unit}: expected one each {trained_unit}, as in training: what a "
                f"policy sees, and how long it holds, is counted in rows. Give prices of each {trained_unit}, or train "
                "on these."
            )
        if (rows := len(aligned_panel.dates)) < self.lookback:
            raise DataError(
                f"the prices have {count_phrase(rows, given_unit)} ({aligned_panel.dates[0]} to "
                f"{aligned_panel.dates[-1]}): expected {self.lookback} or more, as {self.lookback_reason}. Give prices "
                "that reach further back."
            )
        return aligned_panel

    def find_short_histories(self, panel: Panel) -> tuple[str, ...]:
        """Return the names of the columns that have fewer closes than a decision needs.

        It needs `lookback` closes. If the prices begin later than those of training, also as many as its indicators
        remember.

        Args:
            panel: panel of `align_panel`.
        """
        begins_later = self.provenance.began < str(panel.dates[0])
        needed = max(self.lookback, self.remembered_rows) if begins_later else self.lookback
        close_counts = panel.valid.sum(0).tolist()
        return tuple(name for name, count in zip(self.instruments, close_counts, strict=True) if count < needed)

    def align_traded_panel(self, prices: Prices, raw_prices: Prices | None) -> Panel:
        """Return the aligned prices, with the closes of `raw_prices` as traded closes if given."""
        panel = self.align_panel(prices)
        return panel if raw_prices is None else with_raw_closes(panel, _read_prices(raw_prices))

    def sizing_cash(self, cash: float | None, holdings: Sized, name: str) -> float:
        """Return the money that orders are sized by: `cash`; if it is left out and nothing is held, the opening cash.

        Args:
            cash: given money; None if it was left out.
            holdings: positions or shares of the account.
            name: name of `holdings`, for messages.

        Raises:
            ConfigError: `holdings` is not empty and `cash` is None, or `cash` is not a number of 0 or more.
        """
        if cash is None and holdings:
            raise ConfigError(f"cash is left out: expected the account's money besides the {name}, which sizes orders")
        money = self.opening_cash if cash is None else float(cash)
        if not 0 <= money < float("inf"):
            raise ConfigError(f"cash = {cash}: expected 0 or more")
        return money

    def count_days_by_use(self, panel: Panel, days: Days) -> dict[str, int]:
        """Count days by their use in the policy's run: training, validation, holdout, or newer than all of its days."""
        dates, training = panel.dates[days.first : days.stop], self.provenance
        last_days = (training.learned_until, training.chosen_until, training.ended)
        # For each split, the number of these days up to its end; the differences are the days within each split.
        counts_so_far = [np.searchsorted(dates, np.datetime64(day), "right") for day in last_days]
        counts = np.diff([0, *counts_so_far, len(dates)]).tolist()
        return dict(zip(("training", "validation", "holdout", "newer"), counts, strict=True))

    def log_holdout_look(self, panel: Panel, days: Days) -> str:
        """Log in the run's folder that its holdout days are about to be played, and return a sentence with the count.

        Each such use is a look: the more looks, the less a result on these days proves. The sentence is empty, and
        nothing is logged, if the policy has no run or `days` has no holdout day.
        """
        if self.folder is None or not self.count_days_by_use(panel, days)["holdout"]:
            return ""
        return log_look(self.folder, self.provenance.generations)

    def backtest(
        self,
        prices: Prices,
        first: str | None = None,
        last: str | None = None,
        *,
        benchmark: str | None = None,
        budget: str | None = None,
    ) -> Backtest:
        """Play consecutive days against the baselines, as `flatwater backtest` does.

        If holdout days of the policy's run are among them, this use of them (a look) is logged in the run's folder.

        Args:
            prices: prices, as in `orders`.
            first: ISO date of the first day that is played. Left out: the day after the policy's validation days.
            last: ISO date of the last day. Left out: the newest.
            benchmark: column of the prices, a file of prices with one column, or `FILE:COLUMN`; bought and held, and
                what alpha and beta are measured against. Left out: that of the settings.
            budget: memory that may be taken, as in `orders`.

        Raises:
            MemoryLimitError: the backtest would need more memory than `budget`; no look is logged.
        """
        all_columns = _read_prices(prices)
        panel = self.align_panel(all_columns)
        days = self.find_days(panel, first, last)
        benchmark_prices = None if benchmark is None else find_benchmark(benchmark, all_columns)
        # Raises if the plan does not fit the memory.
        require_fit(self.plan_backtest(panel, days, budget))
        # After the plan and before the days are played: a backtest that is refused has not seen the holdout days, one
        # that is interrupted has.
        self.log_holdout_look(panel, days)
        return self.play_backtest(panel, days, known_true_returns(prices, panel), benchmark_prices)


def _read_prices(prices: Prices) -> Panel:
    return prices if isinstance(prices, Panel) else load_panel(str(prices))
