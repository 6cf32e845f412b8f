"""Comparison of a champion with the best yardstick (a simple rule, such as buy and hold) and with chance.

The interval of the mean difference in the returns of each period (day, week, month) shows whether there are enough
periods to distinguish the two. Neighbouring periods are not independent, so its variance is measured by slow cosine
waves (Lazarus, Lewis, Stock and Watson 2018; ADR 50 says what share of the intervals holds the truth). Chance is a
trader that buys random instruments on the champion's days of purchases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from torch import Tensor

from flatwater.metrics.figures import nonzero_percent
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.score_analysis import ScoreAnalysis

MINIMUM_PERIODS = 20
"""Fewest periods that have an interval."""
RANDOM_TRADERS = 100
"""Random traders that are played, with the champion's turnover; their median is reported."""
INTERVAL_COVERAGE = 0.9
"""Coverage of the interval."""
WAVE_FACTOR = 0.4
"""Number of waves for the interval's variance, as a multiple of the number of periods to the power of 2/3."""
CHAMPION, CHANCE, ORACLE = "champion", "random", "oracle"
"""Names of the traders that are not simple rules. The oracle knows the law of a synthetic market."""
MARKET = "equal weight"
"""The trader against which alpha and beta are measured where there is no benchmark: all instruments in equal parts."""
ROUNDING = 1e-9
"""Difference of two returns below which they count as equal."""
SURE_SHARE = 0.95
"""Share of the random traders that a champion must beat, or chance explains the result; if this share of them earned
more, the result is worse than chance.
"""


@dataclass(frozen=True)
class ReturnDifference:
    """The mean of the differences of two traders' returns, in a year."""

    mean: float
    """Mean of the differences, times the periods of a year."""
    low: float
    high: float
    """Upper end of the mean's interval; `low` is the lower end."""

    def describe_against(self, other: str) -> str:
        """Return the predicate of a sentence about the first trader: whether it earned more or less than `other`."""
        if self.low == self.high == 0:
            return f"earned the same as {other}"
        if self.low > 0:
            verdict = f"earned more than {other}"
        elif self.high < 0:
            verdict = f"earned less than {other}"
        else:
            verdict = f"is not distinguishable from {other}"
        mean, low, high = map(nonzero_percent, (self.mean, self.low, self.high))
        return f"{verdict} ({mean} a year, {INTERVAL_COVERAGE:.0%} interval {low} to {high})"


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
        """Sentence that states the result of the numbers."""
        comparison = ReturnDifference(self.difference, self.low, self.high).describe_against(
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
    """Return the traders that a champion has to beat."""
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
        trained_player: name of the champion.
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


def period_returns(equity: Float[Tensor, " D1"]) -> np.ndarray:
    """Return the change of each period, as a fraction."""
    curve = equity.double().cpu().numpy()
    return np.asarray(np.diff(curve) / curve[:-1])


def estimate_difference(own_returns: np.ndarray, other_returns: np.ndarray, *, a_year: int) -> ReturnDifference:
    """Estimate the difference of two traders' returns in a year, with its interval.

    Fewer than `MINIMUM_PERIODS` show nothing: their interval is from the least to the largest difference, with 0.

    Args:
        own_returns: returns of each period.
        other_returns: returns of another trader in the same periods.
        a_year: number of periods in a year.
    """
    # Differences period by period: the market, which both have in common, cancels.
    differences = own_returns - other_returns
    # Equal trades that are summed in another order differ by rounding, which could give an interval without 0.
    if np.abs(differences).max(initial=0) <= ROUNDING:
        differences = np.zeros_like(differences)
    mean = float(differences.mean())
    if len(differences) < MINIMUM_PERIODS:
        low, high = differences.min(initial=0), differences.max(initial=0)
    else:
        half = interval_half_width(differences)
        low, high = mean - half, mean + half
    # Not compounded: a mean of differences is not a return that could be reinvested.
    return ReturnDifference(mean * a_year, float(low) * a_year, float(high) * a_year)


def interval_half_width(values: np.ndarray) -> float:
    """Return half the width of the mean's confidence interval, by the equal-weighted cosine estimator.

    The squared sums of the values along slow waves are estimates of the mean's variance, one as good as another, and
    independent of each other and of the mean. So (mean - true mean) / deviation has Student's t distribution with
    `waves` degrees of freedom, also for few or dependent values.
    """
    count = len(values)
    waves = int(WAVE_FACTOR * count ** (2 / 3))
    phases = np.pi * np.arange(1, waves + 1)[:, None] * (np.arange(count) + 0.5) / count
    variance_of_sum = 2 * ((np.cos(phases) @ values) ** 2).mean()
    return float(student_quantile((1 + INTERVAL_COVERAGE) / 2, waves) * np.sqrt(variance_of_sum) / count)


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t, by its expansion around the normal one (Abramowitz & Stegun 26.7.5).

    It is exact to 1.5 % from 2 degrees of freedom on.
    """
    z = NormalDist().inv_cdf(probability)
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum((term / freedom**power for power, term in enumerate(terms)), 0.0)


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
