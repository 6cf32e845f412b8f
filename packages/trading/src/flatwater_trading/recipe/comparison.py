"""Comparison of a champion with the best yardstick and with chance.

The difference of the returns of each period (day, week, month) is resampled in blocks, as neighbouring periods are not
independent (Politis and Romano 1994, the stationary bootstrap); its interval shows whether there are enough days to
distinguish the two. Chance is a trader that buys random instruments on the champion's days of purchases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.score_analysis import ScoreAnalysis

BLOCK = 20
"""Mean length of a block, in rows: the default holding time of a position. Fewer rows than this have no interval of
resamples."""
MINIMUM_BLOCKS = 10
"""Fewest blocks of a resample: with one or two blocks it is the same rows in another order, and all means are equal."""
RESAMPLED = 2_000
"""Number of resamples."""
RANDOM_TRADERS = 100
"""Random traders that are played, with the champion's turnover; their median is reported."""
LEVEL = 0.9
"""Coverage of the interval."""
CHAMPION, CHANCE, ORACLE = "champion", "random", "oracle"
"""Names of the traders that are not simple rules. The oracle knows the law of a synthetic market."""
MARKET = "equal weight"
"""The trader against which alpha and beta are measured where there is no benchmark: all instruments in equal parts."""
ROUNDING = 1e-9
"""Difference of two returns below which they count as equal."""
SURE = 0.95
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
        return f"{verdict} ({self.mean:+z.0%} a year, {LEVEL:.0%} interval {self.low:+z.0%} to {self.high:+z.0%})"


@dataclass(frozen=True)
class Comparison:
    """The champion compared with the best of the yardsticks."""

    best: str
    """The yardstick that earned most."""
    difference: float
    """Champion less yardstick, in a year, from the mean of the differences of their returns."""
    low: float
    high: float
    """Upper end of the interval of `difference`; `low` is the lower end."""
    beaten: float
    """Share of the random traders with the same turnover that earned less than the champion."""

    @property
    def sentence(self) -> str:
        """Sentence that states the result of the numbers."""
        against = ReturnDifference(self.difference, self.low, self.high).describe_against(
            f"{self.best}, the best of the simple rules"
        )
        share = f"{self.beaten:.0%} of the random traders with the same turnover earned less"
        if self.beaten >= SURE:
            return f"The champion {against}; {share}."
        against_chance = "it is worse than chance" if self.beaten <= 1 - SURE else "chance explains it as well"
        return f"The champion {against}; {against_chance}: {share}."


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
    trained: str,
    yardsticks: tuple[str, ...],
    a_year: int,
    seed: int,
) -> Comparison:
    """Compare the champion's equity with the yardstick that earned most.

    Args:
        equity: trader -> equity at the start and after each period.
        chance: total returns of the random traders.
        trained: name of the champion.
        yardsticks: names of the simple rules.
        a_year: number of periods in a year.
        seed: seed of the bootstrap.
    """
    returns = {name: float(curve[-1] / curve[0] - 1) for name, curve in equity.items()}
    # Picked with hindsight on the same days, the best is a harder opponent than a rule that is named in advance.
    best = max(yardsticks, key=lambda name: returns[name])
    difference = bootstrap_difference(
        period_returns(equity[trained]), period_returns(equity[best]), a_year=a_year, seed=seed
    )
    return Comparison(
        best=best,
        difference=difference.mean,
        low=difference.low,
        high=difference.high,
        beaten=share_beaten(returns[trained], chance),
    )


def share_beaten(own: float, chance: Float[Tensor, " R"]) -> float:
    """Return the share of random traders that earned less than `own`; those that earned the same count half."""
    # Half, so that the share is 50 % where random traders make the same trades as the champion.
    lead = own - chance
    return float((lead > ROUNDING).float().mean() + (lead.abs() <= ROUNDING).float().mean() / 2)


def period_returns(equity: Float[Tensor, " D1"]) -> np.ndarray:
    """Return the change of each period, as a fraction."""
    curve = equity.double().cpu().numpy()
    return np.asarray(np.diff(curve) / curve[:-1])


def bootstrap_difference(own: np.ndarray, other: np.ndarray, *, a_year: int, seed: int) -> ReturnDifference:
    """Estimate the difference of two traders' returns in a year, with the interval of the block bootstrap.

    Fewer than `BLOCK` periods show nothing: their interval is from the least to the largest difference, with 0.

    Args:
        own: returns of each period.
        other: returns of another trader in the same periods.
        a_year: number of periods in a year.
        seed: seed of the bootstrap.
    """
    # Differences period by period: the market, which both have in common, cancels.
    differences = own - other
    # Equal trades that are summed in another order differ by rounding, which could give an interval without 0.
    if np.abs(differences).max(initial=0) <= ROUNDING:
        differences = np.zeros_like(differences)
    if len(differences) < BLOCK:
        low, high = differences.min(initial=0), differences.max(initial=0)
    else:
        # A separate generator, so that every call gives the same interval.
        block = min(BLOCK, len(differences) // MINIMUM_BLOCKS)
        means = resample_means(differences, block, np.random.default_rng(seed))
        tail = (1 - LEVEL) / 2
        low, high = np.percentile(means, [100 * tail, 100 * (1 - tail)])
    # Not compounded: a mean of differences is not a return that could be reinvested.
    return ReturnDifference(float(differences.mean()) * a_year, float(low) * a_year, float(high) * a_year)


def resample_means(values: np.ndarray, block: int, generator: np.random.Generator) -> np.ndarray:
    """Draw `RESAMPLED` resamples of the stationary bootstrap, each as long as `values`, and return their means.

    A resample consists of blocks of consecutive values; after the last value comes the first. Each block begins at a
    random value, and its length is drawn from the geometric distribution with the mean `block`.
    """
    count = len(values)
    places = np.arange(count)
    means = np.empty(RESAMPLED)
    for resample in range(RESAMPLED):
        # For each place of the resample: the value that a block takes first if it begins at that place.
        first_values = generator.integers(count, size=count)
        begins = generator.random(count) <= 1 / block
        begins[0] = True
        first_place = np.maximum.accumulate(np.where(begins, places, 0))
        means[resample] = values[(first_values[first_place] + places - first_place) % count].mean()
    return means


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
