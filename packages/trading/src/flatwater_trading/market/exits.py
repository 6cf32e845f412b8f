"""Exits of trades, their prices and their gains: pure functions of prices.

The market is exogenous, so the exit of a trade depends on its day, instrument and target alone. It is resolved on the
day of the purchase, and the simulator never has to search for it. A resolved exit is knowledge of the future: it may be
read only from the exit day on.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater_trading.market.config import AccountConfig, TradeConfig, TradingConfig
from flatwater_trading.market.costs import Costs
from flatwater_trading.market.market import Market

REASONS = ("target", "held", "data_ended", "episode_end")
"""Reasons for which a trade closes, in the order in which the rules apply."""


class TradeExits(NamedTuple):
    """The exits of B trades."""

    days_held: Int[Tensor, " B"]
    """Days from the entry to the exit, 1 .. H."""
    price: Float[Tensor, " B"]
    """The target price, or the last usable close up to the exit."""


def resolve_exits(
    market: Market,
    *,
    days_ahead: Int[Tensor, "H 1"],
    day: Int[Tensor, " B"],
    instrument: Int[Tensor, " B"],
    target_price: Float[Tensor, " B"],
    last_row: Int[Tensor, " B"],
) -> TradeExits:
    """Find the days held and the exit price of each trade, by the first rule that applies after the purchase day.

    1. The day's high reaches the target price: sold at the target price.
    2. After H days, 3. on the first day after an instrument's data has ended, or 4. on the last day of the episode:
       sold at the last usable close.

    Args:
        market: prices. On days without data highs are NaN, so no target is met.
        days_ahead: the numbers 1 .. H: days after a purchase on which it may be sold.
        day: rows of the purchases.
        instrument: columns of the purchases.
        target_price: prices at which to sell.
        last_row: row of each episode's last day, after `day`.

    Returns:
        Days and prices. For an entry without a trade (no usable close, no day left) they have no meaning, but never
        point outside the panel.
    """
    # H days, T x K prices.
    hold, (days, columns) = len(days_ahead), market.high.shape
    # [H, B]. A market stores highs instrument by instrument, so the next days are adjacent. A cell past an instrument's
    # last row is a day on which every episode has ended: `most_days` cuts it off.
    highs = torch.take(market.high.T, (instrument * days + day + days_ahead).clamp_(max=market.high.numel() - 1))
    # max over booleans returns the first True and its number, from 0; a NaN among the highs compares as False.
    is_reached, days_before_target = (highs >= target_price).max(0)
    # Days until the first of rules 2 to 4 applies: H days, the day after the data's end, or the episode's last day. 0
    # for an entry without a trade, so that its cell below is still within the panel.
    most_days = (torch.minimum(torch.take(market.last_day, instrument) + 1, last_row) - day).clamp_(0, hold)
    target_met = is_reached & (days_before_target < most_days)
    days_held = torch.where(target_met, days_before_target + 1, most_days)
    exit_close = torch.take(market.last_close, (day + days_held) * columns + instrument)
    return TradeExits(days_held, price=torch.where(target_met, target_price, exit_close))


_TRADES_AT_ONCE = 1 << 17
"""Trades that are resolved at a time: 20 MiB of highs if a position is held for 20 days."""


def trade_gains(
    market: Market,
    *,
    rows: range,
    targets: Float[Tensor, " G"],
    trade: TradeConfig,
    account: AccountConfig,
) -> Float[Tensor, "D K G"]:
    """Return the gain of a purchase of each instrument on each day, after costs, by sale target.

    Args:
        market: prices.
        rows: rows of the purchases. The exits read `hold_days` rows more.
        targets: sale targets, in percent.
        trade: holding time, and the positions that can be open.
        account: costs of buying and selling.

    Returns:
        Gains as fractions of the money paid; NaN for an instrument without a close on the day.
    """
    columns = market.close.shape[1]
    gains = torch.empty(len(rows), columns, len(targets), device=market.close.device)
    step = max(1, _TRADES_AT_ONCE // (columns * len(targets)))
    for first_row in range(0, len(rows), step):
        gains[first_row : first_row + step] = _resolve_gains(
            market, rows[first_row : first_row + step], targets, trade, account
        )
    return gains


def _resolve_gains(market: Market, rows: range, targets: Tensor, trade: TradeConfig, account: AccountConfig) -> Tensor:
    """Return the gains [D, K, G] of purchases on `rows`, as `trade_gains` does, with all exits resolved in one call.

    The caller bounds the number of rows: the highs of all trades' `hold_days` are in memory together.

    Args:
        market: prices [T, K].
        rows: rows of the D days of the purchases.
        targets: sale targets [G], in percent above the price.
        trade: holding time, and the positions that can be open.
        account: costs of buying and selling.
    """
    device = targets.device
    # Day, instrument and price of each purchase, for every combination of day, instrument and target.
    shape = (len(rows), market.close.shape[1], len(targets))
    day = torch.arange(rows.start, rows.stop, device=device)[:, None, None].expand(shape).flatten()
    instrument = torch.arange(shape[1], device=device)[None, :, None].expand(shape).flatten()
    price = market.close[rows.start : rows.stop, :, None].expand(shape).flatten()
    exits = resolve_exits(
        market,
        days_ahead=torch.arange(1, trade.hold_days + 1, device=device)[:, None],
        day=day,
        instrument=instrument,
        target_price=target_prices(price, targets.expand(shape).flatten()),
        # No episode cuts these trades short, so a gain depends on the panel alone.
        last_row=day + trade.hold_days,
    )
    entry = market.costs(account, day, instrument)
    exit_ = market.costs(account, day + exits.days_held, instrument)
    stake = account.stake(positions=trade.most_positions, instruments=shape[1])
    return net_gain(price, exits.price, entry, exit_, stake).view(shape)


def target_prices(price: Float[Tensor, " B"], target: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return the prices that are `target` percent above `price`."""
    # Nothing else computes target prices, as simulator, orders and log must agree on them to the last bit.
    return torch.addcmul(price, price, target, value=0.01)


def net_gain(
    entry_price: Float[Tensor, " B"], exit_price: Float[Tensor, " B"], entry: Costs, exit_: Costs, stake: float
) -> Float[Tensor, " B"]:
    """Return the gain of a trade as a fraction of the money paid, after the costs of both sides.

    Args:
        entry_price: prices of the purchases.
        exit_price: prices of the sales.
        entry: costs of the purchases.
        exit_: costs of the sales.
        stake: money paid for each purchase, on which costs depend that are not in proportion to it.
    """
    if entry.rates is None:
        return exit_price * exit_.config.sale_factor / (entry_price * entry.config.purchase_factor) - 1
    # Without a purchase the price is 1 or NaN, and the gain has no meaning.
    shares = entry.affordable_value(torch.full_like(entry_price, stake), entry_price) / entry_price
    return exit_.proceeds(shares * exit_price, exit_price) / stake - 1


def trade_rewards(
    *,
    entry_price: Float[Tensor, " B"],
    exit_price: Float[Tensor, " B"],
    entry: Costs,
    exit_: Costs,
    config: TradingConfig,
    instruments: int,
) -> Float[Tensor, " B"]:
    """Return the reward of a trade: its gain after costs in percent, a loss multiplied by `loss_factor`.

    The costs are those of a position of an account that has its opening cash, so a reward does not depend on the money
    that is left.

    Args:
        entry_price: prices of the purchases.
        exit_price: prices of the sales.
        entry: costs of the purchases.
        exit_: costs of the sales.
        config: sizes of positions and rewards.
        instruments: number of instruments that can be bought.
    """
    stake = config.account.stake(positions=config.trade.most_positions, instruments=instruments)
    gain_percent = 100 * net_gain(entry_price, exit_price, entry, exit_, stake)
    factor = config.reward.loss_factor
    return gain_percent if factor == 1 else torch.where(gain_percent < 0, gain_percent * factor, gain_percent)


def exit_reasons(
    *,
    entry_day: np.ndarray,
    exit_day: np.ndarray,
    exit_price: np.ndarray,
    target_price: np.ndarray,
    last_day: np.ndarray,
    hold_days: int,
) -> np.ndarray:
    """Return the name in `REASONS` of the rule that closed each trade.

    Args:
        entry_day: rows of the purchases.
        exit_day: rows of the sales.
        exit_price: prices of the sales; equal to `target_price` only if the target was met, because a last usable close
            at or above the target would have met it on its own day.
        target_price: target prices, as given to `resolve_exits`.
        last_day: rows of the last usable close of each trade's instrument.
        hold_days: days after which a position is sold.
    """
    rules = [exit_price >= target_price, exit_day == entry_day + hold_days, exit_day == last_day + 1]
    # select takes the first rule that holds: the rules are in the order of REASONS.
    return np.select(rules, REASONS[:3], REASONS[3])
