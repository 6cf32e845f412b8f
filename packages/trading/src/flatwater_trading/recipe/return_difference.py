"""The mean difference of two traders' returns, with a confidence interval.

The interval shows whether there are enough periods (days, weeks, months) to distinguish the two. Neighbouring periods
are not independent, so the variance of the mean is measured by slow cosine waves (Lazarus, Lewis, Stock and Watson
2018; ADR 50 says what share of the intervals holds the truth).
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from torch import Tensor

from flatwater.metrics.short_numbers import nonzero_percent

MINIMUM_PERIODS = 20
"""Fewest periods that have an interval."""
INTERVAL_COVERAGE = 0.9
"""Coverage of the interval."""
WAVE_FACTOR = 0.4
"""Number of waves for the interval's variance, as a multiple of the number of periods to the power of 2/3."""
ROUNDING = 1e-9
"""Difference of two returns below which they count as equal."""
OTHER_MARKET_NOTE = "Buy and hold earned another return in each: their instruments, prices or costs differ."
"""Sentence on two results between which `is_same_market` is false."""


@dataclass(frozen=True)
class ReturnDifference:
    """The mean of the differences of two traders' returns, in a year."""

    mean: float
    """Mean of the differences, times the periods of a year."""
    low: float
    high: float
    """Upper end of the mean's interval; `low` is the lower end."""

    def comparison_phrase(self, other: str) -> str:
        """Return words that follow the first trader's name: `earned more than HELD (3 % a year, 90 % interval ...)`.

        Args:
            other: name of the trader that it is compared with.
        """
        # Only equal returns in every period have an interval without width.
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


def period_returns(equity: Float[Tensor, " D1"] | np.ndarray) -> np.ndarray:
    """Return the change of each period, as a fraction; NaN or infinite after a period without equity."""
    curve = equity.double().cpu().numpy() if isinstance(equity, Tensor) else equity
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.diff(curve) / curve[:-1])


def estimate_difference(own_returns: np.ndarray, other_returns: np.ndarray, *, a_year: int) -> ReturnDifference:
    """Estimate the difference of two traders' returns in a year, with its interval.

    With fewer than `MINIMUM_PERIODS` periods the interval reaches over all their differences and 0: it shows nothing.

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
        half_width = interval_half_width(differences)
        low, high = mean - half_width, mean + half_width
    # Not compounded: a mean of differences is not a return that could be reinvested.
    return ReturnDifference(mean * a_year, float(low) * a_year, float(high) * a_year)


def is_same_market(returns: np.ndarray, other_returns: np.ndarray) -> bool:
    """Return whether two results have the same instruments, prices and costs: buy and hold earned the same in both.

    Equal weight would not show it: an account of target weights trades equal weight by its own limits, and sells an
    instrument that has ended later.

    Args:
        returns: returns of buy and hold in each period of one result; NaN where it has no equity.
        other_returns: returns of buy and hold in the same periods of the other result.
    """
    return bool(np.allclose(returns, other_returns, rtol=0, atol=ROUNDING, equal_nan=True))


def interval_half_width(values: np.ndarray) -> float:
    """Return half the width of the mean's confidence interval, by the equal-weighted cosine estimator.

    The values may depend on their neighbours. Each projection of them on a slow cosine, squared and doubled, is an
    estimate of the variance of their sum; the estimates are equally good, and independent of each other and of the
    mean. So (mean - true mean) / deviation has Student's t distribution with `waves` degrees of freedom (Lazarus,
    Lewis, Stock and Watson 2018, `HAR inference`).
    """
    count = len(values)
    waves = int(WAVE_FACTOR * count ** (2 / 3))
    # [waves, count]: wave w has w half turns over all values, and is read in the middle of each period.
    phases = np.pi * np.arange(1, waves + 1)[:, None] * (np.arange(count) + 0.5) / count
    # Times 2, as the mean of a squared cosine is 1/2.
    variance_of_sum = 2 * ((np.cos(phases) @ values) ** 2).mean()
    return float(student_quantile((1 + INTERVAL_COVERAGE) / 2, waves) * np.sqrt(variance_of_sum) / count)


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution with `freedom` degrees of freedom.

    By its expansion around the quantile of the normal distribution (Abramowitz & Stegun 26.7.5), exact to 1.5 % from 2
    degrees of freedom on.
    """
    z = NormalDist().inv_cdf(probability)
    # Term number k is divided by `freedom` to the power of k.
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum((term / freedom**power for power, term in enumerate(terms)), 0.0)
