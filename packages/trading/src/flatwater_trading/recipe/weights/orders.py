"""Orders of target weights after a day: purchases and sales that bring the held shares to the target weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.portfolio import DayPrices, rebalance
from flatwater_watch.errors import DataError


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

    date: str
    names: Sequence[str]
    """Names [K] of the instruments that can be bought."""
    prices: DayPrices
    """Prices of the panel, which may be adjusted."""
    ratios: Float[Tensor, "K"]
    """Price as traded over the panel's price; 1 if prices as traded are unknown."""
    as_traded: bool


def decide_weight_orders(
    close: WeightsClose,
    targets: Float[Tensor, "K"],
    shares: Mapping[str, float],
    cash: float,
    config: PortfolioConfig,
    *,
    held: float,
    rest: str,
) -> WeightOrders:
    """Decide on the orders of a day.

    Args:
        close: prices and names.
        targets: target weights.
        shares: shares held before the orders, by instrument, in traded prices if these are known.
        cash: money of the account besides the shares.
        config: costs and band.
        held: part of the learned weights that is in `targets`.
        rest: name of what the rest is held in, `equal weight` or `cash`.

    Raises:
        DataError: an instrument of `shares` is unknown or has never had a price.
    """
    mark, names, before = close.prices.mark, close.names, _shares_before(close, shares)
    after = rebalance(before[None], mark.new_tensor([cash]), targets[None], close.prices, config)
    prices, shares_after = mark * close.ratios, after.shares[0] / close.ratios
    equity = float(after.cash[0] + (after.shares[0] * mark).sum())
    orders = [
        WeightOrder(
            order="buy" if value > 0 else "sell",
            instrument=name,
            shares=abs(value) / price,
            price=price,
            value=abs(value),
        )
        for name, value, price in zip(names, after.traded[0].tolist(), prices.tolist(), strict=True)
        if value
    ]
    return WeightOrders(
        date=close.date,
        orders=tuple(sorted(orders, key=lambda order: order.order != "sell")),
        holdings=_holdings(names, shares_after, prices, equity),
        cash=float(after.cash[0]),
        equity=equity,
        cost=float(after.cost[0]),
        held=held,
        rest=rest,
        as_traded=close.as_traded,
    )


def _holdings(
    names: Sequence[str], shares_after: Float[Tensor, "K"], prices: Float[Tensor, "K"], equity: float
) -> tuple[WeightHolding, ...]:
    """Return the instruments that are held, each with its part of the equity."""
    return tuple(
        WeightHolding(instrument=name, shares=count, price=price, weight=count * price / equity)
        for name, count, price in zip(names, shares_after.tolist(), prices.tolist(), strict=True)
        if count * price
    )


def _shares_before(close: WeightsClose, shares: Mapping[str, float]) -> Float[Tensor, "K"]:
    """Return the shares that are held, counted in the panel's prices.

    Raises:
        DataError: an instrument of `shares` is not one of the prices', or has never had a price.
    """
    mark, names = close.prices.mark, list(close.names)
    before = torch.zeros_like(mark)
    for name, count in shares.items():
        if name not in names:
            raise DataError(f"{name} is held, and is not an instrument that this trader buys.")
        k = names.index(name)
        if mark[k] <= 0:
            raise DataError(f"{name} is held, and has no price up to {close.date}. Give prices with its closes.")
        # A share as traded is worth its traded price: at the panel's price the same value is more shares, or fewer.
        before[k] = count * close.ratios[k]
    return before
