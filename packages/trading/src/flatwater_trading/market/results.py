"""Results of episodes: fitness, a summary of each and the log of closed trades; future exits are left out."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater_trading.market import equity_measures
from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.exits import exit_reasons, target_prices, trade_rewards
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator


def fitness(sim: Simulator, config: TradingConfig) -> Float[Tensor, " B"]:
    """Return the sum of the rewards, without discount, less `no_trade_penalty` if nothing was bought."""
    # Exit days are rows of the panel, 0 or more; -1 where the log has no purchase.
    bought_nothing = (sim.logs.exit_day < 0).all(1)
    return torch.add(sim.total, bought_nothing, alpha=-config.reward.no_trade_penalty)


def closed_mask(sim: Simulator) -> Bool[Tensor, "B M"]:
    """Return the mask of the logged purchases that have closed."""
    # The log has future exits, resolved at the purchase; only exits before today have happened.
    return (sim.logs.exit_day >= 0) & (sim.logs.exit_day < sim.day[:, None])


def episode_summary(sim: Simulator, config: TradingConfig, a_year: int | None = None) -> dict[str, Float[Tensor, " B"]]:
    """Return the numbers of each episode so far, by name.

    Args:
        sim: simulator, of which the logs are read.
        config: settings with the penalties.
        a_year: number of the market's rows in a year, for the annualised Sharpe ratio; None leaves the ratio out.

    Returns:
        reward: sum of the rewards. fitness: see `fitness`. trades: closed trades. win_rate, mean_gain (percent): of
        these trades. refused: share of the trading days on which an instrument not held reached the threshold and
        nothing was bought. total_return, sharpe, drawdown, exposure, turnover: of the cash account (see
        `equity_measures`).
    """
    logs, is_closed = sim.logs, closed_mask(sim)
    is_bought = logs.exit_day >= 0
    # Before costs, as the log of trades shows it; rewards and returns are after costs.
    gain = (logs.exit_price / logs.entry_price.where(is_bought, 1) - 1) * 100
    count = is_closed.sum(1)
    # Value bought and sold: a closed trade counts with both, an open one only as bought. The masks stand for 1 and 0.
    traded_value = (
        (logs.shares * (logs.entry_price * is_bought + logs.exit_price * is_closed)).where(is_bought, 0).sum(1)
    )
    return {
        "reward": sim.total.clone(),
        "fitness": fitness(sim, config),
        "trades": count.to(torch.float32),
        "win_rate": equity_measures.win_rate(gain, is_closed),
        "mean_gain": gain.where(is_closed, 0).sum(1) / count.clamp(min=1),
        "refused": sim.refused / (sim.trading_end - sim.start),
        "total_return": equity_measures.total_return(logs.equity),
        **({} if a_year is None else {"sharpe": equity_measures.sharpe(logs.equity, a_year)}),
        "drawdown": equity_measures.drawdown(logs.equity),
        "exposure": equity_measures.exposure(logs.equity, logs.invested),
        "turnover": equity_measures.turnover(logs.equity, traded_value),
    }


def purchases_by_day(sim: Simulator) -> Int[Tensor, "B D1"]:
    """Return the number of purchases on each day; the last column is that of ended episodes, which buy nothing."""
    is_bought = sim.logs.exit_day >= 0
    # Columns of the log are days times the purchases of a day, the day varying slowest.
    return is_bought.view(len(is_bought), -1, sim.purchases_a_day).sum(-1)


def traded_by_day(sim: Simulator) -> Float[Tensor, "B D"]:
    """Return the value bought and sold on each day of the episodes so far."""
    logs, is_closed = sim.logs, closed_mask(sim)
    is_bought = logs.exit_day >= 0
    # Value bought on each day; the last column is that of ended episodes, which buy nothing.
    traded_value = (
        (logs.shares * logs.entry_price).where(is_bought, 0).view(len(is_bought), -1, sim.purchases_a_day).sum(-1)
    )
    # Add the sales on their days. An open trade has none: it adds 0 to the first day.
    exit_column = (logs.exit_day - sim.start[:, None]).where(is_closed, 0)
    return traded_value.scatter_add(1, exit_column, (logs.shares * logs.exit_price).where(is_closed, 0))[:, :-1]


def trade_columns(
    sim: Simulator,
    market: Market,
    config: TradingConfig,
    *,
    instruments: Sequence[str],
    dates: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the closed trades as columns, ordered by episode and day of purchase. The call waits for the device.

    Args:
        sim: simulator, of which the logs of all episodes are read.
        market: prices [T, K] of the simulator's steps.
        config: configuration as given to `build_simulator`.
        instruments: names [N] of the panel's columns.
        dates: days [T] of the panel.

    Returns:
        Equally long columns: episode, instrument, entry_day, exit_day (rows of the panel), entry_price, exit_price,
        coefficient, target (percent), shares, entry_date, exit_date, gain (percent, before costs), reason (of
        `exits.REASONS`), reward, and profit (of the cash account, after costs).
    """
    raw = _closed_trades(sim, market, config)
    # Taken out here and added at the end, so that they are the last columns.
    rewards, profit = raw.pop("reward"), raw.pop("profit")
    instrument, entry_day, exit_day = raw["instrument"], raw["entry_day"], raw["exit_day"]
    # Tensors, as gains and targets are computed in torch like those of the simulator.
    entry_price, exit_price = torch.from_numpy(raw["entry_price"]), torch.from_numpy(raw["exit_price"])
    return raw | {
        "instrument": np.asarray(instruments, dtype=np.str_)[market.investable.cpu().numpy()[instrument]],
        "entry_date": dates[entry_day],
        "exit_date": dates[exit_day],
        "gain": ((exit_price / entry_price - 1) * 100).numpy(),
        "reason": exit_reasons(
            entry_day=entry_day,
            exit_day=exit_day,
            exit_price=raw["exit_price"],
            target_price=target_prices(entry_price, torch.from_numpy(raw["target"])).numpy(),
            last_day=market.last_day.cpu().numpy()[instrument],
            hold_days=len(sim.days_ahead),
        ),
        "reward": rewards,
        "profit": profit,
    }


def _closed_trades(sim: Simulator, market: Market, config: TradingConfig) -> dict[str, np.ndarray]:
    """Return the columns of the log for the closed trades of all episodes, with the reward and the profit of each.

    `instrument` is the number of the instrument among those that can be bought.
    """
    is_closed = closed_mask(sim)
    logs = sim.logs
    # nonzero waits for the device: the number of trades determines the shapes. Indexing with the mask, below, gives the
    # trades in the same order.
    episode, slot = is_closed.nonzero(as_tuple=True)
    columns = {
        "episode": episode,
        "instrument": logs.instrument[is_closed],
        "entry_day": sim.start[episode] + slot // sim.purchases_a_day,
        "exit_day": logs.exit_day[is_closed],
        "entry_price": logs.entry_price[is_closed],
        "exit_price": logs.exit_price[is_closed],
        "coefficient": logs.coefficient[is_closed],
        "target": logs.target[is_closed],
        "shares": logs.shares[is_closed],
    }
    columns |= _rewards_and_profits(columns, market, config)
    return {name: column.cpu().numpy() for name, column in columns.items()}


def _rewards_and_profits(columns: Mapping[str, Tensor], market: Market, config: TradingConfig) -> dict[str, Tensor]:
    """Return reward and profit of closed trades, both after all costs.

    Args:
        columns: instruments, days, prices and shares of the trades.
        market: market of the trades.
        config: costs and rewards.
    """
    account = config.account
    entry_price, exit_price, shares = columns["entry_price"], columns["exit_price"], columns["shares"]
    entry = market.costs(account, columns["entry_day"], columns["instrument"])
    exit_ = market.costs(account, columns["exit_day"], columns["instrument"])
    # After the costs in proportion to the value; the others are taken off below.
    profit = shares * (exit_price * account.sale_factor - entry_price * account.purchase_factor)
    extra_cost = entry.extra_cost(shares * entry_price, entry_price)
    extra_cost = extra_cost + exit_.extra_cost(-shares * exit_price, exit_price)
    rewards = trade_rewards(
        entry_price=entry_price,
        exit_price=exit_price,
        entry=entry,
        exit_=exit_,
        config=config,
        instruments=len(market.investable),
    )
    return {"reward": rewards, "profit": profit - extra_cost}
