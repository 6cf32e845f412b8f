"""B episodes in lock-step: everything is allocated by `build_simulator` and written in place, without a host sync.

A trade's exit is resolved when it is opened (see `exits`) and booked on the day it will happen: its reward in
`reward_due`, its proceeds in `proceeds_due`. A step therefore looks at the day's actions [B, K] and at the at most
`hold_days` positions that can be open [H, B], never back through the episode.

An episode ends by termination: on its last day whatever is open is sold, so there is nothing left to bootstrap, and
`truncated` is never set. Episodes of one batch may differ in length; one that has ended stays as it is, with reward 0,
until it is reset.
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
from flatwater_trading.market.exits import resolve_exits, target_prices, trade_rewards
from flatwater_trading.market.market import Market
from flatwater_watch.errors import ConfigError


@state
class Positions:
    """The last H purchases. Row `clock % H` is today's; the trade it replaces has closed by today."""

    instrument: Int[Tensor, "H B"]
    """Number of the instrument in the market; means nothing where the position has closed."""
    exit_day: Int[Tensor, "H B"]
    """Row of the panel; a position is open before it. -1 where nothing was bought."""
    entry_price: Float[Tensor, "H B"]
    shares: Float[Tensor, "H B"]


@state
class Logs:
    """The log of each day of each episode; the extra column takes what episodes that have ended write.

    Columns after the current day hold what earlier episodes left, except for `exit_day`, `equity` and `invested`.
    """

    instrument: Int[Tensor, "B D1"]
    """Bought on the day; means nothing where `exit_day` is -1."""
    exit_day: Int[Tensor, "B D1"]
    """Row of the panel on which the day's purchase closes, the future until that row has come; -1 for no purchase."""
    coefficient: Float[Tensor, "B D1"]
    target: Float[Tensor, "B D1"]
    """Sale target, in percent above the purchase price."""
    entry_price: Float[Tensor, "B D1"]
    exit_price: Float[Tensor, "B D1"]
    shares: Float[Tensor, "B D1"]
    equity: Float[Tensor, "B D1"]
    """Equity at the start (column 0) and at the close of each day (column d + 1 for day d); NaN after the end."""
    invested: Float[Tensor, "B D1"]
    """Value of the open positions at the same times as `equity`."""


def build_positions(*, hold_days: int, batch: int, device: torch.device) -> Positions:
    """Allocate room for `hold_days` positions in each episode, all of them closed."""
    shape = (hold_days, batch)
    return Positions(
        instrument=filled_tensor(0, *shape, dtype=torch.int64, device=device),
        exit_day=filled_tensor(-1, *shape, dtype=torch.int64, device=device),
        entry_price=filled_tensor(0, *shape, device=device),
        shares=filled_tensor(0, *shape, device=device),
    )


def build_logs(*, batch: int, max_days: int, device: torch.device) -> Logs:
    """Allocate empty logs of `batch` episodes of at most `max_days` days."""
    shape = (batch, max_days + 1)
    return Logs(
        instrument=filled_tensor(0, *shape, dtype=torch.int64, device=device),
        exit_day=filled_tensor(-1, *shape, dtype=torch.int64, device=device),
        coefficient=filled_tensor(0, *shape, device=device),
        target=filled_tensor(0, *shape, device=device),
        entry_price=filled_tensor(0, *shape, device=device),
        exit_price=filled_tensor(0, *shape, device=device),
        shares=filled_tensor(0, *shape, device=device),
        equity=filled_tensor(0, *shape, device=device),
        invested=filled_tensor(0, *shape, device=device),
    )


def clear_logs_(logs: Logs, chosen: Bool[Tensor, " B"], cash: float) -> None:
    """Begin the logs of the chosen episodes again, with `cash`."""
    rows = chosen[:, None]
    logs.exit_day.masked_fill_(rows, -1)
    logs.equity.masked_fill_(rows, torch.nan)
    logs.invested.masked_fill_(rows, torch.nan)
    logs.equity[:, 0].masked_fill_(chosen, cash)
    logs.invested[:, 0].masked_fill_(chosen, 0)


@state
class Simulator:
    """B episodes of at most D days."""

    day: Int[Tensor, " B"]
    """Row of the panel on which the next step acts; `end` once the episode has ended."""
    start: Int[Tensor, " B"]
    """Row of the first trading day."""
    trading_end: Int[Tensor, " B"]
    """Row after the last trading day: from it on nothing is bought."""
    end: Int[Tensor, " B"]
    """Row after the last day, on which whatever is open is sold."""
    cash: Float[Tensor, " B"]
    """Money that is not invested."""
    total: Float[Tensor, " B"]
    """Sum of the episode's rewards so far."""
    refused: Int[Tensor, " B"]
    """Days so far on which something was asked for that was not held, and nothing was bought."""
    reward_due: Float[Tensor, "B D1"]
    """Reward that trades pay on each day of the episode, booked when they are opened."""
    proceeds_due: Float[Tensor, "B D1"]
    """Money that trades bring on each day of the episode, after costs, booked when they are opened."""
    positions: Positions
    logs: Logs
    ahead: Int[Tensor, "H 1"] = derived_field()
    """The numbers 1 .. H."""
    first_cell: Int[Tensor, " B"] = derived_field()
    """Offset at which each episode's row of [B, D + 1] begins in flat storage."""
    instruments: int
    """K, the instruments that an action speaks about."""
    opening_cash: float
    """Money at the start of each episode."""
    clock: int = 0
    """Steps taken since all episodes began together."""


@dataclass(frozen=True, slots=True)
class TimeStep:
    """The result of one step of B episodes."""

    reward: Float[Tensor, " B"]
    """Reward of the day; 0 where the episode had ended before."""
    discount: Float[Tensor, " B"]
    """Discount: 0 where the episode has ended, else 1; a learner multiplies it by its own gamma."""
    terminated: Bool[Tensor, " B"]
    """True from the last step of the episode on."""
    truncated: Bool[Tensor, " B"]
    """False everywhere: episodes end by termination alone."""
    active: Bool[Tensor, " B"]
    """True where the episode was still running, so that this step is a transition."""


def build_simulator(
    config: TradingConfig, *, batch: int, max_days: int, instruments: int, device: torch.device
) -> Simulator:
    """Allocate a simulator in which every episode has ended, until `reset_`.

    Args:
        config: hold_days and the opening cash are taken from it.
        batch: B, episodes in lock-step.
        max_days: D, days of the longest episode (trading and settlement).
        instruments: K, which no buffer has an axis of.
        device: `meta` makes a plan.
    """
    hold = config.trade.hold_days
    days = (batch, max_days + 1)
    sim = Simulator(
        day=filled_tensor(1, batch, dtype=torch.int64, device=device),
        start=filled_tensor(0, batch, dtype=torch.int64, device=device),
        trading_end=filled_tensor(0, batch, dtype=torch.int64, device=device),
        end=filled_tensor(1, batch, dtype=torch.int64, device=device),
        cash=filled_tensor(0, batch, device=device),
        total=filled_tensor(0, batch, device=device),
        refused=filled_tensor(0, batch, dtype=torch.int64, device=device),
        reward_due=filled_tensor(0, *days, device=device),
        proceeds_due=filled_tensor(0, *days, device=device),
        positions=build_positions(hold_days=hold, batch=batch, device=device),
        logs=build_logs(batch=batch, max_days=max_days, device=device),
        ahead=torch.arange(1, hold + 1, device=device)[:, None],
        first_cell=torch.arange(0, batch * days[1], days[1], device=device),
        instruments=instruments,
        opening_cash=config.account.cash,
    )
    _living_simulators.add(sim)
    return sim


# Weak: the count of simulators that leak must not be what keeps them alive.
_living_simulators: WeakSet[Simulator] = WeakSet()


def live_simulators() -> int:
    """Simulators of this process that something still holds: a training run has two, and no more after any round."""
    return len(_living_simulators)


def reset_(
    sim: Simulator,
    *,
    start: Int[Tensor, " B"],
    trading_end: Int[Tensor, " B"],
    end: Int[Tensor, " B"],
    chosen: Bool[Tensor, " B"] | None = None,
) -> None:
    """Begin a new episode in each place, or in the chosen ones.

    Nothing is checked here, because that would wait for the device: windows obey `start` < `trading_end` < `end`
    <= T and `end` - `start` <= D.

    Args:
        sim: written in place.
        start: row of the first trading day.
        trading_end: row after the last trading day.
        end: row after the last day of settlement.
        chosen: the places to reset; the others go on, and their windows are not looked at. All if not given.
    """
    if chosen is None:
        chosen = torch.ones_like(sim.end, dtype=torch.bool)
        sim.clock = 0  # sums over the positions run in the order of their rows: the same in every simulator
    # Masks, and writes in place: a reset neither waits for the device nor replaces a tensor of the state.
    for current, new in ((sim.day, start), (sim.start, start), (sim.trading_end, trading_end), (sim.end, end)):
        current.copy_(torch.where(chosen, new, current))
    sim.cash.masked_fill_(chosen, sim.opening_cash)
    sim.total.masked_fill_(chosen, 0)
    sim.refused.masked_fill_(chosen, 0)
    sim.positions.exit_day.masked_fill_(chosen, -1)
    sim.reward_due.masked_fill_(chosen[:, None], 0)
    sim.proceeds_due.masked_fill_(chosen[:, None], 0)
    clear_logs_(sim.logs, chosen, sim.opening_cash)


class _DayView(NamedTuple):
    """The position of each episode on the day of a step."""

    active: Tensor
    """True while the episode runs."""
    last: Tensor
    """Row of its last day."""
    row: Tensor
    """Row of the panel; the last day's for an episode that has ended."""
    cell: Tensor
    """Offset of the row in flat storage of the market's [T, K]."""
    at: Tensor
    """Flat position of the day in [B, D + 1]."""
    trading: Tensor
    """True on days of the trading period."""
    open: Tensor
    """Mask [H, B] of the positions that today's exits have left."""


class _DayPurchases(NamedTuple):
    """The purchase of each episode today. Without one: coefficient 0, price 1, and any target, even NaN."""

    bought: Tensor
    """True where something is bought today."""
    instrument: Tensor
    coefficient: Tensor
    target: Tensor
    """Sale target, in percent above the price."""
    price: Tensor
    """Today's close of the instrument."""


@torch.no_grad()
def step_(sim: Simulator, market: Market, config: TradingConfig, action: Float[Tensor, "B K 2"]) -> TimeStep:
    """Play one day: close due positions, buy, take the penalties, go to the next day.

    Args:
        sim: written in place.
        market: prices; `sim.day` is a row of it.
        config: configuration as given to `build_simulator`.
        action: coefficient and sale target in percent, both brought into their ranges. A NaN among the coefficients of
            what can be bought, or in the chosen target, buys nothing.

    Raises:
        ConfigError: the action has another shape.
    """
    if action.shape != (len(sim.day), sim.instruments, 2):
        raise ConfigError(
            f"action {tuple(action.shape)}: must be [{len(sim.day)}, {sim.instruments}, 2], episodes by instruments by "
            "(coefficient, target). Build the simulator for this batch and panel."
        )
    # Ended episodes are stepped as well, on their last row and masked: shapes stay fixed and nothing syncs.
    last = sim.end - 1
    row = torch.minimum(sim.day, last)
    today = _DayView(
        active=sim.day < sim.end,
        last=last,
        row=row,
        cell=row * sim.instruments,
        at=sim.first_cell + (sim.day - sim.start),
        trading=sim.day < sim.trading_end,
        open=sim.positions.exit_day > row,
    )
    # Exits first: what is sold today pays for today's purchase. Behind an episode's end nothing is due.
    sim.cash.add_(torch.take(sim.proceeds_due, today.at))
    reward = torch.take(sim.reward_due, today.at)
    purchase = _choose_purchase(sim, market, config, today, action)
    trade_reward = _book_purchases_(sim, market, config, today, purchase)
    # Possible as prices are exogenous, and for learning only: no observation and no equity carries it.
    if config.reward.credit == "entry":
        reward = reward + trade_reward
    idle = today.trading & ~(today.open.any(0) | purchase.bought)
    reward = torch.add(reward, idle, alpha=-config.reward.inaction_penalty)
    sim.total.add_(reward)
    # A bool as 0 or 1: what has ended stands still.
    sim.day.add_(today.active)
    sim.clock += 1
    terminated = sim.day >= sim.end
    return TimeStep(reward, (~terminated).float(), terminated, torch.zeros_like(terminated), today.active)


def _choose_purchase(
    sim: Simulator, market: Market, config: TradingConfig, today: _DayView, action: Tensor
) -> _DayPurchases:
    """Choose the instrument with the largest coefficient that has a close today and is not held.

    Args:
        sim: B episodes; `refused` is counted up where a coefficient reached the threshold, of an instrument not held,
            and nothing was bought.
        market: prices [T, K].
        config: thresholds and bounds of a trade.
        today: the day of each episode.
        action: coefficient and sale target in percent [B, K, 2], not yet brought into their ranges.

    Returns:
        The purchases [B]; none where trading is over, no coefficient reaches the threshold, or the chosen target is
        NaN.
    """
    trade = config.trade
    close = market.close.index_select(0, today.row)
    # Closed positions stand in a last column, which is cut off.
    ids = sim.positions.instrument.where(today.open, sim.instruments).T
    held_mask = close.new_zeros(len(close), sim.instruments + 1, dtype=torch.bool).scatter_(1, ids, value=True)[:, :-1]
    # NaN is not above 0: without a close nothing is bought.
    can_be_bought = (close > 0) & ~held_mask
    # max takes a NaN for the largest, and NaN reaches no threshold.
    coefficient, instrument = action[..., 0].where(can_be_bought, -torch.inf).max(1)
    column = instrument[:, None]
    target = action[..., 1].gather(1, column).squeeze(1)
    # NaN alone differs from itself: a NaN target buys nothing.
    bought = today.trading & (coefficient >= trade.buy_threshold) & (target == target)  # noqa: PLR0124
    wants_purchase = ((action[..., 0] >= trade.buy_threshold) & ~held_mask).any(1)
    sim.refused.add_(today.trading & wants_purchase & ~bought)
    return _DayPurchases(
        bought=bought,
        instrument=instrument,
        coefficient=coefficient.clamp(max=trade.coefficient_max).where(bought, 0),
        target=target.clamp(trade.target_low, trade.target_high),
        # 1 and not NaN without a purchase: a NaN times 0 would spoil the sums of cash and rewards.
        price=close.gather(1, column).squeeze(1).where(bought, 1),
    )


def _book_purchases_(
    sim: Simulator, market: Market, config: TradingConfig, today: _DayView, new: _DayPurchases
) -> Tensor:
    """Book today's purchases and their exits.

    Args:
        sim: B episodes; dues, positions, logs and cash are updated.
        market: prices [T, K].
        config: costs, and how trades are rewarded.
        today: the day of each episode.
        new: today's purchases [B].

    Returns:
        Reward [B] that each trade will have brought, 0 where there is none.
    """
    exits = resolve_exits(
        market.high,
        market.mark,
        market.last_day,
        ahead=sim.ahead,
        day=today.row,
        instrument=new.instrument,
        target_price=target_prices(new.price, new.target),
        last=today.last,
    )
    due = today.at + exits.held
    rewards = trade_rewards(entry_price=new.price, exit_price=exits.price, config=config).where(new.bought, 0)
    # An episode buys once a day, so no index repeats in a put_: sums have one order, on a GPU as well.
    if config.reward.credit == "exit":
        sim.reward_due.put_(due, rewards, accumulate=True)
    shares = _pay_and_mark_(sim, market, config, today, new)
    sim.proceeds_due.put_(due, shares * exits.price * config.account.sale_factor, accumulate=True)

    exit_day = (today.row + exits.held).where(new.bought, -1)
    # The clock counts on the host: the ring's position needs no sync.
    positions, logs, slot = sim.positions, sim.logs, sim.clock % len(sim.ahead)
    positions.instrument[slot] = new.instrument
    positions.exit_day[slot] = exit_day
    positions.entry_price[slot] = new.price
    positions.shares[slot] = shares
    logs.instrument.put_(today.at, new.instrument)
    logs.exit_day.put_(today.at, exit_day)
    logs.coefficient.put_(today.at, new.coefficient)
    logs.target.put_(today.at, new.target)
    logs.entry_price.put_(today.at, new.price)
    logs.exit_price.put_(today.at, exits.price)
    logs.shares.put_(today.at, shares)
    return rewards


def _pay_and_mark_(
    sim: Simulator, market: Market, config: TradingConfig, today: _DayView, new: _DayPurchases
) -> Tensor:
    """Take the money for today's purchases, and mark the account to market.

    Args:
        sim: B episodes; cash, and today's equity and invested value in the logs, are updated.
        market: prices [T, K].
        config: the account and its costs.
        today: the day of each episode.
        new: today's purchases [B].

    Returns:
        Shares bought [B], fractions of one included; 0 without a purchase.
    """
    positions, account = sim.positions, config.account
    marks = torch.take(market.mark, today.cell + positions.instrument)
    invested = (marks * positions.shares * today.open).sum(0)
    equity = sim.cash + invested
    full_share = account.share(hold_days=len(sim.ahead), instruments=sim.instruments)
    equity_share = new.bought * full_share
    # Never on credit: with much invested, less than a whole share may be left.
    spent = torch.minimum(equity * equity_share, sim.cash)
    sim.cash.sub_(spent)
    # Costs come out of the money spent, so the cash never falls below 0.
    value = spent / account.purchase_factor
    invested.add_(value)
    # An episode that has ended writes its last column again, and the same numbers, because nothing is open.
    column = today.at + today.active
    sim.logs.equity.put_(column, sim.cash + invested)
    sim.logs.invested.put_(column, invested)
    return value / new.price
