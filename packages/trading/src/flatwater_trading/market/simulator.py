"""B episodes in lock-step: everything is allocated by `build_simulator` and written in place, without a host sync.

A trade's exit is resolved when it is opened (see `exits`) and booked on the day it will happen: its reward in
`reward_due`, its proceeds in `proceeds_due`. A step therefore looks at the day's actions [B, K] and at the positions
that can be open [H, B], never back through the episode. Purchases of a day are booked one after the other.

An episode ends by termination, never by truncation: on its last day all open positions are sold, so nothing has to be
bootstrapped. Episodes of a batch may differ in length; an ended episode stays as it is, with reward 0, until it is
reset.
"""

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state
from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.costs import Costs
from flatwater_trading.market.exits import resolve_exits, target_prices, trade_rewards
from flatwater_trading.market.market import Market
from flatwater_watch.errors import ConfigError


@state
class Positions:
    """The positions that can be open: for each of the last `hold_days` days those that could be bought on it.

    Today's begin at row `clock % hold_days * purchases`; the trades that they replace have closed by today.
    """

    instrument: Int[Tensor, "H B"]
    """Number of the instrument in the market; without meaning for a closed position."""
    exit_day: Int[Tensor, "H B"]
    """Row of the panel; a position is open before it. -1 if nothing was bought."""
    entry_price: Float[Tensor, "H B"]
    shares: Float[Tensor, "H B"]


@state
class Logs:
    """The log of each day of each episode; the extra day is for the writes of ended episodes.

    M columns are days times the purchases of a day, the day varying slowest. Columns after the current day have values
    of earlier episodes, except for `exit_day`, `equity` and `invested`.
    """

    instrument: Int[Tensor, "B M"]
    """Instrument that was bought; without meaning if `exit_day` is -1."""
    exit_day: Int[Tensor, "B M"]
    """Row of the panel on which the purchase closes, a future row until then; -1 without a purchase."""
    coefficient: Float[Tensor, "B M"]
    target: Float[Tensor, "B M"]
    """Sale target, in percent above the purchase price."""
    entry_price: Float[Tensor, "B M"]
    exit_price: Float[Tensor, "B M"]
    shares: Float[Tensor, "B M"]
    equity: Float[Tensor, "B D1"]
    """Equity at the start (column 0) and at the close of each day (column d + 1 for day d); NaN after the end."""
    invested: Float[Tensor, "B D1"]
    """Value of the open positions at the same times as `equity`."""


def build_positions(*, count: int, batch: int, device: torch.device) -> Positions:
    """Allocate `count` positions for each episode, all of them closed."""
    shape = (count, batch)
    return Positions(
        instrument=filled_tensor(0, *shape, dtype=torch.int64, device=device),
        exit_day=filled_tensor(-1, *shape, dtype=torch.int64, device=device),
        entry_price=filled_tensor(0, *shape, device=device),
        shares=filled_tensor(0, *shape, device=device),
    )


def build_logs(*, batch: int, max_days: int, purchases: int, device: torch.device) -> Logs:
    """Allocate empty logs of `batch` episodes of at most `max_days` days, with up to `purchases` purchases on each."""
    day_shape, purchase_shape = (batch, max_days + 1), (batch, (max_days + 1) * purchases)
    return Logs(
        instrument=filled_tensor(0, *purchase_shape, dtype=torch.int64, device=device),
        exit_day=filled_tensor(-1, *purchase_shape, dtype=torch.int64, device=device),
        coefficient=filled_tensor(0, *purchase_shape, device=device),
        target=filled_tensor(0, *purchase_shape, device=device),
        entry_price=filled_tensor(0, *purchase_shape, device=device),
        exit_price=filled_tensor(0, *purchase_shape, device=device),
        shares=filled_tensor(0, *purchase_shape, device=device),
        equity=filled_tensor(0, *day_shape, device=device),
        invested=filled_tensor(0, *day_shape, device=device),
    )


def clear_logs_(logs: Logs, chosen_envs: Bool[Tensor, " B"], cash: float) -> None:
    """Clear the logs of the chosen episodes: nothing is bought, and `cash` is the only known equity."""
    rows = chosen_envs[:, None]
    logs.exit_day.masked_fill_(rows, -1)
    logs.equity.masked_fill_(rows, torch.nan)
    logs.invested.masked_fill_(rows, torch.nan)
    logs.equity[:, 0].masked_fill_(chosen_envs, cash)
    logs.invested[:, 0].masked_fill_(chosen_envs, 0)


@state
class Simulator:
    """B episodes of at most D days."""

    day: Int[Tensor, " B"]
    """Row of the panel on which the next step acts; `end` once the episode has ended."""
    start: Int[Tensor, " B"]
    """Row of the first trading day."""
    trading_end: Int[Tensor, " B"]
    """Row after the last trading day: from this row on nothing is bought."""
    end: Int[Tensor, " B"]
    """Row after the last day, on which all open positions are sold."""
    cash: Float[Tensor, " B"]
    """Money that is not invested."""
    total: Float[Tensor, " B"]
    """Sum of the episode's rewards so far."""
    refused: Int[Tensor, " B"]
    """Days so far on which an instrument not held reached the threshold, and nothing was bought."""
    reward_due: Float[Tensor, "B D1"]
    """Reward of the trades that close on each day of the episode, booked when they are opened."""
    proceeds_due: Float[Tensor, "B D1"]
    """Proceeds after costs of the trades that close on each day of the episode, booked when they are opened."""
    positions: Positions
    logs: Logs
    days_ahead: Int[Tensor, "hold 1"] = derived_field()
    """The numbers 1 .. `hold_days`: days after a purchase on which it may be sold."""
    first_cell: Int[Tensor, " B"] = derived_field()
    """Offset at which each episode's row of [B, D + 1] begins in flat storage."""
    instruments: int
    """Number K of instruments of an action."""
    opening_cash: float
    """Money at the start of each episode."""
    clock: int = 0
    """Steps taken since all episodes began together."""

    @property
    def purchases_a_day(self) -> int:
        """Most purchases of a day."""
        return len(self.positions.exit_day) // len(self.days_ahead)


@dataclass(frozen=True, slots=True)
class TimeStep:
    """The result of a step of B episodes."""

    reward: Float[Tensor, " B"]
    """Reward of the day; 0 if the episode had ended before."""
    terminated: Bool[Tensor, " B"]
    """True from the last step of the episode on; no episode is truncated."""


def build_simulator(
    config: TradingConfig, *, batch: int, max_days: int, instruments: int, device: torch.device
) -> Simulator:
    """Allocate a simulator in which every episode has ended, until `reset_`.

    Args:
        config: settings, of which the number of positions and the opening cash are used.
        batch: number B of episodes in lock-step.
        max_days: number D of days of the longest episode (trading and settlement).
        instruments: number K of instruments; no buffer has an axis of this size.
        device: device of the tensors; `meta` for a plan.
    """
    trade, day_shape = config.trade, (batch, max_days + 1)
    sim = Simulator(
        day=filled_tensor(1, batch, dtype=torch.int64, device=device),
        start=filled_tensor(0, batch, dtype=torch.int64, device=device),
        trading_end=filled_tensor(0, batch, dtype=torch.int64, device=device),
        end=filled_tensor(1, batch, dtype=torch.int64, device=device),  # as `day`: the episode has ended
        cash=filled_tensor(0, batch, device=device),
        total=filled_tensor(0, batch, device=device),
        refused=filled_tensor(0, batch, dtype=torch.int64, device=device),
        reward_due=filled_tensor(0, *day_shape, device=device),
        proceeds_due=filled_tensor(0, *day_shape, device=device),
        positions=build_positions(count=trade.most_positions, batch=batch, device=device),
        logs=build_logs(batch=batch, max_days=max_days, purchases=trade.purchases_a_day, device=device),
        days_ahead=torch.arange(1, trade.hold_days + 1, device=device)[:, None],
        first_cell=torch.arange(0, batch * day_shape[1], day_shape[1], device=device),
        instruments=instruments,
        opening_cash=config.account.cash,
    )
    _living_simulators.add(sim)
    return sim


# Weak references: counting simulators that leak must not keep them alive.
_living_simulators: WeakSet[Simulator] = WeakSet()


def count_live_simulators() -> int:
    """Return the number of living simulators of this process: a training run has two, and no more after any round."""
    return len(_living_simulators)


def reset_(
    sim: Simulator,
    *,
    start: Int[Tensor, " B"],
    trading_end: Int[Tensor, " B"],
    end: Int[Tensor, " B"],
    chosen_envs: Bool[Tensor, " B"] | None = None,
) -> None:
    """Begin a new episode in each place, or in the chosen places.

    Nothing is checked here, because a check would wait for the device: the caller ensures that `start` < `trading_end`
    < `end` <= T and `end` - `start` <= D.

    Args:
        sim: simulator; written in place.
        start: row of the first trading day.
        trading_end: row after the last trading day.
        end: row after the last day of settlement.
        chosen_envs: mask of the places to reset; the other episodes go on, and their windows are ignored. None for all.
    """
    if chosen_envs is None:
        chosen_envs = torch.ones_like(sim.end, dtype=torch.bool)
        # A full reset restarts the clock: then sums over positions run in the same order of rows in every simulator.
        sim.clock = 0
    # Masked writes in place, so that a reset neither waits for the device nor replaces a tensor of the state.
    for rows, new_rows in ((sim.day, start), (sim.start, start), (sim.trading_end, trading_end), (sim.end, end)):
        rows.copy_(torch.where(chosen_envs, new_rows, rows))
    sim.cash.masked_fill_(chosen_envs, sim.opening_cash)
    sim.total.masked_fill_(chosen_envs, 0)
    sim.refused.masked_fill_(chosen_envs, 0)
    sim.positions.exit_day.masked_fill_(chosen_envs, -1)
    sim.reward_due.masked_fill_(chosen_envs[:, None], 0)
    sim.proceeds_due.masked_fill_(chosen_envs[:, None], 0)
    clear_logs_(sim.logs, chosen_envs, sim.opening_cash)


class _DayView(NamedTuple):
    """The day of each episode, and where it is in the market, the logs and the ring of positions."""

    is_running: Tensor
    """True until the episode has ended."""
    last_row: Tensor
    """Row of the episode's last day."""
    row: Tensor
    """Row of the panel; the last day's for an episode that has ended."""
    market_cell: Tensor
    """Offset of the row in flat storage of the market's [T, K]."""
    log_cell: Tensor
    """Offset of the day in flat storage of [B, D + 1]."""
    is_trading: Tensor
    """True on days of the trading period."""
    open_mask: Tensor
    """Mask [H, B] of the positions that are open after today's exits and the purchases before this one."""
    purchase_number: int = 0
    """Number of the purchase among those of the day, from 0."""


class _DayPurchases(NamedTuple):
    """A purchase of each episode today. An episode without a purchase has coefficient 0, price 1 and any target."""

    bought: Tensor
    """True if something is bought today."""
    instrument: Tensor
    coefficient: Tensor
    target: Tensor
    """Sale target, in percent above the price."""
    price: Tensor
    """Today's close of the instrument."""
    costs: Costs


@torch.no_grad()
def step_(
    sim: Simulator,
    market: Market,
    config: TradingConfig,
    action: Float[Tensor, "B K 2"],
    *,
    purchases: int | None = None,
) -> TimeStep:
    """Play one day: close due positions, buy, take the penalties, go to the next day.

    Args:
        sim: simulator; written in place.
        market: prices; `sim.day` is a row of it.
        config: configuration as given to `build_simulator`.
        action: coefficient and sale target in percent; both are clamped to their ranges. A NaN in the chosen target, or
            among the coefficients of instruments that can be bought, buys nothing.
        purchases: most purchases of this day, from 1 to `purchases_a_day`; None for the latter.

    Raises:
        ConfigError: the action has another shape.
    """
    if action.shape != (len(sim.day), sim.instruments, 2):
        raise ConfigError(
            f"action: expected [{len(sim.day)}, {sim.instruments}, 2], episodes by instruments by "
            f"(coefficient, target), got {list(action.shape)}. Build the simulator for this batch and panel."
        )
    today = _view_day(sim)
    # Exits first: today's sales pay for today's purchase. They were entered under today when the position was opened.
    sim.cash.add_(torch.take(sim.proceeds_due, today.log_cell))
    reward, has_position = torch.take(sim.reward_due, today.log_cell), today.open_mask.any(0)
    for number in range(sim.purchases_a_day if purchases is None else purchases):
        if number:
            # The purchases before this one are held now: their instruments are not bought again, their value counts.
            today = today._replace(open_mask=sim.positions.exit_day > today.row, purchase_number=number)
        purchase = _choose_purchase(sim, market, config, today, action)
        trade_reward = _book_purchases_(sim, market, config, today, purchase)
        # With credit "entry" the whole trade's reward is given now; with "exit" it is due on the day of the sale.
        if config.reward.credit == "entry":
            reward = reward + trade_reward
        has_position = has_position | purchase.bought
    reward = torch.add(reward, today.is_trading & ~has_position, alpha=-config.reward.inaction_penalty)
    sim.total.add_(reward)
    # Adds 1, or 0 to an ended episode, which stays on its day.
    sim.day.add_(today.is_running)
    sim.clock += 1
    return TimeStep(reward, terminated=sim.day >= sim.end)


def _view_day(sim: Simulator) -> _DayView:
    """Return the day of each episode on which the next step acts."""
    # Ended episodes are stepped too, on their last row, and masked out of the results: shapes stay fixed and nothing
    # waits for the device.
    last_row = sim.end - 1
    row = torch.minimum(sim.day, last_row)
    return _DayView(
        is_running=sim.day < sim.end,
        last_row=last_row,
        row=row,
        market_cell=row * sim.instruments,
        log_cell=sim.first_cell + (sim.day - sim.start),
        is_trading=sim.day < sim.trading_end,
        open_mask=sim.positions.exit_day > row,
    )


def _choose_purchase(
    sim: Simulator, market: Market, config: TradingConfig, today: _DayView, action: Tensor
) -> _DayPurchases:
    """Choose the instrument with the largest coefficient that has a close today and is not held.

    Args:
        sim: B episodes; `refused` is counted up if the coefficient of an instrument not held reached the threshold and
            nothing was bought.
        market: prices [T, K].
        config: thresholds and bounds of a trade.
        today: the day of each episode.
        action: coefficient and sale target in percent [B, K, 2], not yet clamped to their ranges.

    Returns:
        The purchases [B]; nothing is bought after the trading days, if no coefficient reaches the threshold, or if the
        chosen target is NaN.
    """
    trade = config.trade
    close = market.close.index_select(0, today.row)
    # Closed positions are put into an extra last column, which is cut off.
    columns = sim.positions.instrument.where(today.open_mask, sim.instruments).T
    held_mask = close.new_zeros(len(close), sim.instruments + 1, dtype=torch.bool)
    held_mask = held_mask.scatter_(1, columns, value=True)[:, :-1]
    # NaN > 0 is False: an instrument without a close cannot be bought.
    can_be_bought = (close > 0) & ~held_mask
    # max takes a NaN as the largest, and NaN >= threshold is False.
    coefficient, instrument = action[..., 0].where(can_be_bought, -torch.inf).max(1)
    column = instrument[:, None]
    target = action[..., 1].gather(1, column).squeeze(1)
    # NaN alone differs from itself: a NaN target buys nothing.
    is_bought = today.is_trading & (coefficient >= trade.buy_threshold) & (target == target)  # noqa: PLR0124  (see above)
    if not today.purchase_number:  # `refused` counts days, each by its first purchase
        wants_purchase = ((action[..., 0] >= trade.buy_threshold) & ~held_mask).any(1)
        sim.refused.add_(today.is_trading & wants_purchase & ~is_bought)
    return _DayPurchases(
        bought=is_bought,
        instrument=instrument,
        coefficient=coefficient.clamp(max=trade.coefficient_max).where(is_bought, 0),
        target=target.clamp(trade.target_low, trade.target_high),
        # 1 instead of NaN without a purchase: NaN times 0 would spoil the sums of cash and rewards.
        price=close.gather(1, column).squeeze(1).where(is_bought, 1),
        costs=market.costs(config.account, today.row, instrument),
    )


def _book_purchases_(
    sim: Simulator, market: Market, config: TradingConfig, today: _DayView, purchases: _DayPurchases
) -> Tensor:
    """Book a purchase of each episode, and its exit on the day on which it will happen.

    Args:
        sim: B episodes; dues, positions, logs and cash are updated.
        market: prices [T, K].
        config: costs and rewards of trades.
        today: the day of each episode.
        purchases: purchases [B].

    Returns:
        Final reward [B] of each trade; 0 without a purchase.
    """
    exits = resolve_exits(
        market,
        days_ahead=sim.days_ahead,
        day=today.row,
        instrument=purchases.instrument,
        target_price=target_prices(purchases.price, purchases.target),
        last_row=today.last_row,
    )
    due_cell = today.log_cell + exits.days_held
    exit_row = today.row + exits.days_held
    exit_costs = market.costs(config.account, exit_row, purchases.instrument)
    rewards = trade_rewards(
        entry_price=purchases.price,
        exit_price=exits.price,
        entry=purchases.costs,
        exit_=exit_costs,
        config=config,
        instruments=sim.instruments,
    ).where(purchases.bought, 0)
    # An episode buys once in a call, so no index repeats in a put_, and sums have one order on a GPU too.
    if config.reward.credit == "exit":
        sim.reward_due.put_(due_cell, rewards, accumulate=True)
    shares = _pay_and_mark_(sim, market, config, today, purchases)
    sim.proceeds_due.put_(due_cell, exit_costs.proceeds(shares * exits.price, exits.price), accumulate=True)
    exit_day = exit_row.where(purchases.bought, -1)
    _log_purchases_(sim, today, purchases, shares, exit_day=exit_day, exit_price=exits.price)
    return rewards


def _log_purchases_(
    sim: Simulator, today: _DayView, purchases: _DayPurchases, shares: Tensor, *, exit_day: Tensor, exit_price: Tensor
) -> None:
    """Write purchases into the positions, over those of `hold_days` days ago, and into the logs.

    Args:
        sim: B episodes; positions and logs are updated.
        today: the day of each episode.
        purchases: purchases [B].
        shares: shares bought [B]; 0 without a purchase.
        exit_day: rows of the sales [B]; -1 without a purchase.
        exit_price: prices of the sales [B].
    """
    # The positions are a ring: today's purchases take the slots of those of `hold_days` days ago, which are sold. The
    # clock is a number of the host, so the slot does not wait for the device.
    positions, logs = sim.positions, sim.logs
    slot = sim.clock % len(sim.days_ahead) * sim.purchases_a_day + today.purchase_number
    # Offset in the flat log, which has `purchases_a_day` columns for each day. With one purchase a day it is that of
    # the day, and the launch of two operations on a GPU is saved.
    cell = today.log_cell
    if sim.purchases_a_day > 1:
        cell = cell * sim.purchases_a_day + today.purchase_number
    positions.instrument[slot] = purchases.instrument
    positions.exit_day[slot] = exit_day
    positions.entry_price[slot] = purchases.price
    positions.shares[slot] = shares
    logs.instrument.put_(cell, purchases.instrument)
    logs.exit_day.put_(cell, exit_day)
    logs.coefficient.put_(cell, purchases.coefficient)
    logs.target.put_(cell, purchases.target)
    logs.entry_price.put_(cell, purchases.price)
    logs.exit_price.put_(cell, exit_price)
    logs.shares.put_(cell, shares)


def _pay_and_mark_(
    sim: Simulator, market: Market, config: TradingConfig, today: _DayView, purchases: _DayPurchases
) -> Tensor:
    """Take the money for a purchase of each episode, and log the account's value at today's closes.

    Args:
        sim: B episodes; cash, and today's equity and invested value in the logs, are updated.
        market: prices [T, K].
        config: the account.
        today: the day of each episode.
        purchases: purchases [B], with their costs.

    Returns:
        Shares bought [B], which may be fractional; 0 without a purchase.
    """
    positions, account = sim.positions, config.account
    last_close = torch.take(market.last_close, today.market_cell + positions.instrument)
    invested_value = (last_close * positions.shares * today.open_mask).sum(0)
    equity = sim.cash + invested_value
    full_share = account.share(positions=len(positions.exit_day), instruments=sim.instruments)
    equity_share = purchases.bought * full_share
    # Nothing is bought on credit: if much is invested, less cash than a position's share may be left.
    spent_money = torch.minimum(equity * equity_share, sim.cash)
    # Costs are paid from the money spent, so the cash never falls below 0.
    value = purchases.costs.affordable_value(spent_money, purchases.price)
    if purchases.costs.rates is not None:
        # Money that the least commission would use up buys nothing, and is not spent.
        spent_money = spent_money.where(value > 0, 0)
    sim.cash.sub_(spent_money)
    invested_value.add_(value)
    # An ended episode writes its last column again, with the same numbers, because nothing is open.
    column = today.log_cell + today.is_running
    sim.logs.equity.put_(column, sim.cash + invested_value)
    sim.logs.invested.put_(column, invested_value)
    return value / purchases.price
