"""Orders of target weights after a day: purchases and sales that bring the held shares to the target weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.portfolio import DayPrices, rebalance
from flatwater_trading.market.stop import StopState, initial_stop, update_stop
from flatwater_watch.errors import DataError
from flatwater_watch.sanitize import short_repr


@dataclass(frozen=True, kw_only=True)
class WeightOrder:
    """A purchase or a sale."""

    order: str
    """`buy` or `sell`."""
    instrument: str
    shares: float
    price: float
    """The last close, at which the account trades."""
    value: float
    """Shares times price."""


@dataclass(frozen=True, kw_only=True)
class WeightHolding:
    """An instrument that is held after the orders."""

    instrument: str
    shares: float
    price: float
    """The last close."""
    weight: float
    """Part of the equity."""


@dataclass(frozen=True, kw_only=True)
class StopRecord:
    """What the stop of an account remembers from one evening to the next."""

    peak: float
    """Highest equity since the account began, or since it came back after its last stop."""
    since: str = ""
    """Day on which the account was stopped, ISO; empty for an account that may trade."""


@dataclass(frozen=True, kw_only=True)
class WeightOrders:
    """Orders after the close of a day, with the account that they lead to."""

    date: str
    """The newest day of the prices."""
    orders: tuple[WeightOrder, ...]
    """Sales first, then purchases; each in the order of the instruments."""
    holdings: tuple[WeightHolding, ...]
    cash: float
    """Cash that is left after these orders."""
    equity: float
    """Cash and shares at the last closes, after these orders."""
    cost: float
    """Costs of the orders; they are already taken from `cash` and `equity`."""
    held: float
    """Part of the learned weights that is held."""
    rest: str
    """Name of what the rest is held in: `equal weight` or `cash`."""
    as_traded: bool
    """True if prices and shares are as traded; else they are those of the file, which may be adjusted."""
    stop: StopRecord | None
    """Record of the stop after this day: the next day's `stop`; None for an account without a stop."""
    unpriced: tuple[str, ...]
    """Names of the trader's columns without a close on this day: they cannot be traded."""
    short_histories: tuple[str, ...]
    """Names of the trader's columns with fewer closes than signals need: moves before the first count as 0."""
    stop_rows_left: int
    """Rows of the prices for which the account stays in cash, this day included; 0 for an account that may trade."""

    @property
    def shares(self) -> dict[str, float]:
        """Shares that are held after these orders, by instrument: the next day's `shares`."""
        return {each.instrument: each.shares for each in self.holdings}

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True)
class WeightsClose:
    """The close of a day, at which an account of target weights trades."""

    dates: np.ndarray[Any, Any]
    """Dates of all rows of the prices; the last one is the day's."""
    names: Sequence[str]
    """Names [K] of the instruments that can be bought."""
    prices: DayPrices
    """Prices of the panel, which may be adjusted."""
    ratios: Float[Tensor, "K"]
    """Price as traded over the panel's price; 1 if prices as traded are unknown."""
    as_traded: bool
    unpriced: tuple[str, ...] = ()
    """Names of columns without a close on the day, of those that cannot be bought too."""
    short_histories: tuple[str, ...] = ()
    """Names of columns with fewer closes than signals need."""


def decide_weight_orders(
    close: WeightsClose,
    targets: Float[Tensor, "K"],
    shares: Mapping[str, float],
    cash: float,
    config: PortfolioConfig,
    *,
    held: float,
    rest: str,
    stop: StopRecord | None = None,
) -> WeightOrders:
    """Decide on the purchases and sales that bring the held shares to the target weights, or sell all at a stop.

    Args:
        close: prices and names.
        targets: target weights.
        shares: shares held before the orders, by instrument, in traded prices if these are known.
        cash: money of the account besides the shares.
        config: costs and band.
        held: part of the learned weights that is in `targets`, 0 to 1; only reported.
        rest: name of the other part, `equal weight` or `cash`; only reported.
        stop: record of the stop after the day before; None for an account that begins.

    Raises:
        DataError: an instrument of `shares` is unknown or never had a price, or the stop's day is none of the prices'.
    """
    last_close, names, previous_shares = close.prices.last_close, close.names, _shares_in_panel_prices(close, shares)
    money, row = last_close.new_tensor([cash]), len(close.dates) - 1  # a batch of one account; the newest day
    previous_equity = money + (previous_shares * last_close).sum()
    stop_state, is_stopped = update_stop(_stop_state(close, money, stop), previous_equity, row, config)
    account = rebalance(previous_shares[None], money, targets[None], close.prices, config, is_stopped=is_stopped)
    # From the panel's prices, which may be adjusted, to prices as traded: values stay the same.
    prices, new_shares = last_close * close.ratios, account.shares[0] / close.ratios
    equity = float(account.cash[0] + (account.shares[0] * last_close).sum())
    return WeightOrders(
        date=str(close.dates[-1]),
        orders=_trades_as_orders(names, account.traded[0], prices),
        holdings=_weight_holdings(names, new_shares, prices, equity),
        cash=float(account.cash[0]),
        equity=equity,
        cost=float(account.cost[0]),
        held=held,
        rest=rest,
        as_traded=close.as_traded,
        stop=None if config.stop is None else _stop_record(close, stop_state),
        unpriced=close.unpriced,
        short_histories=close.short_histories,
        # A stop lasts `stop_rows` rows, of which the row of the stop is the first.
        stop_rows_left=config.stop_rows - (row - int(stop_state.stopped_row)) if bool(is_stopped) else 0,
    )


def _trades_as_orders(
    names: Sequence[str], traded_values: Float[Tensor, "K"], prices: Float[Tensor, "K"]
) -> tuple[WeightOrder, ...]:
    """Return an order for each instrument whose traded value is not 0, sales (values below 0) first."""
    orders = [
        WeightOrder(
            order="buy" if value > 0 else "sell",
            instrument=name,
            shares=abs(value) / price,
            price=price,
            value=abs(value),
        )
        for name, value, price in zip(names, traded_values.tolist(), prices.tolist(), strict=True)
        if value
    ]
    # The key is False, which sorts first, for sales; within a kind the order of the instruments stays.
    return tuple(sorted(orders, key=lambda order: order.order != "sell"))


def _stop_state(close: WeightsClose, cash: Float[Tensor, "1"], stop: StopRecord | None) -> StopState:
    """Return the state of the account's stop, as the simulator of accounts keeps it.

    Args:
        close: dates of the prices.
        cash: money [1] of an account that begins.
        stop: record of the stop after the day before; None for an account that begins.

    Raises:
        DataError: the day of the stop is not one of the prices'.
    """
    if stop is None:
        return initial_stop(cash)
    # The row of the day on which the account was stopped; no row if it is not, as `since` is then empty.
    rows = np.flatnonzero(close.dates.astype(str) == stop.since)
    if stop.since and not len(rows):
        raise DataError(
            f"the account was stopped on {short_repr(stop.since)}, which is not a day of the prices ({close.dates[0]} "
            f"to {close.dates[-1]}). Give prices that reach back to that day."
        )
    # Row -1 stands for an account that is not stopped.
    return StopState(torch.full_like(cash, stop.peak), torch.tensor([int(rows[0]) if len(rows) else -1]))


def _stop_record(close: WeightsClose, state: StopState) -> StopRecord:
    """Return the stop's state as a record, with the date in the place of the row."""
    row = int(state.stopped_row)
    return StopRecord(peak=float(state.peak), since="" if row < 0 else str(close.dates[row]))


def _weight_holdings(
    names: Sequence[str], new_shares: Float[Tensor, "K"], prices: Float[Tensor, "K"], equity: float
) -> tuple[WeightHolding, ...]:
    """Return the instruments that are held, each with its part of the equity; others have no shares or no price."""
    return tuple(
        WeightHolding(instrument=name, shares=count, price=price, weight=count * price / equity)
        for name, count, price in zip(names, new_shares.tolist(), prices.tolist(), strict=True)
        if count * price
    )


def _shares_in_panel_prices(close: WeightsClose, shares: Mapping[str, float]) -> Float[Tensor, "K"]:
    """Convert numbers of shares at traded prices to numbers at the panel's prices, so that their values stay the same.

    The panel's prices may be adjusted for splits and dividends.

    Raises:
        DataError: an instrument of `shares` is not one of the prices', or has never had a price.
    """
    last_close, names = close.prices.last_close, list(close.names)
    panel_shares = torch.zeros_like(last_close)
    for name, count in shares.items():
        if name not in names:
            raise DataError(f"{name} is held, and is not an instrument that this trader buys. Leave it out.")
        k = names.index(name)
        if last_close[k] <= 0:
            raise DataError(f"{name} is held, and has no price up to {close.dates[-1]}. Give prices with its closes.")
        # `ratios` is the traded over the panel's price, so the value of the shares stays the same.
        panel_shares[k] = count * close.ratios[k]
    return panel_shares
