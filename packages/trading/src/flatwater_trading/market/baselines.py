"""Baselines of an agent: buy and hold, equal weights, and random actions, all with the account's costs.

Curves are timed like the simulator's: the opening cash, then the value at the close of each day of the window, sold on
its last day. An instrument whose data has ended is worth its last usable close.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater_trading.market.config import AccountConfig, TradingConfig
from flatwater_trading.market.costs import Costs
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, step_
from flatwater_watch.progress import count_steps

EQUAL_WEIGHT_ITERATIONS = 4
"""Iterations for equal weights after costs, if all costs are in proportion to the value."""


def buy_and_hold(market: Market, start: int, end: int, account: AccountConfig) -> Float[Tensor, " D1"]:
    """Return the equity of buying equal amounts of all instruments with a close on row `start`, sold on row `end` - 1.

    Args:
        market: prices [T, K].
        start: row of the purchase.
        end: row after the row of the sale.
        account: opening cash and costs.

    Returns:
        Equity [D + 1]: the opening cash, then the value at each of the D = end - start closes.
    """
    is_listed = market.close[start] > 0
    entry, exit_ = _row_costs(market, account, start), _row_costs(market, account, end - 1)
    return buy_and_hold_equity(market.last_close[start:end].double(), is_listed, account, entry, exit_)


def _row_costs(market: Market, account: AccountConfig, row: int) -> Costs:
    """Return the costs of trades in all instruments on a row."""
    return market.costs(account, row, torch.arange(market.last_close.shape[1], device=market.last_close.device))


def buy_and_hold_equity(
    last_close: Float[Tensor, "D K"],
    is_listed: Bool[Tensor, "K"],
    account: AccountConfig,
    entry: Costs | None = None,
    exit_: Costs | None = None,
) -> Float[Tensor, " D1"]:
    """Return the equity of equal amounts of the listed columns, bought at the first close and sold at the last.

    Args:
        last_close: last closes [D, K].
        is_listed: mask of the columns that are bought.
        account: opening cash, and the costs that are in proportion to a value.
        entry: costs on the first day; None for those in proportion alone.
        exit_: costs on the last day; None for those in proportion alone.
    """
    entry, exit_ = entry or Costs(account), exit_ or Costs(account)
    share = account.cash / is_listed.sum().clamp(min=1)
    # A column that is not listed may have a last close of 0, so its infinite number of shares is masked out.
    shares = (entry.affordable_value(share, last_close[0]) / last_close[0]).where(is_listed, 0)
    # If nothing is listed, all cash stays cash.
    idle_cash = account.cash * (~is_listed.any()).double()
    value = last_close @ shares
    # Sold at the last close, as the simulator sells open positions at an episode's end: less the costs in proportion to
    # the value, then less the others. Columns that are not listed have 0 shares, so any price may stand for theirs.
    value[-1] = value[-1] * account.sale_factor
    value[-1] -= exit_.extra_cost(-shares * last_close[-1], last_close[-1].where(is_listed, 1.0)).sum()
    return torch.cat([value.new_full((1,), account.cash), value + idle_cash]).float()


def equal_weight(market: Market, start: int, end: int, account: AccountConfig) -> Float[Tensor, " D1"]:
    """Return the equity of equal weights of all instruments with a close, restored daily and sold on row `end` - 1.

    Shares of an instrument without a close on a day are kept; if its data has ended they are sold at its last usable
    close.

    Args:
        market: prices [T, K].
        start: row of the first purchases.
        end: row after the row on which all is sold.
        account: opening cash and costs.

    Returns:
        Equity [D + 1]: the opening cash, then the value at each of the D = end - start closes.
    """
    # Float64, as shares are traded on each of a thousand days and float32 would drift.
    cash = torch.tensor(account.cash, dtype=torch.float64, device=market.last_close.device)
    shares = torch.zeros(market.last_close.shape[1], dtype=torch.float64, device=market.last_close.device)
    curve = [cash]
    for day in count_steps("days of equal weights", range(start, end)):
        last_close = market.last_close[day].double()
        has_price = market.close[day] > 0
        if day == end - 1:
            # On the last day no instrument gets a part of the money, so all is sold.
            is_listed, tradable = torch.zeros_like(has_price), torch.ones_like(has_price)
        else:
            is_listed = has_price
            # Shares whose data has ended can be sold from the day after the last usable close, as in `resolve_exits`.
            tradable = has_price | (market.last_day < day)
        value = shares * last_close
        money = cash + value[tradable].sum()
        target, cost = _equal_targets(
            value,
            last_close,
            is_listed=is_listed,
            tradable=tradable,
            money=money,
            costs=_row_costs(market, account, day),
        )
        # All money is spent on weights and costs, so if anything is listed the cash is rounding.
        cash = money - target[tradable].sum() - cost
        shares = torch.where(tradable, target / last_close.where(last_close > 0, 1), shares)
        curve.append(cash + (shares * last_close).sum())
    return torch.stack(curve).float()


def _equal_targets(
    value: Tensor, last_close: Tensor, *, is_listed: Tensor, tradable: Tensor, money: Tensor, costs: Costs
) -> tuple[Tensor, Tensor]:
    """Return the target value [K] of each instrument, and the total cost of trading to these values.

    The target is equal for all listed instruments, and 0 for others that can be sold; `money` pays for values and cost.

    Args:
        value: value of each instrument held, [K].
        last_close: last closes [K].
        is_listed: mask [K] of the instruments that get an equal share.
        tradable: mask [K] of the instruments that can be traded; the others keep their value.
        money: cash and the value of the instruments that can be traded; shares and costs are paid from it.
        costs: costs of buying and selling.
    """
    cost = torch.zeros_like(money)
    target = value
    # The cost depends on the shares and these on the money after the cost: iterated until both agree.
    for _ in range(costs.iterations(if_proportional=EQUAL_WEIGHT_ITERATIONS)):
        equal_share = (money - cost) / is_listed.sum().clamp(min=1)
        target = torch.where(is_listed, equal_share, torch.where(tradable, 0, value))
        cost = costs.cost_of_changes(target - value, last_close)
    return target, cost


def play_random_(
    sim: Simulator,
    market: Market,
    config: TradingConfig,
    *,
    days: int,
    rng: torch.Generator,
    buys: Int[Tensor, " D"] | None = None,
) -> None:
    """Play `days` steps of the episodes that `reset_` has begun with actions drawn evenly from the action space.

    Args:
        sim: simulator; written in place, and its logs then hold the random trader's trades and equity.
        market: prices.
        config: settings, with the ranges of the actions.
        days: number of days of the longest episode; an episode that has ended stays as it is.
        rng: generator on the simulator's device.
        buys: number of purchases on each day; None leaves them to chance too.
    """
    low = torch.tensor([0.0, config.trade.target_low], device=sim.day.device)
    high = torch.tensor([config.trade.coefficient_max, config.trade.target_high], device=sim.day.device)
    action = torch.empty(len(sim.day), sim.instruments, 2, device=sim.day.device)
    purchase_counts = None if buys is None else buys.tolist()
    for day in count_steps("days of random traders", range(days)):
        # All coefficients and targets of a day are drawn, used or not, so that no day shifts the numbers of another.
        action.uniform_(0, 1, generator=rng).mul_(high - low).add_(low)
        if purchase_counts is not None:
            # On days with a purchase moved to the threshold or above; on others times False, so 0, which buys nothing.
            action[..., 0].add_(config.trade.buy_threshold).mul_(purchase_counts[day] > 0)
        # `step_` needs 1 or more; on a day without a purchase the coefficients of 0 prevent it.
        most_purchases = None if purchase_counts is None else max(1, purchase_counts[day])
        step_(sim, market, config, action, purchases=most_purchases)
