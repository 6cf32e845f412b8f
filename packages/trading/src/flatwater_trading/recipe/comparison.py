"""Comparison of a champion with the best simple rule, such as buy and hold, and with chance.

The interval of the mean difference in their returns shows whether there are enough periods to distinguish the two
(`return_difference`). Chance is a trader that buys random instruments on the champion's days of purchases.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.market import equity_measures
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.benchmark import Benchmark
from flatwater_trading.recipe.return_difference import ROUNDING, ReturnDifference, estimate_difference, period_returns
from flatwater_trading.recipe.score_analysis import ScoreAnalysis
from flatwater_trading.recipe.trader_names import CHAMPION, EQUAL_WEIGHT, ORACLE, simple_rules

RANDOM_TRADERS = 100
"""Random traders that are played, with the champion's turnover; their median is reported."""
SURE_SHARE = 0.95
"""Share of the random traders that a champion must beat, or chance explains the result; if this share of them earned
more, the result is worse than chance.
"""


@dataclass(frozen=True)
class Comparison:
    """The champion compared with the best of the simple rules."""

    best: str
    """The simple rule that earned most."""
    difference: float
    """Champion less `best`, in a year, from the mean of the differences of their returns."""
    low: float
    high: float
    """Upper end of the interval of `difference`; `low` is the lower end."""
    beaten: float
    """Share of the random traders with the same turnover that earned less than the champion."""

    @property
    def sentence(self) -> str:
        """Sentence on whether the champion earned more than the best simple rule, and more than chance."""
        comparison = ReturnDifference(self.difference, self.low, self.high).comparison_phrase(
            f"{self.best}, the best of the simple rules"
        )
        share = f"{self.beaten:.0%} of the random traders with the same turnover earned less"
        if self.beaten >= SURE_SHARE:
            return f"The champion {comparison}; {share}."
        if self.beaten <= 1 - SURE_SHARE:
            against_chance = "it is worse than chance"
        elif self.high < 0:
            # It earned surely less than the rule: that chance explains it "as well" would contradict this.
            against_chance = "it is not distinguishable from chance"
        else:
            against_chance = "chance explains it as well"
        return f"The champion {comparison}; {against_chance}: {share}."


def oracle_share(returns: Mapping[str, float | None]) -> float | None:
    """Return the champion's return divided by that of the oracle, a trader that knows the law of a synthetic market.

    None without an oracle, if a return is unknown, or if the oracle's is not above 0.
    """
    champion_return, oracle_return = returns[CHAMPION], returns.get(ORACLE)
    if champion_return is None or oracle_return is None or oracle_return <= 0:
        return None
    return champion_return / oracle_return


def oracle_sentence(returns: Mapping[str, float | None]) -> str:
    """Return a sentence that compares the champion's return with the oracle's; empty without an oracle."""
    share = oracle_share(returns)
    if share is None:
        return ""
    return f"It earned {share:.0%} of what the law of this market allows ({returns[ORACLE]:+.1%}, the oracle)."


def compare_champion(
    equity: Mapping[str, Float[Tensor, " D1"]], chance: Float[Tensor, " R"], *, a_year: int
) -> Comparison:
    """Compare the champion's equity with that of the simple rule that earned most, and with random traders.

    Args:
        equity: equity at the start and after each period, by the trader's name.
        chance: total return of each of the R random traders.
        a_year: number of periods in a year.
    """
    returns = {name: float(curve[-1] / curve[0] - 1) for name, curve in equity.items()}
    # Picked with hindsight on the same days, the best is a harder opponent than a rule that is named in advance.
    best_rule = max(simple_rules(equity), key=lambda name: returns[name])
    difference = estimate_difference(period_returns(equity[CHAMPION]), period_returns(equity[best_rule]), a_year=a_year)
    return Comparison(
        best=best_rule,
        difference=difference.mean,
        low=difference.low,
        high=difference.high,
        beaten=beaten_share(returns[CHAMPION], chance),
    )


def beaten_share(own_return: float, chance: Float[Tensor, " R"]) -> float:
    """Return the share of random traders that earned less than `own_return`; those that earned the same count half."""
    # Leads within `ROUNDING` are ties. They count half, so that a trader that makes the same trades as all random
    # traders beats 50 % of them.
    lead = own_return - chance
    return float((lead > ROUNDING).float().mean() + (lead.abs() <= ROUNDING).float().mean() / 2)


@dataclass(frozen=True, kw_only=True)
class DaysToPlay:
    """Consecutive days for a champion, random traders and simple rules to play."""

    panel: Panel
    days: Days
    """Rows of the panel that are played."""
    learned_rows: range
    """Rows that ridge regression is fitted to."""
    truth: np.ndarray[Any, Any] | None
    """Expected log returns of a synthetic market [T, K], for the oracle; None if they are unknown."""
    benchmark: Benchmark | None
    """Price that is bought and held besides; None for none."""

    @property
    def benchmark_trader(self) -> str:
        """Trader against whose equity alpha and beta are measured."""
        return EQUAL_WEIGHT if self.benchmark is None else self.benchmark.trader


def measure_curve(curve: Float[Tensor, "D1"], market: Float[Tensor, "D1"], a_year: int) -> dict[str, float]:
    """Return the measures of an equity curve by name; alpha and beta are to the market's curve."""
    alpha, beta = equity_measures.alpha_beta(curve, market, a_year)
    measures = {
        "total_return": equity_measures.total_return(curve),
        "sharpe": equity_measures.sharpe(curve, a_year),
        "drawdown": equity_measures.drawdown(curve),
        "sortino": equity_measures.sortino(curve, a_year),
        "calmar": equity_measures.calmar(curve, a_year),
        "alpha": alpha,
        "beta": beta,
    }
    return {name: float(value) for name, value in measures.items()}


@dataclass(frozen=True)
class PlayedDays:
    """The result of consecutive days that a champion, random traders and simple rules have played."""

    days: Days
    """Rows of the panel that were played."""
    comparison: Comparison
    rows: Mapping[str, Mapping[str, float]]
    """Trader -> named numbers."""
    equity: Mapping[str, Float[Tensor, "D1"]]
    """Trader -> equity at the start and at each close. That of `random` is the median trader's."""
    chance: Float[Tensor, "R"]
    """Total return of each random trader."""
    benchmark: str
    """Trader against whose equity alpha and beta are measured."""
    exposure: Float[np.ndarray, "D"]
    """Part of the champion's equity that is invested at each close; shares sold short count as well."""
    turnover: Float[np.ndarray, "D"]
    """Value that the champion buys and sells on each day, as part of its equity."""
    trades: pl.DataFrame
    """The champion's trades, in their order."""
    scores: ScoreAnalysis
    """Whether the champion's scores order the instruments as their later returns do."""

    @property
    def returns(self) -> dict[str, float | None]:
        """Trader -> total return."""
        return {name: row["total_return"] for name, row in self.rows.items()}

    @property
    def oracle_share(self) -> float | None:
        """The champion's return over the oracle's; None without an oracle whose return is above 0."""
        return oracle_share(self.returns)

    @property
    def verdict(self) -> str:
        """Sentences that state the result of the numbers."""
        return f"{self.comparison.sentence} {oracle_sentence(self.returns)}".rstrip()
