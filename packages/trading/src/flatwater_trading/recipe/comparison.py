"""Comparison of a champion with the best yardstick and with chance: what a result shows, and what it does not.

The difference of the returns of each period (day, week, month) is resampled in blocks, as neighbouring periods are not
independent (Politis and Romano 1994, the stationary bootstrap, by arch); its interval says whether the stretch of days
is long enough to tell the two apart. Chance is a trader who buys on the same days as the champion, whatever comes up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.panel.splits import Days

BLOCK = 20
"""Mean length of a block, in rows: as long as a position is held by default."""
RESAMPLED = 2_000
LIBRARY_BYTES = 140 << 20
"""Resident once arch is imported, which brings pandas, SciPy and statsmodels: 134 MB were measured."""
RANDOM_TRADERS = 100
"""Random traders that are played, with the champion's turnover; their median is reported."""
LEVEL = 0.9
"""Coverage of the interval."""
CHAMPION, CHANCE, ORACLE = "champion", "random", "oracle"
"""Names of the traders that are no simple rules. The oracle knows the law of a synthetic market."""
ROUNDING = 1e-9
"""Difference of two returns below which they are the same."""
SURE = 0.95
"""Share of the random traders that must be beaten, or chance explains the result as well; as large a share that earned
more makes it worse than chance.
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
        """Say what the interval shows of the first against the other: the rest of a sentence that names the first."""
        if self.low > 0:
            verdict = f"earned more than {other}"
        elif self.high < 0:
            verdict = f"earned less than {other}"
        else:
            verdict = f"is not distinguishable from {other}"
        return f"{verdict} ({self.mean:+z.0%} a year, {LEVEL:.0%} interval {self.low:+z.0%} to {self.high:+z.0%})"


@dataclass(frozen=True)
class Comparison:
    """The champion beside the best of the yardsticks."""

    best: str
    """The yardstick that earned most."""
    difference: float
    """Champion less yardstick, in a year, from the mean of the differences of their returns."""
    low: float
    high: float
    """Ends of the interval of that difference."""
    beaten: float
    """Share of the random traders with the same turnover that earned less than the champion."""

    @property
    def sentence(self) -> str:
        """Sentence that follows from the numbers."""
        against = ReturnDifference(self.difference, self.low, self.high).describe_against(
            f"{self.best}, the best of the simple rules"
        )
        share = f"{self.beaten:.0%} of the random traders with the same turnover earned less"
        if self.beaten >= SURE:
            return f"The champion {against}; {share}."
        against_chance = "it is worse than chance" if self.beaten <= 1 - SURE else "chance explains it as well"
        return f"The champion {against}; {against_chance}: {share}."


def oracle_share(returns: Mapping[str, float | None]) -> float | None:
    """Return the champion's return over the oracle's; None where there is no oracle, or nothing for it to earn."""
    champion_return, oracle_return = returns[CHAMPION], returns.get(ORACLE)
    return (
        None
        if champion_return is None or oracle_return is None or oracle_return <= 0
        else champion_return / oracle_return
    )


def beside_oracle(returns: Mapping[str, float | None]) -> str:
    """Say what follows for the champion from the oracle's return; empty where there is no oracle."""
    share, oracle_return = oracle_share(returns), returns.get(ORACLE)
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
    """Hold the champion's equity against the yardstick that earned most.

    Args:
        equity: trader -> equity at the start and after each period.
        chance: total return of each random trader.
        trained: the champion's name.
        yardsticks: names of the simple rules.
        a_year: periods of a year.
        seed: seed of the bootstrap.
    """
    returns = {name: float(curve[-1] / curve[0] - 1) for name, curve in equity.items()}
    # The best is picked with hindsight on the same days: a harder opponent than a rule named in advance.
    best = max(yardsticks, key=lambda name: returns[name])
    difference = bootstrap_difference(
        period_returns(equity[trained]), period_returns(equity[best]), a_year=a_year, seed=seed
    )
    lead = returns[trained] - chance
    # Who earned as much, to rounding, counts half: where nothing is left to chance, it neither wins nor loses.
    beaten = float((lead > ROUNDING).float().mean() + (lead.abs() <= ROUNDING).float().mean() / 2)
    return Comparison(best=best, difference=difference.mean, low=difference.low, high=difference.high, beaten=beaten)


def period_returns(equity: Float[Tensor, " D1"]) -> np.ndarray:
    """Return the change of each period, as a fraction."""
    curve = equity.double().cpu().numpy()
    return np.asarray(np.diff(curve) / curve[:-1])


def bootstrap_difference(own: np.ndarray, other: np.ndarray, *, a_year: int, seed: int) -> ReturnDifference:
    """Estimate how much more the first earned in a year, with the interval of the block bootstrap.

    Args:
        own: returns of each period.
        other: another one's returns in the same periods.
        a_year: periods of a year.
        seed: seed of the bootstrap.
    """
    from arch.bootstrap import StationaryBootstrap  # noqa: PLC0415  (3 CPU seconds, once a run)

    # Differences period by period: what both have in common, the market, drops out.
    differences = own - other
    # A generator of its own: whoever asks again gets the same interval.
    resampled = StationaryBootstrap(BLOCK, differences, seed=np.random.default_rng(seed))
    low, high = resampled.conf_int(np.mean, reps=RESAMPLED, method="percentile", size=LEVEL).ravel()
    # Times the periods of a year and not compounded: a mean of differences is no return that could be reinvested.
    return ReturnDifference(float(differences.mean()) * a_year, float(low) * a_year, float(high) * a_year)


@dataclass(frozen=True)
class PlayedDays:
    """The result of a stretch of days that a champion, random traders and simple rules have played."""

    days: Days
    """Rows of the panel that were played."""
    comparison: Comparison
    rows: Mapping[str, Mapping[str, float]]
    """Trader -> named numbers."""
    equity: Mapping[str, Float[Tensor, "D1"]]
    """Trader -> equity at the start and at each close. Random: the median trader's."""
    chance: Float[Tensor, "R"]
    """Total return of each random trader."""

    @property
    def returns(self) -> dict[str, float | None]:
        """Trader -> total return."""
        return {name: row["total_return"] for name, row in self.rows.items()}

    @property
    def oracle_share(self) -> float | None:
        """The champion's return over the oracle's; None where there is no oracle, or nothing for it to earn."""
        return oracle_share(self.returns)

    @property
    def verdict(self) -> str:
        """Sentences that follow from the numbers."""
        return f"{self.comparison.sentence} {beside_oracle(self.returns)}".rstrip()
