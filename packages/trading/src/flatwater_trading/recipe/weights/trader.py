"""Trained target weights for use: a policy that takes prices and gives weights and orders, without its run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.memory.planner import Plan, require_fit
from flatwater.nets.stack import Layout, join_weights, views
from flatwater.rundir.layout import RunFolder
from flatwater.runs.policy_export import PolicyExport
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.signals import OWN_SIGNALS, REMEMBERED_ROWS, market_signals
from flatwater_trading.panel.splits import Days
from flatwater_trading.panel.traded_closes import traded_ratio
from flatwater_trading.recipe.backtest import Backtest, find_date_rows, note_of_days, refuse_early_day
from flatwater_trading.recipe.benchmark import Benchmark, panel_benchmark
from flatwater_trading.recipe.panel_policy import PanelPolicy, Prices, Provenance
from flatwater_trading.recipe.result import equity_frame, prices_note, sheet_frame
from flatwater_trading.recipe.threads import one_thread
from flatwater_trading.recipe.weights.market import account_prices, signal_market
from flatwater_trading.recipe.weights.orders import StopRecord, WeightOrders, WeightsClose, decide_weight_orders
from flatwater_trading.recipe.weights.plan import plan_use
from flatwater_trading.recipe.weights.score import WeightsEvaluation, as_json, score_weights
from flatwater_trading.training.weights.config import WeightsConfig
from flatwater_trading.training.weights.judge import held_weights, mean_weights, weigh_days
from flatwater_trading.training.weights.weigher import DaySignals, build_weigher
from flatwater_watch.errors import ConfigError, DataError
from flatwater_watch.files.json_values import convert_to_type

CPU = torch.device("cpu")


@dataclass(frozen=True)
class WeightsTrader(PanelPolicy):
    """A policy of target weights with the rules that it was trained with."""

    settings: WeightsConfig
    """Settings of the training."""
    provenance: Provenance
    instruments: tuple[str, ...]
    """Names [N] of the columns of training, in their order."""
    investable: tuple[str, ...]
    """Names [K] of the columns that the policy may hold."""
    members: Float[Tensor, "P n"]
    """Members of the best round, float64: a day's weights are the same whether it is weighed alone or with others."""
    held: float
    """Part of the learned weights that is held."""
    invested: bool
    """Whether the rest is equal weights; else it is cash."""
    folder: RunFolder | None = None
    """Folder of the run; None for a run that is not written, and for a policy that was read from a file."""
    loading_bytes: int = 0
    """Bytes that loading the run has taken at its highest: its signals, of which the policy keeps nothing."""

    @property
    def rest(self) -> str:
        """Name of what is held besides the learned weights: `equal weight` or `cash`."""
        return "equal weight" if self.invested else "cash"

    @property
    def layout(self) -> Layout:
        """Names and shapes of a member's parameters."""
        return trader_layout(self.settings, len(self.instruments), len(self.investable))

    @property
    def module(self) -> "WeigherModule":
        """The members as one network: from signals to the weights that are held."""
        return WeigherModule(self)

    @property
    def lookback(self) -> int:
        """Rows of prices that signals need."""
        return self.settings.history

    @property
    def lookback_reason(self) -> str:
        """Clause with what needs that many rows."""
        return f"signals need {self.lookback} of them (history)"

    @property
    def remembered_rows(self) -> int:
        """Number of rows that a decision depends on noticeably, as signals are means that fade slowly."""
        return REMEMBERED_ROWS

    @property
    def opening_cash(self) -> float:
        """Money that an account begins with."""
        return self.settings.account.cash

    def act(self, prices: Prices) -> dict[str, float]:
        """Return the weights after the newest day of some prices, by instrument; the rest is cash."""
        panel = self.align_panel(prices)
        newest_day = Days(len(panel.dates) - 1, len(panel.dates))
        weights, _, _ = self._weigh_days(panel, newest_day)
        return dict(zip(self.investable, weights[0].tolist(), strict=True))

    def to_export(self) -> PolicyExport:
        """Return the policy without its run, in the form that every export is made from."""
        return PolicyExport(
            recipe="weights",
            module=self.module,
            example=self._example_inputs,
            # The axis of the days in each input.
            axes=(0, 0, 0),
            inputs={
                "own": "float32 [days, investable, signals]: signals of each instrument; 0 without a close on the day",
                "shared": "float32 [days, shared signals]: signals that all instruments share",
                "tradable": "bool [days, investable]: whether there is a close on the day",
            },
            outputs={"weights": "float64 [days, investable]: part of the equity in each instrument; the rest is cash"},
            meaning={
                "instruments": list(self.instruments),
                "investable": list(self.investable),
                "held": self.held,
                "rest": self.rest,
                "rules": to_mapping(self.settings.account),
            },
            header={
                "settings": to_mapping(self.settings),
                "past": asdict(self.provenance),
                "instruments": list(self.instruments),
                "investable": list(self.investable),
                "held": self.held,
                "invested": self.invested,
            },
            # float32, as they were learned: the policy computes in float64, and makes these from them exactly.
            tensors=views(self.members.float(), self.layout),
            loading_bytes=self.loading_bytes,
        )

    def _example_inputs(self, days: int) -> tuple[Tensor, ...]:
        """Return inputs of `days` days to trace an export with, drawn by a fixed seed."""
        rng, count = torch.Generator().manual_seed(0), len(self.investable)
        own = torch.randn(days, count, OWN_SIGNALS, generator=rng)
        shared_signals = torch.randn(days, market_signals(len(self.instruments), count), generator=rng)
        return own, shared_signals, torch.rand(days, count, generator=rng) < 0.9  # noqa: PLR2004  (most have a close)

    def signals_of(self, prices: Prices) -> tuple[Tensor, Tensor, Tensor]:
        """Return the signals of the newest day, each with one row: the inputs of an exported policy.

        They are the signals of each instrument [1, K, F], those that all share [1, G], and the mask of the instruments
        with a close [1, K].
        """
        market = signal_market(self.align_panel(prices), CPU)
        return market.own[-1:], market.shared[-1:], market.tradable[-1:]

    def orders(
        self,
        prices: Prices,
        shares: Mapping[str, float] | None = None,
        cash: float | None = None,
        *,
        stop: StopRecord | None = None,
        raw_prices: Prices | None = None,
        budget: str | None = None,
    ) -> WeightOrders:
        """Decide what to buy and to sell after the newest day of `prices`.

        Args:
            prices: prices, as for `--panel`, of every column of training. They should reach back as far as those of
                training, since signals remember.
            shares: shares held before the day, by instrument, as `WeightOrders.shares` of the day before.
            cash: money of the account besides the shares. If no shares are held it may be left out: the money that
                an account begins with.
            stop: record of the account's stop, as `WeightOrders.stop` of the day before. It may be left out for an
                account that holds nothing, which begins then, and for settings without a stop.
            raw_prices: closes as they were traded, if `prices` are adjusted and do not hold both; orders and shares
                are then in these.
            budget: memory that may be taken, such as 2GiB. Left out: 90 % of what the machine, the container and the
                shell allow.

        Raises:
            DataError: prices or shares cannot be used.
            ConfigError: shares are held and `cash`, or with `account.stop` the record `stop`, is not given, or a number
                is below 0.
            MemoryLimitError: the decision would need more memory than `budget`.
        """
        money = self.sizing_cash(cash, shares or {}, name="shares")
        panel = self.align_traded_panel(prices, raw_prices)
        if self.settings.account.stop is not None and shares and stop is None:
            raise ConfigError(
                "stop is left out: expected the highest equity of the account so far, from which account.stop counts. "
                "--after writes it as the row stop.peak of its table, and orders have it as orders.stop"
            )
        require_fit(self.plan_orders(panel, budget))  # raises if the plan does not fit
        last_row = len(panel.dates) - 1
        targets, _, _ = self._weigh_days(panel, Days(last_row, last_row + 1))
        account, close = self.settings.account, self._newest_close(panel)
        return decide_weight_orders(
            close, targets[0], shares or {}, money, account, held=self.held, rest=self.rest, stop=stop
        )

    def _newest_close(self, panel: Panel) -> WeightsClose:
        """Return the newest close of an aligned panel, with the rates of costs on its day."""
        last_row = len(panel.dates) - 1
        # The traded over the panel's price of each instrument; 1 where traded prices are unknown, so that orders are in
        # the panel's prices.
        ratios = [traded_ratio(panel, last_row, k) for k in range(len(self.investable))]
        return WeightsClose(
            dates=panel.dates,
            names=self.investable,
            prices=account_prices(panel, self.settings.account).day(last_row),
            ratios=torch.tensor(ratios, dtype=torch.float64),
            as_traded=panel.raw_close is not None,
            unpriced=panel.unpriced_names(last_row),
            short_histories=self.find_short_histories(panel),
        )

    def plan_orders(self, panel: Panel, budget: str | None = None) -> Plan:
        """Plan the memory of deciding on the newest day of a panel."""
        return plan_use(self.settings.account, panel, budget, plays=False)

    def plan_backtest(self, panel: Panel, days: Days, budget: str | None = None) -> Plan:  # noqa: ARG002  (any days)
        """Plan the memory of playing days of a panel, which is the same for all days."""
        return plan_use(self.settings.account, panel, budget, plays=True)

    def find_days(self, panel: Panel, first: str | None, last: str | None) -> Days:
        """Return the rows from date `first` to date `last`; None for the day after the validation days, and the newest.

        Raises:
            ConfigError: a date cannot be read, or the last date is before the first.
            DataError: there are too few such days, or too few before them.
        """
        first_row, stop_row = find_date_rows(panel, first, last, chosen_until=self.provenance.chosen_until)
        # As many rows before the first day as signals need, as the opening cash is of the day before.
        refuse_early_day(panel, first_row, self.lookback, self.lookback_reason)
        units, dates = panel.calendar.units, f"the prices have {panel.dates[0]} to {panel.dates[-1]}"
        if stop_row - first_row <= 1:
            raise DataError(
                f"there are {max(0, stop_row - first_row)} {units} to play, and 2 or more are needed, as all is sold "
                f"on the last one: {dates}. Give more prices, or begin earlier."
            )
        return Days(first_row, stop_row)

    def play_backtest(
        self,
        panel: Panel,
        days: Days,
        truth: np.ndarray[Any, Any] | None = None,
        benchmark: Benchmark | None = None,
    ) -> Backtest:
        """Play rows of a panel that `find_days` gave, against the baselines; on the last day all is sold."""
        benchmark = benchmark or panel_benchmark(self.settings.benchmark, panel)
        train_stop = int(np.searchsorted(panel.dates, np.datetime64(self.provenance.learned_until), "right"))
        # Ridge is fitted to the days of the policy's training, from the first row with a whole history on.
        first_row = self.settings.history - 1
        learned_rows = range(first_row, max(first_row, train_stop))
        # Sums in another order differ in their last bit.
        with one_thread():
            score = score_weights(self.evaluation(panel, days, learned_rows, truth, benchmark))
        days_by_use = self.count_days_by_use(panel, days)
        note = f"{note_of_days(days_by_use, panel.calendar.unit)}; on the last one all is sold"
        result = (
            as_json(panel, score, "backtest")
            | self.as_json()
            | {
                "rounds": self.provenance.generations,
                "seed": self.settings.seed,
                "days_of": days_by_use,
                "note": note + prices_note(panel, days),
            }
        )
        return Backtest(result, equity_frame(panel, score), score.trades, sheet_frame(panel, score))

    def evaluation(
        self,
        panel: Panel,
        days: Days,
        learned_rows: range,
        truth: np.ndarray[Any, Any] | None,
        benchmark: Benchmark | None,
    ) -> WeightsEvaluation:
        """Compute the weights of some days of a panel; return them with all that `score_weights` needs to play them."""
        held_weights, learned_weights, signals = self._weigh_days(panel, days)
        return WeightsEvaluation(
            config=self.settings,
            panel=panel,
            days=days,
            held=held_weights,
            learned=learned_weights,
            held_share=self.held,
            rest=self.rest,
            signals=signals,
            learned_rows=learned_rows,
            truth=truth,
            benchmark=benchmark,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the part of the learned weights that is held, as plain values."""
        text = f"{self.held:.0%} of the learned weights are held, the rest is {self.rest}"
        return {"held": self.held, "rest": self.rest, "weights": text}

    def _weigh_days(self, panel: Panel, days: Days) -> tuple[Tensor, Tensor, Tensor]:
        """Return the held and the learned weights [D, K] of some days, and the signals [T, K, F] of all days."""
        market = signal_market(panel, CPU)
        with torch.no_grad():
            learned_weights = weigh_days(self.settings, self.layout, market, self.members, days)
        tradable, account = market.tradable[days.first : days.stop], self.settings.account
        return (
            held_weights(learned_weights, tradable, account, learned_share=self.held, rest_is_invested=self.invested),
            learned_weights,
            market.own,
        )


class WeigherModule(nn.Module):
    """The members of a policy as one network, from signals to the weights that are held."""

    members: Tensor

    def __init__(self, trader: WeightsTrader) -> None:
        """Keep the members as a buffer, part of the module's state, and the part of their mean weights that is held."""
        super().__init__()
        self._layout, self._account = trader.layout, trader.settings.account
        self._held, self._invested = trader.held, trader.invested
        self.register_buffer("members", trader.members)

    def forward(
        self, own: Float[Tensor, "D K F"], shared: Float[Tensor, "D G"], tradable: Bool[Tensor, "D K"]
    ) -> Float[Tensor, "D K"]:
        """Return the part of the equity that is held in each instrument on each day."""
        learned_weights = mean_weights(
            views(self.members, self._layout), DaySignals(own, shared, tradable), self._account
        )
        return held_weights(
            learned_weights, tradable, self._account, learned_share=self._held, rest_is_invested=self._invested
        )


def trader_layout(settings: WeightsConfig, columns: int, investable: int) -> Layout:
    """Return names and shapes of a member's parameters, by the settings and the numbers of columns."""
    return build_weigher(OWN_SIGNALS, market_signals(columns, investable), settings.members.hidden)


@dataclass(frozen=True)
class _TraderHeader:
    """The header of an exported policy's file, which also has its tensors."""

    settings: dict[str, Any]
    past: Provenance
    instruments: list[str]
    investable: list[str]
    held: float
    invested: bool


def rebuild_trader(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> WeightsTrader:
    """Return the policy whose settings and members are the header and the tensors of a .safetensors file.

    Raises:
        ConfigError: the header's settings do not fit `WeightsConfig`.
        ValueError: header and tensors do not fit each other.
    """
    header_values = convert_to_type(dict(header), _TraderHeader)
    settings = from_mapping(WeightsConfig, header_values.settings, "settings")
    names, investable, size = header_values.instruments, header_values.investable, settings.members.size
    if not investable or not {*investable} <= {*names}:
        raise ValueError(f"investable = {investable}: expected some of the instruments")
    if not 0 <= header_values.held <= 1:
        raise ValueError(f"held = {header_values.held}: expected 0 to 1")
    layout = trader_layout(settings, len(names), len(investable))
    # Tensors with another number of members are left out here: `join_weights` then reports them as missing.
    tensors_of_members = {name: tensor for name, tensor in tensors.items() if tensor.shape[:1] == (size,)}
    # A row of weights [1, n] for each member.
    members = [
        join_weights({name: tensor[member] for name, tensor in tensors_of_members.items()}, layout)
        for member in range(size)
    ]
    return WeightsTrader(
        settings=settings,
        provenance=header_values.past,
        instruments=tuple(names),
        investable=tuple(investable),
        members=torch.cat(members).double(),
        held=header_values.held,
        invested=header_values.invested,
    )
