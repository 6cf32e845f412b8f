"""The rules of an episode in plain Python, one episode and one day at a time, looking at nothing after the day.

Written from the reference table "Episode", not from the simulator: positions are a list, and each morning asks each of
them whether it closes today.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.exits import target_prices


@dataclass
class Position:
    instrument: int
    coefficient: float
    target: float
    entry_day: int
    entry_price: float
    target_price: float
    shares: float
    number: int = 0
    """Place among the purchases of its day."""
    exit_day: int = -1
    exit_price: float = float("nan")
    reason: str = ""
    reward: float = 0.0


@dataclass
class Episode:
    rewards: list[float] = field(default_factory=list)
    equity: list[float] = field(default_factory=list)
    invested: list[float] = field(default_factory=list)
    account: list[dict[int, tuple[int, float]]] = field(default_factory=list)
    """For each day, after its exits: instrument -> (days held, unrealised gain)."""
    closed: list[Position] = field(default_factory=list)


class Feed:
    """The market up to today: rows are handed out one by one."""

    def __init__(self, close: np.ndarray, high: np.ndarray) -> None:
        self._close, self._high = close, high
        self.close = self.high = np.full(close.shape[1], np.nan)
        self.mark = np.zeros(close.shape[1])
        self.ended = np.zeros(close.shape[1], dtype=bool)

    def open(self, day: int) -> None:
        self.close, self.high = self._close[day], self._high[day]
        self.mark = np.where(np.isnan(self.close), self.mark, self.close)
        # A delisting is announced on the first day without data, which no price of that day shows.
        self.ended = np.isnan(self._close[day:]).all(axis=0)


def play(
    config: TradingConfig,
    close: np.ndarray,
    high: np.ndarray,
    *,
    start: int,
    trading_end: int,
    end: int,
    actions: np.ndarray,
) -> Episode:
    """An episode on usable prices [T, K] (NaN elsewhere), with actions [D, K, 2]."""
    feed, cash, episode = Feed(close, high), config.account.cash, Episode()
    held: list[Position] = []
    episode.equity.append(cash)
    episode.invested.append(0.0)
    for day in range(end):
        feed.open(day)
        if day < start:
            continue
        due = [p for p in held if closes(p, day, feed, config, is_last=day == end - 1)]
        held = [p for p in held if p not in due]
        reward = 0.0
        for position in due:
            cash += position.shares * position.exit_price * config.account.sale_factor
            position.reward = pays(position, config)
            reward += position.reward
        episode.closed += due
        gains = {p.instrument: (day - p.entry_day, feed.mark[p.instrument] / p.entry_price - 1) for p in held}
        episode.account.append(gains)
        if day < trading_end:
            for number in range(config.trade.purchases_a_day):
                worth = cash + sum(p.shares * feed.mark[p.instrument] for p in held)
                new = buys(config, feed, held, actions[day - start], day=day, cash=cash, equity=worth)
                if new is None:
                    break
                new.number = number
                held.append(new)
                cash -= new.shares * new.entry_price * config.account.purchase_factor
            if not held:
                reward -= config.reward.inaction_penalty
        episode.rewards.append(reward)
        invested = sum(p.shares * feed.mark[p.instrument] for p in held)
        episode.equity.append(cash + invested)
        episode.invested.append(invested)
    assert not held
    return episode


def closes(position: Position, day: int, feed: Feed, config: TradingConfig, *, is_last: bool) -> bool:
    """Whether the position is sold today; writes how."""
    k = position.instrument
    price = feed.mark[k]
    if feed.high[k] >= position.target_price:
        reason, price = "target", position.target_price
    elif day - position.entry_day == config.trade.hold_days:
        reason = "held"
    elif feed.ended[k]:
        reason = "data_ended"
    elif is_last:
        reason = "episode_end"
    else:
        return False
    position.exit_day, position.exit_price, position.reason = day, float(price), reason
    return True


def pays(position: Position, config: TradingConfig) -> float:
    paid = position.entry_price * config.account.purchase_factor
    gain = 100 * (position.exit_price * config.account.sale_factor - paid) / paid
    return gain * (config.reward.loss_factor if gain < 0 else 1)


def buys(
    config: TradingConfig, feed: Feed, held: list[Position], action: np.ndarray, *, day: int, cash: float, equity: float
) -> Position | None:
    """The next purchase of today, if any."""
    trade = config.trade
    taken = {p.instrument for p in held}
    free = [i for i in range(len(action)) if i not in taken and not np.isnan(feed.close[i])]
    if not free or np.isnan(action[free, 0]).any():
        return None
    k = max(free, key=lambda i: (action[i, 0], -i))
    coefficient, target = float(action[k, 0]), float(action[k, 1])
    if coefficient < trade.buy_threshold or np.isnan(target):
        return None
    coefficient = min(coefficient, trade.coefficient_max)
    target = min(max(target, trade.target_low), trade.target_high)
    price = float(feed.close[k])
    # The one number taken from the code under test: a high within a rounding of the target must fall on the same side.
    sells_at = float(target_prices(torch.tensor([price]), torch.tensor([target])))
    share = config.account.position_share or 1 / min(trade.hold_days * trade.purchases_a_day, len(action))
    money = min(equity * share, cash)
    shares = money / config.account.purchase_factor / price
    return Position(k, coefficient, target, day, price, sells_at, shares)
