"""Learned weights against the baselines, on the same days and with the same account rules."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.metrics.short_numbers import finite_or_none
from flatwater.state.random import generator
from flatwater_trading.market import equity_measures
from flatwater_trading.market.baselines import buy_and_hold_equity
from flatwater_trading.market.config import EpisodeConfig, TradingConfig
from flatwater_trading.market.costs import Costs
from flatwater_trading.market.market import Market
from flatwater_trading.market.market import build_market as build_priced_market
from flatwater_trading.market.portfolio import DayPrices, PlayedWeights, PortfolioPrices, play_weights
from flatwater_trading.market.score_rules import oracle_scores, play_rule_
from flatwater_trading.market.simulator import build_simulator, reset_
from flatwater_trading.market.weight_rules import Closes, weight_rules
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.comparison import (
    RANDOM_TRADERS,
    DaysToPlay,
    PlayedDays,
    compare_champion,
    measure_curve,
    oracle_sentence,
)
from flatwater_trading.recipe.result import played_as_json
from flatwater_trading.recipe.score_analysis import analyse_scores
from flatwater_trading.recipe.trader_names import BUY_AND_HOLD, CHAMPION, CHANCE, ORACLE
from flatwater_trading.recipe.weights.market import account_prices
from flatwater_trading.training.weights.config import WeightsConfig

LEARNED = "learned"
"""Name of the account that holds the learned weights whole, without a rest of equal weights or cash."""
MAXIMUM_WEIGHT_COLUMNS = 12
"""Most instruments whose weights are kept for a page."""


@dataclass(frozen=True, kw_only=True)
class WeightsEvaluation(DaysToPlay):
    """Days that are played, and the weights that are held on them."""

    config: WeightsConfig
    held: Float[Tensor, "D K"]
    """Weights that are held at each close, float64: `held_share` of `learned`, and `rest`."""
    learned: Float[Tensor, "D K"]
    """Weights as they were learned."""
    held_share: float
    """Part of the learned weights that is held, 0 to 1."""
    rest: str
    """Name of what is held for the rest: `equal weight` or `cash`."""
    signals: Float[Tensor, "T K F"]


@dataclass(frozen=True)
class WeightsScore(PlayedDays):
    """The result of consecutive days, with the champion's weights."""

    weights: pl.DataFrame
    """Date, and the champion's weights of the instruments that it held most."""

    held_share: float
    """Part of the learned weights that is held, 0 to 1."""
    rest: str
    """Name of what is held for the rest: `equal weight` or `cash`."""
    learned_return: float
    """Total return if the learned weights were held whole."""
    stopped: int | None
    """Closes at which the champion was kept in cash by its stop; None without a stop."""

    @property
    def verdict(self) -> str:
        """Sentences on the comparison, the learned weights held whole, the stop and the oracle."""
        closes = f"at {self.stopped} of {len(self.days)} closes"
        stop_sentence = "" if self.stopped is None else f" The stop kept the champion in cash {closes}."
        return (
            f"{self.comparison.sentence} {self._held_sentence}{stop_sentence} {oracle_sentence(self.returns)}".rstrip()
        )

    @property
    def _held_sentence(self) -> str:
        """Sentence on the part of the learned weights that was held, and on what they would have earned whole."""
        if self.held_share == 1:
            return "It held the learned weights whole."
        if self.held_share > 0:
            held_phrase = f"{self.held_share:.0%} of the learned weights and {self.rest} for the rest"
        else:
            held_phrase = (
                f"{self.rest} alone: on days that the weights were not learned from, they earned no more than "
                f"{self.rest} by more than chance"
            )
        return f"It held {held_phrase}; held whole, they would have returned {self.learned_return:+.1%}."


def score_weights(evaluation: WeightsEvaluation) -> WeightsScore:
    """Play the held weights, simple rules and random traders on the evaluation's days, and measure each of them.

    If the expected returns are known (`truth`, of a synthetic market), the oracle, which trades by them, plays too.
    """
    panel, days, a_year = evaluation.panel, evaluation.days, evaluation.panel.calendar.a_year
    prices = account_prices(panel, evaluation.config.account)
    has_close = (prices.age == 0) & (prices.last_close > 0)
    closes = Closes(prices.last_close, has_close, panel.calendar)
    rules = weight_rules(closes, evaluation.signals, evaluation.learned_rows, range(days.first, days.stop))
    # Trader -> its weights [D, K], which are played as a batch of accounts: trader n is account n. The last account, of
    # the learned weights held whole, only gives a total return.
    tables = {
        CHAMPION: evaluation.held,
        **{name: weights() for name, weights in rules.items()},
        LEARNED: evaluation.learned,
    }
    played_weights = _play_tables(evaluation, prices, torch.stack([*tables.values()]))
    accounts = {name: number for number, name in enumerate(tables) if name != LEARNED}
    chance = _play_random_traders(evaluation, prices)
    chance_returns = equity_measures.total_return(chance.equity)
    median = chance_returns.argsort()[(RANDOM_TRADERS - 1) // 2]  # the trader that torch.median takes
    curves = {
        CHAMPION: played_weights.equity[accounts[CHAMPION]],
        **_buy_and_hold_curves(evaluation, prices),
        **{name: played_weights.equity[number] for name, number in accounts.items() if name != CHAMPION},
        CHANCE: chance.equity[median],
        **_oracle_curve(evaluation),
    }
    market_curve = curves[evaluation.benchmark_trader]
    rows = {name: measure_curve(curve, market_curve, a_year) for name, curve in curves.items()}
    for name, number in accounts.items():
        rows[name] |= _account_measures(played_weights, number)
    rows[CHANCE] |= _account_measures(chance, int(median))
    return WeightsScore(
        days=days,
        comparison=compare_champion(curves, chance_returns, a_year=a_year),
        rows=rows,
        equity=curves,
        chance=chance_returns,
        benchmark=evaluation.benchmark_trader,
        **_daily_numbers(evaluation, prices, played_weights, accounts[CHAMPION]),
        trades=trade_frame(panel, days, prices, played_weights.log[0]),
        weights=weight_frame(panel, days, evaluation.held),
        held_share=evaluation.held_share,
        rest=evaluation.rest,
        learned_return=float(equity_measures.total_return(played_weights.equity[-1])),
        stopped=None if evaluation.config.account.stop is None else int(played_weights.stopped[accounts[CHAMPION]]),
    )


def _play_tables(
    evaluation: WeightsEvaluation, prices: PortfolioPrices, weights: Float[Tensor, "B D K"]
) -> PlayedWeights:
    """Play B tables of weights, each with a row for each day, as one batch of accounts.

    The trades of the first account, the champion's, are logged.
    """
    return play_weights(
        prices,
        evaluation.config.account,
        lambda number, _: weights[:, number],  # known before: they do not depend on the day's prices
        start=evaluation.days.first,
        days=len(evaluation.days),
        batch=len(weights),
        logged_accounts=1,
    )


def _play_random_traders(evaluation: WeightsEvaluation, prices: PortfolioPrices) -> PlayedWeights:
    """Play random traders: each holds the champion's weights, shifted in time and with the instruments permuted.

    All days are shifted by the same number, in a circle, and one permutation counts for all of them. So a random trader
    invests and trades as much as the champion.
    """
    days, count = evaluation.held.shape
    rng = generator(evaluation.config.seed, "random traders", torch.device("cpu"))
    shift = torch.randint(days, (RANDOM_TRADERS,), generator=rng)
    permutations = torch.stack([torch.randperm(count, generator=rng) for _ in range(RANDOM_TRADERS)])

    def choose_weights(number: int, today: DayPrices) -> Tensor:
        """Return the shifted and permuted weights of a day, scaled to the part that the champion invests."""
        weights = evaluation.held[(number + shift) % days]
        permuted_weights = weights.gather(1, permutations).where(today.priced, 0.0)
        # The weight of an instrument without a price goes to the others, in proportion, so that as much is invested.
        total, priced_total = weights.abs().sum(1), permuted_weights.abs().sum(1)
        return permuted_weights * (total / priced_total.clamp(min=1e-12)).where(priced_total > 0, 0.0)[:, None]

    return play_weights(
        prices, evaluation.config.account, choose_weights, start=evaluation.days.first, days=days, batch=RANDOM_TRADERS
    )


def _daily_numbers(
    evaluation: WeightsEvaluation, prices: PortfolioPrices, played_weights: PlayedWeights, number: int
) -> dict[str, Any]:
    """Return exposure and turnover of the champion on each day, and the analysis of the learned weights as scores.

    Args:
        evaluation: days and learned weights.
        prices: closes of all days.
        played_weights: accounts that were played, the champion among them.
        number: number of the champion's account.
    """
    rows = slice(evaluation.days.first, evaluation.days.stop)
    # Column 0 is the opening, before the first day.
    equity, last_close = played_weights.equity[number, 1:], prices.last_close[rows]
    tradable = (prices.age[rows] == 0) & (last_close > 0)
    return {
        "exposure": (played_weights.invested[number, 1:] / equity).numpy(),
        "turnover": (played_weights.log[number].abs().sum(-1) / equity).numpy(),
        "scores": analyse_scores(evaluation.learned.numpy(), last_close.numpy(), tradable.numpy()),
    }


def _buy_and_hold_curves(evaluation: WeightsEvaluation, prices: PortfolioPrices) -> dict[str, Tensor]:
    """Return the equity curves of buying on the first day and selling on the last, by name.

    One is of all instruments in equal parts; the other, if there is a benchmark, of that alone.
    """
    days = evaluation.days
    # As an account of whole positions, with the same cash and costs.
    as_account = evaluation.config.account.as_account
    last_closes = prices.last_close[days.first : days.stop]
    first_day, last_day = prices.day(days.first), prices.day(days.stop - 1)
    held_curve = buy_and_hold_equity(
        last_closes,
        is_listed=first_day.priced,
        account=as_account,
        entry=Costs(as_account, first_day.rates),
        exit_=Costs(as_account, last_day.rates),
    )
    curves = {BUY_AND_HOLD: held_curve.double()}
    if (benchmark := evaluation.benchmark) is not None:
        curves |= {name: curve.double() for name, curve in benchmark.equity(days, as_account).items()}
    return curves


def _oracle_curve(evaluation: WeightsEvaluation) -> dict[str, Tensor]:
    """Return the equity of the oracle, a trader that knows the law of the market; empty if the law is unknown.

    The oracle trades by the rules of purchases: one a day, held for 20 days.
    """
    if evaluation.truth is None:
        return {}
    panel, days, cpu = evaluation.panel, evaluation.days, torch.device("cpu")
    # 20 rows, the default settlement, are left after the trading days: on them positions only close.
    config = TradingConfig(
        account=evaluation.config.account.as_account, episode=EpisodeConfig(trading_days=max(1, len(days) - 20))
    )
    # The oracle reads prices alone, so the observations are one feature of zeros.
    market: Market = build_priced_market(panel, torch.zeros(*panel.valid.T.shape, 1), cpu, config.account)
    env = build_simulator(config, batch=1, max_days=len(days), instruments=len(panel.investable), device=cpu)
    start, end = torch.tensor([days.first]), torch.tensor([days.stop])
    reset_(env, start=start, trading_end=(end - config.episode.settlement_days).clamp(min=days.first), end=end)
    scores = torch.from_numpy(oracle_scores(evaluation.truth, config))
    play_rule_(env, market, config, scores, start=days.first, days=len(days))
    return {ORACLE: env.logs.equity[0, : len(days) + 1].double()}


def _account_measures(played_weights: PlayedWeights, number: int) -> dict[str, float]:
    """Return exposure, turnover, trades and costs of the account `number` of the batch, by name."""
    equity = played_weights.equity[number]
    return {
        "exposure": float(equity_measures.exposure(equity, played_weights.invested[number])),
        "turnover": float(equity_measures.turnover(equity, played_weights.traded[number])),
        "trades": float(played_weights.trades[number]),
        "costs": float(played_weights.cost[number] / equity.mean()),
    }


def trade_frame(panel: Panel, days: Days, prices: PortfolioPrices, traded_values: Float[Tensor, "D K"]) -> pl.DataFrame:
    """Return a row for each trade of an account, by day, then instrument; `traded_values` are below 0 for sales."""
    # Day and instrument of each trade: a value of 0 is none.
    day, column = traded_values.nonzero().unbind(1)
    row = day + days.first
    value, price = traded_values[day, column], prices.last_close[row, column]
    names = panel.investable_names
    return pl.DataFrame(
        {
            "date": panel.dates[row.numpy()],
            "instrument": [names[k] for k in column.tolist()],
            "shares": (value / price).numpy(),
            "price": price.numpy(),
            "value": value.numpy(),
        }
    )


def weight_frame(panel: Panel, days: Days, held_weights: Float[Tensor, "D K"]) -> pl.DataFrame:
    """Return the date and the weights of the `MAXIMUM_WEIGHT_COLUMNS` instruments that were held most, for each day."""
    # A stable sort: of equal means the first instruments, on every machine.
    most_held = held_weights.abs().mean(0).argsort(descending=True, stable=True)[:MAXIMUM_WEIGHT_COLUMNS]
    names = panel.investable_names
    # An instrument of the name `date` would take the place of the dates.
    columns = {names[k]: held_weights[:, k].numpy() for k in sorted(most_held.tolist()) if names[k] != "date"}
    return pl.DataFrame({"date": panel.dates[days.first : days.stop]} | columns)


def as_json(panel: Panel, score: WeightsScore, split: str) -> dict[str, Any]:
    """Return a score as the contents of result.json, with the panel, the days that were played and their split."""
    # An account without a stop has no such field.
    stopped = {} if score.stopped is None else {"stopped": score.stopped}
    learned = {"learned_return": finite_or_none(score.learned_return)}
    return played_as_json(panel, score, "weights", split) | learned | stopped
