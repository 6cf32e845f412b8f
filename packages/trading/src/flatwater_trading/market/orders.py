"""Orders of a trader after a day, by the rules of the simulator: due sales, positions that stay, and purchases.

The simulator knows the future and resolves an exit when it opens a trade. Here only the past is known, so an exit is
found on its day; played day by day, both make the same trades.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.costs import Costs
from flatwater_trading.market.exits import target_prices
from flatwater_trading.market.market import Market
from flatwater_trading.panel.calendar import DAILY
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.traded_closes import PRICE_TOLERANCE_FACTOR, SPLIT_FACTOR, traded_ratio
from flatwater_watch.errors import DataError

RANKED_INSTRUMENTS = 5
"""Instruments whose coefficients are shown, the largest first."""


@dataclass(frozen=True)
class MarketClose:
    """A market after the close of a day, with the rules of trading."""

    market: Market
    """Prices up to the day; nothing later is known."""
    panel: Panel
    """Panel of these prices: its dates, names and, if they are known, closes as traded."""
    config: TradingConfig

    def costs(self, row: int, instrument: int) -> Costs:
        """Return the costs of a trade in an instrument on a row."""
        return self.market.costs(self.config.account, row, torch.tensor(instrument))


@dataclass(frozen=True, kw_only=True)
class Position:
    """Shares that are held, and the target at which they are sold. Prices are as traded if these are known."""

    instrument: str
    entry_date: str
    """Day of the purchase in ISO format; a day of the prices."""
    entry_price: float
    """Price of a share at the purchase, as traded on that day."""
    target: float
    """Sale target, in percent above the purchase price."""
    shares: float
    """Number of shares held now; after a split it is larger than the number bought."""


@dataclass(frozen=True, kw_only=True)
class Sale:
    """A position that is due to be sold."""

    instrument: str
    date: str
    """The day on which the sale was due: the newest day, if orders are requested every day."""
    price: float
    """Price of a share: the sale target, or the last usable close."""
    shares: float
    reason: str
    """Rule that closes the position: `target` or `held`."""
    cost: float
    """Costs of the sale, in money."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A position that stays, with its orders."""

    position: Position
    price: float
    """The last close."""
    gain: float
    """Gain since the purchase, a fraction; if the market's prices are adjusted, splits and dividends are not losses."""
    target_price: float
    """Price of the limit order to sell."""
    days_left: int
    """Rows of the prices (trading days, weeks, months) until the position is sold at the close."""


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """A purchase of a day."""

    instrument: str
    price: float
    """The close that the trader has seen, at which the simulator buys."""
    shares: float
    share: float
    """Share of the equity that is spent."""
    coefficient: float
    """The trader's coefficient, from the threshold up."""
    target: float
    """Sale target, in percent above the purchase price."""
    target_price: float
    """Price of the limit order to sell."""
    hold_days: int
    """Rows of the prices after which the position is sold at the latest."""
    cost: float
    """Costs of the purchase, in money; they are a part of the share that is spent."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """Sales, holdings and purchases after the close of a day, with the account that they lead to."""

    date: str
    """The newest day of the prices."""
    sales: tuple[Sale, ...]
    holdings: tuple[Holding, ...]
    """Positions that stay, without today's purchases."""
    purchases: tuple[Purchase, ...]
    """The day's purchases, at most `env.trade.purchases_a_day`, the largest coefficient first."""
    ranking: tuple[tuple[str, float], ...]
    """The largest coefficients of instruments that can be bought; a purchase needs `threshold` or more."""
    threshold: float
    """Coefficient from which the trader buys."""
    cash: float
    """Cash that is left after these orders."""
    equity: float
    """Cash and positions at the last closes, before today's costs."""
    unit: str = DAILY.unit
    """Unit of a row of the prices, in which holding times are counted: `day`, `week`, `month` ..."""
    as_traded: bool = False
    """True if prices and shares are as traded; else they are those of the file, which may be adjusted."""
    unpriced: tuple[str, ...] = ()
    """Names of the trader's columns without a close on this day: they cannot be traded."""
    short_histories: tuple[str, ...] = ()
    """Names of the trader's columns with fewer closes than a decision needs: it takes the mean for what is missing."""
    splits: tuple[str, ...] = ()
    """Held instruments that were split since their purchase: their shares must be counted after the split."""

    @property
    def positions(self) -> tuple[Position, ...]:
        """Positions after these orders, those that stay and today's purchases: the next day's `positions`."""
        positions_kept = tuple(holding.position for holding in self.holdings)
        new_positions = (
            Position(
                instrument=purchase.instrument,
                entry_date=self.date,
                entry_price=purchase.price,
                target=purchase.target,
                shares=purchase.shares,
            )
            for purchase in self.purchases
        )
        return *positions_kept, *new_positions

    @property
    def cost(self) -> float:
        """Costs of the sales and the purchases, in money."""
        return sum(sale.cost for sale in self.sales) + sum(purchase.cost for purchase in self.purchases)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with the positions after these orders and the costs of all of them."""
        return asdict(self) | {"cost": self.cost, "positions": [asdict(each) for each in self.positions]}


def split_due_positions(
    close: MarketClose, positions: Sequence[Position]
) -> tuple[tuple[Sale, ...], tuple[Holding, ...]]:
    """Split positions into sales that are due by the newest day, and holdings that stay.

    Raises:
        DataError: the market has not the instrument or the day of a position; or an instrument is held twice.
    """
    rows = {str(date): row for row, date in enumerate(close.panel.dates)}
    columns = {name: k for k, name in enumerate(close.panel.investable_names)}
    instruments_held = [position.instrument for position in positions]
    sales, holdings = [], []
    for position in positions:
        # Three checks come before the prices are read: the instrument is held only once, the trader knows it, and the
        # prices have the day of its purchase.
        name, day = position.instrument, position.entry_date
        if instruments_held.count(name) > 1:
            raise DataError(f"{name} is held twice: a trader has at most one position in an instrument.")
        if name not in columns:
            raise DataError(f"{name} is held, and is not an instrument that this trader buys.")
        if day not in rows:
            raise DataError(
                f"{name} is held since {day}, which is not a day of the prices ({close.panel.dates[0]} to "
                f"{close.panel.dates[-1]}). Give prices that reach back to that day."
            )
        outcome = _sale_or_holding(close, position, rows[day], columns[name])
        if isinstance(outcome, Sale):
            sales.append(outcome)
        else:
            holdings.append(outcome)
    return tuple(sales), tuple(holdings)


def _sale_or_holding(close: MarketClose, position: Position, entry: int, column: int) -> Sale | Holding:
    """Return the sale of a position if the exit rules have closed it by today, else the position as a holding.

    Args:
        close: the market after the close; its last row is today.
        position: position as it was bought, its price as traded.
        entry: row of the purchase day.
        column: number of the instrument in the market.

    Returns:
        A sale, dated by the day on which it was due, or a holding; prices are as traded.
    """
    # In the panel's prices, which may be adjusted; the target price in float32, as in the simulator.
    market, entry_price = close.market, _entry_price(close, position, entry, column)
    target_price = float(target_prices(torch.tensor([entry_price]), torch.tensor([position.target])))
    today, due_row = len(market.close) - 1, entry + close.config.trade.hold_days

    def make_sale(row: int, price: float, reason: str) -> Sale:
        """Return the sale on `row`; `price` is one of the market's prices, the price of the sale is as traded."""
        traded_price = price * traded_ratio(close.panel, row, column)
        value = position.shares * traded_price
        received_money = close.costs(row, column).proceeds(*_double_tensors(value, price))
        return Sale(
            instrument=position.instrument,
            date=str(close.panel.dates[row]),
            price=traded_price,
            shares=position.shares,
            reason=reason,
            cost=value - float(received_money),
        )

    # Days on which the high reached the target, from the day after the purchase: it was made at a close, after the high
    # of its own day.
    rows_at_target = (market.high[entry + 1 : min(today, due_row) + 1, column] >= target_price).nonzero()
    if len(rows_at_target):
        return make_sale(entry + 1 + int(rows_at_target[0]), target_price, "target")
    if due_row <= today:
        # At the last usable close, as the simulator sells an instrument that is not traded on the day.
        return make_sale(due_row, float(market.last_close[due_row, column]), "held")
    price, traded_per_adjusted = float(market.last_close[today, column]), traded_ratio(close.panel, today, column)
    return Holding(
        position=position,
        price=price * traded_per_adjusted,
        gain=price / entry_price - 1,
        target_price=target_price * traded_per_adjusted,
        days_left=due_row - today,
    )


def _entry_price(close: MarketClose, position: Position, entry: int, column: int) -> float:
    """Return a position's purchase price in the market's prices, which may be adjusted for splits and dividends.

    Args:
        close: the market after the close.
        position: position with its entry price as traded.
        entry: row of the purchase day.
        column: number of the instrument in the market.

    Raises:
        DataError: the price differs from that day's traded close by more than `PRICE_TOLERANCE_FACTOR`.
    """
    traded_per_adjusted = traded_ratio(close.panel, entry, column)
    paid_price = position.entry_price
    traded_close = float(close.market.last_close[entry, column]) * traded_per_adjusted
    # A price far from the close as traded was probably adjusted. If the panel has no prices as traded, positions are in
    # its own prices, and nothing is checked.
    ratio = paid_price / traded_close if traded_close > 0 else 1.0
    is_near = 1 / PRICE_TOLERANCE_FACTOR < ratio < PRICE_TOLERANCE_FACTOR
    if close.panel.raw_close is not None and not is_near:
        raise DataError(
            f"{position.instrument} is held since {position.entry_date} at {paid_price:g}, and its close on that day "
            f"was {traded_close:g}. Write the price as it was traded, before adjustments, "
            "and the shares as they are held now."
        )
    return paid_price / traded_per_adjusted


def _double_tensors(value: float, price: float) -> tuple[Tensor, Tensor]:
    """Return a value and a price in double precision, as `Costs` takes them."""
    return torch.tensor(value, dtype=torch.float64), torch.tensor(price, dtype=torch.float64)


def find_splits(close: MarketClose, positions: Sequence[Position]) -> tuple[str, ...]:
    """Return the instruments that were split since their purchase, such as `AAPL (7:1)`: seven new shares for one.

    An instrument counts as split if its ratio of traded to adjusted price on the purchase day differs from today's
    ratio by more than `SPLIT_FACTOR`.
    """
    rows = {str(date): row for row, date in enumerate(close.panel.dates)}
    split_instruments = []
    for position in positions:
        column = close.panel.investable_names.index(position.instrument)
        ratio_today = traded_ratio(close.panel, len(close.panel.dates) - 1, column)
        split_ratio = traded_ratio(close.panel, rows[position.entry_date], column) / ratio_today
        if not 1 / SPLIT_FACTOR < split_ratio < SPLIT_FACTOR:
            split_instruments.append(
                f"{position.instrument} ({split_ratio:.3g}:1)"
                if split_ratio > 1
                else f"{position.instrument} (1:{1 / split_ratio:.3g})"
            )
    return tuple(split_instruments)


def decide_orders(
    close: MarketClose,
    action: Float[Tensor, "K 2"],
    sales: tuple[Sale, ...],
    holdings: tuple[Holding, ...],
    cash: float,
) -> Orders:
    """Decide on the purchases, and return all orders of the day; the sales are decided already.

    Args:
        close: the market after the close.
        action: coefficient and sale target in percent of each of the K instruments that can be bought.
        sales: today's sales; their proceeds can be spent.
        holdings: positions that stay; nothing more is bought of their instruments.
        cash: money before the sales.
    """
    trade, names = close.config.trade, close.panel.investable_names
    cash += sum(sale.shares * sale.price - sale.cost for sale in sales)  # first, as in `step_`: sales pay for purchases
    equity = cash + sum(holding.price * holding.position.shares for holding in holdings)
    held_names = {holding.position.instrument for holding in holdings}
    can_be_bought = (close.market.close[-1] > 0) & torch.tensor([name not in held_names for name in names])
    ranked_columns = _rank_columns(action[:, 0], can_be_bought)
    ranking = tuple((names[k], float(action[k, 0].clamp(0, trade.coefficient_max))) for k in ranked_columns)
    today, purchases, equity_left = str(close.panel.dates[-1]), list[Purchase](), equity
    # Purchases of a first call on the same day count, so that a second call does not buy again.
    purchases_left = trade.purchases_a_day - sum(holding.position.entry_date == today for holding in holdings)
    # The ranking has the same instruments as `ranked_columns`, of which the first few may be bought.
    for k, (_, coefficient) in zip(ranked_columns[: max(0, purchases_left)], ranking, strict=False):
        # Not `coefficient < threshold`, which is False for NaN: a NaN ends the purchases, as in the simulator.
        if not coefficient >= trade.buy_threshold:
            break
        purchase = _size_purchase(close, k, action[k], equity_left, cash)
        purchases.append(purchase)
        cash -= purchase.share * equity_left  # the money that was spent
        equity_left -= purchase.cost
    return Orders(
        date=today,
        sales=sales,
        holdings=holdings,
        purchases=tuple(purchases),
        ranking=ranking[:RANKED_INSTRUMENTS],
        threshold=trade.buy_threshold,
        cash=cash,
        equity=equity,
        unit=close.panel.calendar.unit,
        as_traded=close.panel.raw_close is not None,
        unpriced=close.panel.unpriced_names(len(close.panel.dates) - 1),
        splits=find_splits(close, [holding.position for holding in holdings]),
    )


def _rank_columns(coefficients: Float[Tensor, "K"], can_be_bought: Bool[Tensor, "K"]) -> list[int]:
    """Return the numbers of the instruments that can be bought, the largest coefficient first."""
    buyable_coefficients = coefficients.where(can_be_bought, -torch.inf)
    # A stable sort: of equal coefficients the first instrument is bought, as `max` takes it in the simulator.
    return [int(k) for k in buyable_coefficients.argsort(descending=True, stable=True) if can_be_bought[k]]


def _size_purchase(close: MarketClose, column: int, action: Float[Tensor, "2"], equity: float, cash: float) -> Purchase:
    """Size the purchase of an instrument at today's close; its prices are as traded.

    Args:
        close: the market after the close.
        column: number of the instrument in the market.
        action: coefficient and sale target in percent of the instrument; both are clamped to their ranges.
        equity: money and positions at today's closes, before the costs of this purchase.
        cash: money that can be spent.
    """
    account, trade = close.config.account, close.config.trade
    price = close.market.close[-1, column]
    traded_per_adjusted = traded_ratio(close.panel, len(close.panel.dates) - 1, column)
    target = action[1].clamp(trade.target_low, trade.target_high)
    # The formula of the simulator's `_pay_and_mark_`; costs are paid from the money spent.
    share = account.share(positions=trade.most_positions, instruments=len(close.panel.investable))
    spent_money = min(equity * share, cash)
    value = float(
        close.costs(len(close.panel.dates) - 1, column).affordable_value(*_double_tensors(spent_money, float(price)))
    )
    # Money that the least commission uses up buys nothing and is not spent.
    spent_money = spent_money if value else 0.0
    return Purchase(
        instrument=close.panel.investable_names[column],
        price=float(price) * traded_per_adjusted,
        shares=value / (float(price) * traded_per_adjusted),
        # 0 for an account that has lost everything, whose equity of 0 cannot divide.
        share=spent_money / equity if spent_money else 0.0,
        cost=spent_money - value,
        coefficient=float(action[0].clamp(0, trade.coefficient_max)),
        target=float(target),
        target_price=float(target_prices(price[None], target[None])) * traded_per_adjusted,
        hold_days=trade.hold_days,
    )
