"""Traders: the champion of a run for use. It takes prices and gives orders; it keeps weights, scales and rules."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.envs.world import Array
from flatwater.envs.wrapped.checks import find_not_finite
from flatwater.memory.planner import Plan, require_fit
from flatwater.nets.stack import Params, join_weights, views
from flatwater.rundir.layout import RunFolder
from flatwater.runs.policy_export import PolicyExport
from flatwater_trading.market.config import TradeConfig, TradingConfig
from flatwater_trading.market.market import Market, build_market
from flatwater_trading.market.orders import Holding, MarketClose, Orders, Position, decide_orders, split_due_positions
from flatwater_trading.panel.features import find_features, observed_features
from flatwater_trading.panel.normalise import OBSERVATION_LIMIT, Statistics, normalise_panel, training_statistics
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.policy.trader import ACCOUNT_PARTS, MarketObs, TraderActor
from flatwater_trading.recipe.backtest import Backtest, find_days, play_backtest
from flatwater_trading.recipe.benchmark import Benchmark, panel_benchmark
from flatwater_trading.recipe.occlusion import OcclusionDay
from flatwater_trading.recipe.panel_policy import PanelPolicy, Prices, Provenance
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.recipe.use_plan import measure_rule_choice, panel_sizes, plan_use
from flatwater_trading.training.config import ChoiceConfig, ErlConfig
from flatwater_trading.training.play import to_orders
from flatwater_trading.training.setup import build_networks
from flatwater_trading.training.state import has_champion
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.json_values import convert_to_type

MEAN, DEVIATION = "features.mean", "features.deviation"
"""Names of the scales in a file of weights."""


class TraderModule(nn.Module):
    """The network of a trader: from unscaled features, float64, to coefficients and sale targets."""

    weights: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, actor: TraderActor, weights: Tensor, scales: Statistics, trade: TradeConfig) -> None:
        """Keep weights and scales as buffers, part of the module's state.

        Args:
            actor: network as a function.
            weights: weights [1, n] of the champion.
            scales: mean and deviation of each column and feature.
            trade: bounds that actions are scaled to.
        """
        super().__init__()
        self._actor, self._trade = actor, trade
        self.register_buffer("weights", weights)
        # `self.mean` and `self.deviation` [N, 1, F]: the same scales for all rows of a window.
        for name in ("mean", "deviation"):
            self.register_buffer(name, torch.from_numpy(getattr(scales, name))[:, None])

    def forward(
        self, features: Float[Tensor, "B N C F"], account: Float[Tensor, "B K 3"] | None = None
    ) -> Float[Tensor, "B K 2"]:
        """Return coefficient and sale target, in percent, of each instrument on each day; `features` are unscaled."""
        scaled_features = (features - self.mean) / self.deviation
        # The steps of `normalise_panel` in the same order, in float64 up to the clip: observations are bit-equal.
        scaled_features = torch.nan_to_num(scaled_features, nan=0.0, posinf=0.0, neginf=0.0)
        windows = scaled_features.clamp(-OBSERVATION_LIMIT, OBSERVATION_LIMIT).to(self.weights.dtype)
        account_block = None if account is None else account[None]
        # The first axis counts members: the champion is the only one.
        action = self._actor(views(self.weights, self._actor.layout), MarketObs(windows[None], account_block))
        return to_orders(self._trade, action[0])


@dataclass(frozen=True)
class Reason:
    """A part of a trader's observation, and its effect on a coefficient."""

    what: str
    """Name of the part: `return_60`, a feature of the instrument itself; or `SPY`, another column."""
    effect: float
    """Amount by which the coefficient would be smaller without the part."""


@dataclass(frozen=True)
class Trader(PanelPolicy):
    """A policy of purchases and sales, with the scales and the rules of its training."""

    settings: ErlConfig
    """Settings of the training, with the rule of purchases that was chosen."""
    provenance: Provenance
    instruments: tuple[str, ...]
    """Names [N] of the columns of training, in their order."""
    investable: tuple[str, ...]
    """Names [K] of the columns that the trader may buy."""
    statistics: Statistics
    """Mean and deviation of the features on the training days."""
    actor: TraderActor
    weights: Float[Tensor, "1 n"]
    folder: RunFolder | None = None
    """Folder of the run; None for a trader that was read from a file."""
    choice_bytes: int = 0
    """Bytes that the choice of its rule took while it was loaded; 0 if nothing was to be chosen."""

    @property
    def config(self) -> TradingConfig:
        """The rules of trading."""
        return self.settings.env

    @property
    def lookback(self) -> int:
        """Number of rows of prices that a decision needs."""
        return self.config.episode.context - 1 + self._slowest_feature[1]

    @property
    def lookback_reason(self) -> str:
        """Clause with what needs that many rows."""
        context, (name, rows) = self.config.episode.context, self._slowest_feature
        return f"the trader looks at {context} of them (env.episode.context), and {name} of each needs {rows} up to it"

    @cached_property
    def _slowest_feature(self) -> tuple[str, int]:
        """Name of the observed feature that is computed from most rows of prices, and the number of these rows."""
        # A feature without any number in the training, whose deviation is infinite, is always observed as 0: one row.
        was_known = np.isfinite(self.statistics.deviation).any(0).tolist()
        features = find_features(self.features, self.features)
        needed_rows = [feature.rows if known else 1 for feature, known in zip(features, was_known, strict=True)]
        most_rows = max(needed_rows)
        return self.features[needed_rows.index(most_rows)], most_rows

    @property
    def opening_cash(self) -> float:
        """Money that an episode begins with."""
        return self.config.account.cash

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the observed features."""
        return self.settings.observation_features

    @cached_property
    def module(self) -> TraderModule:
        """The network with its scales and its bounds."""
        return TraderModule(self.actor, self.weights, self.statistics, self.config.trade)

    @property
    def _params(self) -> Params:
        return views(self.weights, self.actor.layout)

    def act(self, features: Array | Tensor, account: Array | Tensor | None = None) -> Array:
        """Return the coefficient and the sale target, in percent, of each instrument that can be bought: [K, 2].

        Args:
            features: features [N, C, F'] of `features_of`, or [B, N, C, F'] of several days, for actions [B, K, 2].
            account: account block [K, 3] or [B, K, 3], if the trader observes it: held or not, share of the holding
                time that has passed, gain as a fraction. Left out: nothing is held.

        Raises:
            ConfigError: `features` or `account` has another shape than in the training, or `account` a number that is
                not finite.
        """
        values = _copy_as_array(features, np.float64)
        shape = (len(self.instruments), self.config.episode.context, len(self.features))
        is_single_day = values.shape == shape
        # A single day becomes a batch of one.
        rows = values[None] if is_single_day else values
        if rows.shape[1:] != shape:
            raise ConfigError(
                f"features = an array {list(values.shape)}: expected {list(shape)}, or {['B', *shape]} of several days"
            )
        account_rows = self._account_rows(account, len(rows))
        with torch.no_grad():
            actions: Array = self.module(torch.from_numpy(rows), account_rows).numpy()
        return actions[0] if is_single_day else actions

    def _account_rows(self, account: Array | Tensor | None, days: int) -> Float[Tensor, "B K 3"] | None:
        """Return the account block of each day as a tensor; None if this trader does not observe it.

        Args:
            account: account block [K, 3] of one day, or [B, K, 3]; None for an account without positions (zeros).
            days: number B of days.

        Raises:
            ConfigError: the account is given and not observed, has another shape, or a number that is not finite.
        """
        shape = (days, len(self.investable), ACCOUNT_PARTS)
        if not self.config.account_observation:
            if account is not None:
                raise ConfigError("account is given: this trader does not see it. Leave it out.")
            return None
        if account is None:
            # All three numbers of an instrument that is not held are 0.
            return torch.zeros(shape)
        values = _copy_as_array(account, np.float32)
        # The axis of days may be left out for a single day.
        is_one_day = days <= 1 and values.shape == shape[1:]
        if values.shape != shape and not is_one_day:
            raise ConfigError(f"account = an array {list(values.shape)}: expected {list(shape)}")
        if (index := find_not_finite(values)) is not None:
            raise ConfigError(f"account{[*index]} is {values[index]}: expected a finite number")
        return torch.from_numpy(values).view(shape)

    def to_export(self) -> PolicyExport:
        """Return the trader without its run, in the form that every export is made from."""
        sees_account = self.config.account_observation
        inputs = {"features": "float64 [days, instruments, context, features], unscaled, NaN where missing"}
        account = {"account": "float32 [days, investable, 3]: held or not, share of the holding time passed, gain"}
        return PolicyExport(
            recipe="erl",
            module=self.module,
            example=self._example_inputs,
            # The axis of the days in each input.
            axes=(0, 0) if sees_account else (0,),
            inputs=inputs | (account if sees_account else {}),
            outputs={"action": "float32 [days, investable, 2]: coefficient, sale target in percent"},
            meaning={
                "context": self.config.episode.context,
                "instruments": list(self.instruments),
                "investable": list(self.investable),
                "features": list(self.features),
                "rules": to_mapping(self.config),
            },
            header={
                "settings": to_mapping(self.settings),
                "past": asdict(self.provenance),
                "instruments": list(self.instruments),
                "investable": list(self.investable),
            },
            # Without the axis of members: the champion is the only one.
            tensors={name: weight[0] for name, weight in views(self.weights, self.actor.layout).items()}
            | {MEAN: torch.from_numpy(self.statistics.mean), DEVIATION: torch.from_numpy(self.statistics.deviation)},
            loading_bytes=self.choice_bytes,
            measure_forward=True,
        )

    def _example_inputs(self, days: int) -> tuple[Tensor, ...]:
        """Return inputs of `days` days to trace an export with, drawn around each feature's mean by a fixed seed."""
        rng = torch.Generator().manual_seed(0)
        shape = (days, len(self.instruments), self.config.episode.context, len(self.features))
        # [N, 1, F]: the same scales for all rows of a window.
        mean = torch.from_numpy(self.statistics.mean)[:, None]
        deviation = torch.from_numpy(self.statistics.deviation)[:, None]
        # The deviation of a feature without any value is infinite.
        features = torch.randn(shape, generator=rng) * torch.nan_to_num(deviation, posinf=1.0) + mean
        if not self.config.account_observation:
            return (features,)
        return features, torch.rand(days, len(self.investable), ACCOUNT_PARTS, generator=rng)

    def orders(
        self,
        prices: Prices,
        positions: Sequence[Position] = (),
        cash: float | None = None,
        *,
        raw_prices: Prices | None = None,
        budget: str | None = None,
    ) -> Orders:
        """Decide what to sell and to buy after the newest day of `prices`.

        Args:
            prices: daily prices, as for `--panel`, of every column of the training, up to and with the day. They should
                reach back as far as those of training, since indicators remember.
            positions: positions before the day, as `Orders.positions` of the day before.
            cash: money of the account besides the positions. Without positions it may be left out: the money that an
                episode begins with.
            raw_prices: closes as they were traded, if `prices` are adjusted and do not hold both; orders and positions
                are then in these.
            budget: memory that may be taken, such as 2GiB. Left out: 90 % of what the machine, the container and the
                shell allow.

        Raises:
            DataError: prices or positions cannot be used.
            ConfigError: positions are held and `cash` is not given, or is not a number of 0 or more.
            MemoryLimitError: the decision would need more memory than `budget`.
        """
        money = self.sizing_cash(cash, positions, "positions")
        panel = self.align_traded_panel(prices, raw_prices)
        require_fit(self.plan_orders(panel, budget))  # raises if the plan does not fit
        market = self.observe_market(panel)
        close = MarketClose(market, panel, self.config)
        sales, holdings = split_due_positions(close, positions)
        action = self._compute_orders(self._newest_window(market), self._account_block(holdings))
        orders = decide_orders(close, action, sales, holdings, money)
        return replace(orders, short_histories=self.find_short_histories(panel))

    def reasons(
        self, prices: Prices, orders: Orders, instrument: str, *, budget: str | None = None
    ) -> tuple[Reason, ...]:
        """Explain the coefficient of an instrument that was not held, the largest effect first.

        By `occlusion`: a feature of the instrument, or another column, is replaced by its mean on every observed day,
        and the coefficient is computed again.

        Args:
            prices: prices of the orders.
            orders: orders of the newest day of the prices.
            instrument: name of an instrument in `investable`.
            budget: memory that may be taken, as in `orders`.

        Raises:
            MemoryLimitError: the explanation would need more memory than `budget`.
        """
        panel = self.align_panel(prices)
        require_fit(self.plan_orders(panel, budget))  # raises if the plan does not fit
        window = self._newest_window(self.observe_market(panel))
        column, investable_index = self.instruments.index(instrument), self.investable.index(instrument)
        account = self._account_block(orders.holdings)
        occlusion = OcclusionDay(self.actor, self._params, self.config.trade, window, account)
        # Columns of the panel are hidden, but only instruments that can be bought have a coefficient.
        coefficient = occlusion.all_coefficients()[investable_index]
        other_columns = [n for n in range(len(self.instruments)) if n != column]
        # The instrument's features are hidden one by one, other columns whole.
        coefficients = torch.cat([occlusion.without_own_features(column), *occlusion.without_columns(other_columns)])
        effects = (coefficient - coefficients[:, investable_index]).tolist()
        names = [*self.features, *(self.instruments[n] for n in other_columns)]
        reasons = [Reason(name, effect) for name, effect in zip(names, effects, strict=True)]
        return tuple(sorted(reasons, key=lambda reason: -abs(reason.effect)))

    def features_of(self, prices: Prices) -> Float[Tensor, "N C F"]:
        """Return the unscaled features of the days that a decision on the newest day sees, NaN if missing.

        They are the input of an exported trader.
        """
        panel = self.align_panel(prices)
        days = len(panel.dates)
        all_columns = slice(None)
        features = torch.from_numpy(
            observed_features(panel, find_features(self.features, panel.features), stop=days, columns=all_columns)
        )
        # Cut after the features are computed: a return over 120 rows needs rows before the window.
        return features[days - self.config.episode.context :].transpose(0, 1)

    def plan_orders(self, panel: Panel, budget: str | None = None) -> Plan:
        """Plan the memory of deciding on the newest day of a panel, and of explaining the decision."""
        return plan_use(self.settings, panel, budget, choice_bytes=self.choice_bytes)

    def plan_backtest(self, panel: Panel, days: Days, budget: str | None = None) -> Plan:
        """Plan the memory of playing days of a panel against the baselines."""
        return plan_use(self.settings, panel, budget, days=days, choice_bytes=self.choice_bytes)

    def find_days(self, panel: Panel, first: str | None, last: str | None) -> Days:
        """Find the rows that are played; see `backtest`."""
        return find_days(self, panel, first, last)

    def play_backtest(
        self,
        panel: Panel,
        days: Days,
        truth: np.ndarray[Any, Any] | None = None,
        benchmark: Benchmark | None = None,
    ) -> Backtest:
        """Play days against the baselines and a benchmark: `benchmark` or, if it is None, that of the settings.

        Args:
            panel: panel of `align_panel`.
            days: rows of the panel, from `find_days`.
            truth: expected log returns [T, K] of a synthetic market; None if they are unknown.
            benchmark: price that is bought and held besides.
        """
        return play_backtest(self, panel, days, truth, benchmark or panel_benchmark(self.settings.benchmark, panel))

    def observe_market(self, panel: Panel) -> Market:
        """Return the market, with the trader's observations, of a panel that `align_panel` gave."""
        observations = normalise_panel(panel, self.features, self.statistics)
        return build_market(panel, observations, torch.device("cpu"), self.config.account)

    def _newest_window(self, market: Market) -> Float[Tensor, "N C F"]:
        return market.observations[:, -self.config.episode.context :]

    def _account_block(self, holdings: Sequence[Holding]) -> Float[Tensor, "1 1 K 3"] | None:
        """Return the account as the trader's network sees it; None if its observation has no account.

        Each of K instruments has three numbers: 1 if it is held, else 0; the share of the holding time that has passed;
        and the unrealised gain as a fraction. The first two axes, of one member and one day, are 1.
        """
        if not self.config.account_observation:
            return None
        block = torch.zeros(1, 1, len(self.investable), ACCOUNT_PARTS)
        hold = self.config.trade.hold_days
        for holding in holdings:
            passed_share, gain = (hold - holding.days_left) / hold, holding.gain
            block[0, 0, self.investable.index(holding.position.instrument)] = torch.tensor([1.0, passed_share, gain])
        return block

    def _compute_orders(
        self, window: Float[Tensor, "N C F"], account: Float[Tensor, "1 1 K 3"] | None
    ) -> Float[Tensor, "K 2"]:
        """Return coefficient and sale target, in percent, of each instrument on a day, from its normalised window."""
        # The first axes are members and days, one of each.
        with torch.no_grad():
            action = self.actor(self._params, MarketObs(window[None, None], account))
        return to_orders(self.config.trade, action[0])[0]


def _copy_as_array(values: Array | Tensor, dtype: type[np.floating[Any]]) -> Array:
    """Copy an array or a tensor to an array of this type."""
    return np.array(values.cpu().numpy() if isinstance(values, Tensor) else values, dtype)


def trader_settings(config: ErlConfig, rule: TradeConfig) -> ErlConfig:
    """Return the settings of a trader: those of its training, with the chosen rule of purchases as the only one."""
    only_rule = ChoiceConfig(by_validation=False)
    return replace(_training_settings(config), env=replace(config.env, trade=rule), choice=only_rule)


def _training_settings(config: ErlConfig) -> ErlConfig:
    """Return the fields of `ErlConfig` alone: `config` may have those of a run as well."""
    return ErlConfig(**{field.name: getattr(config, field.name) for field in fields(ErlConfig)})


def make_trader(run: ErlRun, folder: RunFolder) -> Trader:
    """Make the trader of a restored run: its champion.

    Raises:
        ConfigError: no generation has been validated yet, so there is no champion.
    """
    if not has_champion(run.trainer.run):
        raise ConfigError(
            f"the run has no champion yet: {run.reason_against_scoring()}. Train on until the first generation ends."
        )
    panel, config, setup = run.panel, run.config, run.setup
    # The champion's row is the last. A copy: the run may train on and write another champion into this row.
    weights = run.trainer.run.learner.actor[-1:].clone().cpu()
    # Built for the CPU, wherever the run is, as networks have column numbers as tensors.
    actor, _ = build_networks(config, len(panel.instruments), run.trainer.run.market.investable.cpu())
    return Trader(
        settings=trader_settings(config, run.choose_rule().chosen),
        provenance=Provenance.of_run(panel, setup.splits, run.trainer.progress.round),
        instruments=panel.instruments,
        investable=panel.investable_names,
        statistics=training_statistics(panel, config.observation_features, setup.splits.train.stop),
        actor=actor,
        weights=weights,
        folder=folder,
        choice_bytes=measure_rule_choice(_training_settings(config), panel_sizes(panel), setup.splits.validation),
    )


@dataclass(frozen=True)
class _TraderHeader:
    """The header of an exported trader's file, which also has its tensors."""

    settings: dict[str, Any]
    past: Provenance
    instruments: list[str]
    investable: list[str]


def rebuild_trader(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Trader:
    """Return the trader whose settings and weights are the header and the tensors of a .safetensors file.

    Raises:
        ConfigError: the header's settings do not fit `ErlConfig`.
        ValueError: header and tensors do not fit each other.
    """
    header_values = convert_to_type(dict(header), _TraderHeader)
    settings = from_mapping(ErlConfig, header_values.settings, "settings")
    features, names = settings.observation_features, header_values.instruments
    unknown = [name for name in header_values.investable if name not in names]
    if unknown or not header_values.investable:
        raise ValueError(f"investable = {header_values.investable}: expected some of the instruments")
    mean, deviation = tensors.get(MEAN), tensors.get(DEVIATION)
    shape = (len(names), len(features))
    if mean is None or deviation is None or not tuple(mean.shape) == tuple(deviation.shape) == shape:
        raise ValueError(f"{MEAN}, {DEVIATION}: expected [{len(names)}, {len(features)}], instruments x features")
    investable = torch.tensor([names.index(name) for name in header_values.investable])
    actor, _ = build_networks(settings, len(names), investable)
    return Trader(
        settings=settings,
        provenance=header_values.past,
        instruments=tuple(names),
        investable=tuple(header_values.investable),
        statistics=Statistics(mean=mean.double().numpy(), deviation=deviation.double().numpy()),
        actor=actor,
        weights=join_weights(tensors, actor.layout),
    )
