"""Comparison of a champion with the best yardstick (a simple rule, such as buy and hold) and with chance.

The interval of the mean difference in their returns shows whether there are enough periods to distinguish the two
(`return_difference`). Chance is a trader that buys random instruments on the champion's days of purchases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.return_difference import ROUNDING, ReturnDifference, estimate_difference, period_returns
from flatwater_trading.recipe.score_analysis import ScoreAnalysis

RANDOM_TRADERS = 100
"""Random traders that are played, with the champion's turnover; their median is reported."""
CHAMPION, CHANCE, ORACLE = "champion", "random", "oracle"
"""Names of the traders that are not simple rules. The oracle knows the law of a synthetic market."""
MARKET = "equal weight"
"""The trader against which alpha and beta are measured where there is no benchmark: all instruments in equal parts."""
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
        against_chance = "it is worse than chance" if self.beaten <= 1 - SURE_SHARE else "chance explains it as well"
        return f"The champion {comparison}; {against_chance}: {share}."


def oracle_share(returns: Mapping[str, float | None]) -> float | None:
    """Return the champion's return over the oracle's; None without an oracle whose return is above 0."""
    champion_return, oracle_return = returns[CHAMPION], returns.get(ORACLE)
    return (
        None
        if champion_return is None or oracle_return is None or oracle_return <= 0
        else champion_return / oracle_return
    )


def oracle_sentence(returns: Mapping[str, float | None]) -> str:
    """Return a sentence that compares the champion's return with the oracle's; empty without an oracle."""
    share = oracle_share(returns)
    oracle_return = returns.get(ORACLE)
    return (
        ""
        if share is None
        else f"It earned {share:.0%} of what the law of this market allows ({oracle_return:+.1%}, the oracle)."
    )


def simple_rules(traders: Iterable[str]) -> tuple[str, ...]:
    """Return the traders that are simple rules, which a champion has to beat."""
    return tuple(name for name in traders if name not in {CHAMPION, CHANCE, ORACLE})


def compare_to_yardsticks(
    equity: Mapping[str, Float[Tensor, " D1"]],
    chance: Float[Tensor, " R"],
    *,
    trained_player: str,
    yardsticks: tuple[str, ...],
    a_year: int,
) -> Comparison:
    """Compare the champion's equity with the simple rule (yardstick) that earned most, and with random traders.

    Args:
        equity: trader -> equity at the start and after each period.
        chance: total returns of the random traders.
        trained_player: name of the champion in `equity`.
        yardsticks: names of the simple rules.
        a_year: number of periods in a year.
    """
    returns = {name: float(curve[-1] / curve[0] - 1) for name, curve in equity.items()}
    # Picked with hindsight on the same days, the best is a harder opponent than a rule that is named in advance.
    best_rule = max(yardsticks, key=lambda name: returns[name])
    difference = estimate_difference(
        period_returns(equity[trained_player]), period_returns(equity[best_rule]), a_year=a_year
    )
    return Comparison(
        best=best_rule,
        difference=difference.mean,
        low=difference.low,
        high=difference.high,
        beaten=beaten_share(returns[trained_player], chance),
    )


def beaten_share(own_return: float, chance: Float[Tensor, " R"]) -> float:
    """Return the share of random traders that earned less than `own_return`; those that earned the same count half."""
    # Half, so that the share is 50 % where random traders make the same trades as the champion.
    lead = own_return - chance
    return float((lead > ROUNDING).float().mean() + (lead.abs() <= ROUNDING).float().mean() / 2)


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
