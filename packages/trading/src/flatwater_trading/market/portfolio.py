"""The account of target weights: the trades at a close that lead to the weights, their costs, and the shares after it.

Orders and backtests use the same function, `rebalance`, in float64, so that they agree to the cent. It knows only
prices up to the day. An instrument without a close on the day cannot be traded and keeps its shares at its last price;
after `STALE_DAYS` such days it is sold at that price. Until then it takes its part of the equity, and the others get
less.

Costs are paid from the same money as the shares: the weights are parts of the equity after costs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.costs import CostRates, Costs
from flatwater_trading.market.stop import initial_stop, update_stop
from flatwater_watch.progress import count_steps

STALE_DAYS = 10
"""Days without a close after which a holding is sold at its last price."""
ITERATIONS = 6
"""Iterations for the equity after costs: each multiplies the error by the cost rate, and six leave 1e-16 of it."""
MINIMUM_VALUE = 1e-9
"""Part of the equity below which a difference is rounding and is not traded."""
MINIMUM_GAIN = -0.95
"""Lower limit of a day's gain, as part of the money: its logarithm has to exist."""


@dataclass(frozen=True)
class DayPrices:
    """Prices that are known at the close of a day."""

    last_close: Float[Tensor, "K"]
    """The last close, float64; 0 before the first."""
    priced: Bool[Tensor, "K"]
    """Mask of the instruments that have a close on this day."""
    stale: Bool[Tensor, "K"]
    """Mask of the instruments that have not had a close for `STALE_DAYS` days."""
    rates: CostRates | None = None
    """Rates of costs; None if all costs are in proportion to the value."""


@dataclass(frozen=True)
class RebalancedAccounts:
    """Accounts after the trades of a day."""

    shares: Float[Tensor, "B K"]
    cash: Float[Tensor, "B"]
    traded: Float[Tensor, "B K"]
    """Value bought of each instrument; below 0 for a sale."""
    cost: Float[Tensor, "B"]


@dataclass(frozen=True)
class PortfolioPrices:
    """Closes of K instruments on T days, for accounts of target weights."""

    last_close: Float[Tensor, "T K"]
    """The last close so far, float64; 0 before the first."""
    age: Int[Tensor, "T K"]
    """Days since that close; 0 on its own day."""
    rates: CostRates | None = None
    """Rates of costs on all days; None if all costs are in proportion to the value."""

    def day(self, row: int) -> DayPrices:
        """Return the prices and rates that are known at the close of a day."""
        last_close, age = self.last_close[row], self.age[row]
        rates = None if self.rates is None else self.rates.row(row)
        return DayPrices(last_close, priced=(age == 0) & (last_close > 0), stale=age >= STALE_DAYS, rates=rates)


def portfolio_prices(close: Float[Tensor, "T K"], rates: CostRates | None = None) -> PortfolioPrices:
    """Return the last close up to each day and its age, the number of rows since it; 0 for a close of the day itself.

    Args:
        close: closes, NaN on days without one.
        rates: rates of the costs, which the prices keep for accounts; None if all are in proportion to the value.
    """
    rows = torch.arange(len(close), device=close.device)[:, None].expand(close.shape)
    is_usable = close > 0  # False for NaN too
    # For each row the last usable row up to it; -1 if there is none yet.
    newest_rows = torch.where(is_usable, rows, -1).cummax(0).values
    last_close = close.double().nan_to_num(nan=0.0).gather(0, newest_rows.clamp(min=0)).where(newest_rows >= 0, 0.0)
    # Before an instrument's first close the age counts from row 0; its last close of 0 shows that there is no price.
    return PortfolioPrices(last_close, age=rows - newest_rows.clamp(min=0), rates=rates)


def rebalance(
    shares: Float[Tensor, "B K"],
    cash: Float[Tensor, "B"],
    targets: Float[Tensor, "B K"],
    prices: DayPrices,
    config: PortfolioConfig,
    *,
    is_stopped: Bool[Tensor, "B"] | None = None,
) -> RebalancedAccounts:
    """Trade to target weights at the close of a day; orders below `config.least_order` are left out.

    The changes that the targets need are limited to the turnover, dropped within the band, and lowered to the cash.

    Args:
        shares: shares held before, float64.
        cash: money of the accounts besides the shares.
        targets: target weights, parts of the equity; taken as 0 for an instrument without a close on the day.
        prices: prices of the day, with the rates of costs.
        config: costs, the largest sum of weights and turnover, and the band within which nothing is traded.
        is_stopped: mask of the accounts that sell all, whatever their targets, turnover and band; None for none.
    """
    costs = Costs(config, prices.rates)
    value = shares * prices.last_close
    equity = cash + value.sum(-1)
    targets = targets.double().where(prices.priced, 0.0)
    is_stopped = torch.zeros_like(equity, dtype=torch.bool) if is_stopped is None else is_stopped
    # An account that has lost everything, by short sales, closes all positions that it can.
    targets = targets.where(((equity > 0) & ~is_stopped)[:, None], 0.0)
    change = _changes_after_costs(value, equity, targets, prices, costs, gross=config.gross)
    change = _limit_turnover(change, value, equity, prices, config, is_stopped=is_stopped)
    change = _drop_small_orders(change, value, equity, config)
    change = _limit_to_cash(change, value, cash, costs, prices.last_close)
    # Again, as purchases that were lowered may be too small now.
    change = _drop_small_orders(change, value, equity, config)
    cost = costs.cost_of_changes(change, prices.last_close)
    cash_left = cash - change.sum(-1) - cost
    # A position that is sold whole leaves no 1e-14 shares, above or below 0.
    is_closed = (change != 0) & ((value + change).abs() <= (MINIMUM_VALUE * equity.abs())[:, None])
    return RebalancedAccounts(
        shares=(shares + change / prices.last_close.where(prices.last_close > 0, 1.0)).where(~is_closed, 0.0),
        # Cash that is a few 1e-11 below 0 is rounding, not debt.
        cash=cash_left.where((cash_left > 0) | (cash_left < -MINIMUM_VALUE * equity.abs()), 0.0),
        traded=change,
        cost=cost,
    )


def _changes_after_costs(
    value: Float[Tensor, "B K"],
    equity: Float[Tensor, "B"],
    targets: Float[Tensor, "B K"],
    prices: DayPrices,
    costs: Costs,
    *,
    gross: float,
) -> Float[Tensor, "B K"]:
    """Return the value to buy of each instrument, so that targets are parts of the equity that is left after costs.

    Args:
        value: value held of each instrument.
        equity: equity before the trades.
        targets: target weights, 0 for an instrument without a close on the day.
        prices: prices of the day.
        costs: costs of the trades.
        gross: largest sum of weights.
    """
    tradable = prices.priced | prices.stale
    # Value of the shares that cannot be sold today, and sum of the target weights.
    locked_value, target_sum = value.where(~tradable, 0.0).abs().sum(-1), targets.abs().sum(-1)
    cost, change = torch.zeros_like(equity), torch.zeros_like(value)
    # The cost depends on the changes and these on the equity after the cost: iterated until both agree.
    for _ in range(costs.iterations(if_proportional=ITERATIONS)):
        net_equity = equity - cost
        # Shares that cannot be sold take their part of the equity, so targets are scaled to the other part; never above
        # 1, as the part of the equity that the targets do not use stays cash.
        free_value = (gross * net_equity - locked_value).clamp(min=0)
        scale = (free_value / (target_sum * net_equity).clamp(min=MINIMUM_VALUE)).clamp(max=1)
        change = ((targets * (net_equity * scale)[:, None]) - value).where(tradable, 0.0)
        cost = costs.cost_of_changes(change, prices.last_close)
    return change


def _limit_turnover(
    change: Float[Tensor, "B K"],
    value: Float[Tensor, "B K"],
    equity: Float[Tensor, "B"],
    prices: DayPrices,
    config: PortfolioConfig,
    *,
    is_stopped: Bool[Tensor, "B"],
) -> Float[Tensor, "B K"]:
    """Limit the changes of each account to `config.turnover`; an account whose changes are within the band makes none.

    The limit lowers all changes in proportion. Shares that are stale (without a close for `STALE_DAYS` days) are sold
    whole in any case, and so is everything at a stop, and on the last day, when all shares count as stale.

    Args:
        change: value to buy of each instrument; below 0 for a sale.
        value: value held of each instrument.
        equity: equity before the trades.
        prices: prices of the day.
        config: turnover and band, as parts of the equity.
        is_stopped: mask of the accounts that sell all.
    """
    trade_value = change.where(~prices.stale, 0.0).abs().sum(-1)
    traded_part = (config.turnover * equity / trade_value.clamp(min=MINIMUM_VALUE)).clamp(min=0, max=1)
    # [B, K]: not lowered.
    is_traded_whole = prices.stale | is_stopped[:, None]
    limited_change = change * traded_part[:, None].where(~is_traded_whole, 1.0)
    holds_stale = (value.where(prices.stale, 0.0) != 0).any(-1)
    trades_today = (limited_change.abs().sum(-1) >= config.band * equity) | holds_stale | is_stopped
    return limited_change.where(trades_today[:, None], 0.0)


def _drop_small_orders(
    change: Float[Tensor, "B K"], value: Float[Tensor, "B K"], equity: Float[Tensor, "B"], config: PortfolioConfig
) -> Float[Tensor, "B K"]:
    """Return the changes with 0 in the place of orders that are smaller than `config.least_order` of the equity.

    An order that closes a position may be smaller.
    """
    closes_position = (value + change).abs() <= MINIMUM_VALUE * equity[:, None]
    # A change up to `MINIMUM_VALUE` of the equity is rounding, and never an order.
    least_value = torch.where(
        closes_position, equity[:, None] * MINIMUM_VALUE, equity[:, None] * max(MINIMUM_VALUE, config.least_order)
    )
    return change.where(change.abs() > least_value, 0.0)


def _limit_to_cash(
    change: Float[Tensor, "B K"],
    value: Float[Tensor, "B K"],
    cash: Float[Tensor, "B"],
    costs: Costs,
    last_close: Float[Tensor, "K"],
) -> Float[Tensor, "B K"]:
    """Return the changes with purchases lowered in proportion, if purchases and costs would take more than the cash.

    Cash may be short because small sales were dropped, or because of costs that are not in proportion to the value: a
    minimum for each of many orders, or a large part of the volume. Purchases that close a short sale are not lowered.

    Args:
        change: value to buy of each instrument; below 0 for a sale.
        value: value held of each instrument.
        cash: money of the accounts.
        costs: costs of the trades.
        last_close: last closes.
    """
    purchases = change.where((change > 0) & (value >= 0), 0.0)
    cash_left = cash - change.sum(-1) - costs.cost_of_changes(change, last_close)
    # Where the cash left is below 0, purchases are lowered by what is missing. Smaller purchases cost no more, so the
    # cash left is then 0 or more.
    affordable_part = (1 + cash_left / purchases.sum(-1).clamp(min=MINIMUM_VALUE)).clamp(0, 1)
    return change.where(purchases == 0, purchases * affordable_part[:, None])


@dataclass(frozen=True)
class PlayedWeights:
    """Accounts after D days."""

    equity: Float[Tensor, "B D+1"]
    """Equity at the start and after the trades of each close."""
    invested: Float[Tensor, "B D+1"]
    """Value of the shares at the same times; shares sold short count with their absolute value."""
    log: Float[Tensor, "L D K"]
    """Value bought of each instrument on each day by the first L accounts; below 0 for a sale."""
    trades: Float[Tensor, "B"]
    """Number of orders."""
    traded: Float[Tensor, "B"]
    """Value bought and sold."""
    cost: Float[Tensor, "B"]
    stopped: Int[Tensor, "B"]
    """Number of closes at which the account was kept in cash by its stop."""


ChooseWeights = Callable[[int, DayPrices], Float[Tensor, "B K"]]
"""Function that gives target weights from the number of a day, from 0, and its prices."""


def play_weights(
    prices: PortfolioPrices,
    config: PortfolioConfig,
    choose_weights: ChooseWeights,
    *,
    start: int,
    days: int,
    batch: int = 1,
    logged_accounts: int = 0,
) -> PlayedWeights:
    """Play accounts of target weights that begin with cash; on the last day everything is sold.

    Args:
        prices: prices of all days.
        config: cash, costs, limits and stop.
        choose_weights: function that gives the weights of each day; it is not called on the last day.
        start: row of the first day.
        days: number of days.
        batch: number of accounts that are played at once.
        logged_accounts: number of the first accounts whose trades are kept.
    """
    last_close, instruments = prices.last_close, prices.last_close.shape[1]
    cash = last_close.new_full((batch,), config.cash)
    shares = last_close.new_zeros(batch, instruments)
    played_weights = _empty_records(last_close, batch=batch, days=days, logged_accounts=logged_accounts)
    stop = initial_stop(cash)
    played_weights.equity[:, 0] = cash
    for number in count_steps("days of an account", range(days)):
        today = prices.day(start + number)
        is_last = number == days - 1
        if is_last:
            # Stale shares are sold at their last close, so on the last day all shares count as stale.
            today = replace(today, stale=torch.ones_like(today.stale))
        target = last_close.new_zeros(batch, instruments) if is_last else choose_weights(number, today)
        stop, is_stopped = update_stop(stop, cash + (shares * today.last_close).sum(-1), start + number, config)
        accounts = rebalance(shares, cash, target, today, config, is_stopped=is_stopped)
        shares, cash = accounts.shares, accounts.cash
        value = shares * today.last_close
        played_weights.invested[:, number + 1] = value.abs().sum(-1)
        played_weights.equity[:, number + 1] = cash + value.sum(-1)
        played_weights.log[:, number] = accounts.traded[:logged_accounts]
        played_weights.trades.add_((accounts.traded != 0).sum(-1))
        played_weights.traded.add_(accounts.traded.abs().sum(-1))
        played_weights.cost.add_(accounts.cost)
        played_weights.stopped.add_(is_stopped)
    return played_weights


def _empty_records(last_close: Float[Tensor, "T K"], *, batch: int, days: int, logged_accounts: int) -> PlayedWeights:
    """Allocate the records of accounts, written day by day; `last_close` gives instruments, type and device."""
    return PlayedWeights(
        equity=last_close.new_empty(batch, days + 1),
        invested=last_close.new_zeros(batch, days + 1),
        log=last_close.new_empty(logged_accounts, days, last_close.shape[1]),
        trades=last_close.new_zeros(batch),
        traded=last_close.new_zeros(batch),
        cost=last_close.new_zeros(batch),
        stopped=last_close.new_zeros(batch, dtype=torch.int64),
    )


def log_growth(
    weights: Float[Tensor, "*B D K"], following: Float[Tensor, "*B D K"], costs: Costs, cash: float
) -> Float[Tensor, "*B D"]:
    """Return the log growth of the money from each day's close to the next, less the cost of trading to the weights.

    Prices do not react to trades, so the account is a function of the weights alone, and can be differentiated (Moody &
    Saffell 2001; Jiang, Xu & Liang 2017): log(1 + w . r) + log(1 - c |w - w~|), with w~ the weights of the day before
    as the prices have moved them. Before the first day all is cash.

    Args:
        weights: weights that are held from each day's close on, on consecutive days.
        following: returns up to the next close.
        costs: costs of trades on these days; shares are counted at a price of 1, so their rate is that of a value of 1.
        cash: money of the account on every day, on which costs depend that are not in proportion to the value.
    """
    # Clamped, as instruments sold short can lose more than all the money, of which log1p is NaN.
    gain = (weights * following).sum(-1).clamp(min=MINIMUM_GAIN)
    drifted_weights = weights * (1 + following) / (1 + gain).unsqueeze(-1)
    previous_weights = torch.cat([torch.zeros_like(drifted_weights[..., :1, :]), drifted_weights[..., :-1, :]], dim=-2)
    change = weights - previous_weights
    cost = costs.config.mean_rate * change.abs().sum(-1)
    if costs.rates is not None:
        # Shares are counted at a price of 1.
        extra_cost = costs.extra_cost(change * cash, torch.ones_like(change)).sum(-1)
        # Costs of a small account may exceed its money, of which log1p is NaN too.
        cost = (cost + extra_cost / cash).clamp(max=-MINIMUM_GAIN)
    return torch.log1p(gain) + torch.log1p(-cost)
