"""The deflated Sharpe ratio: the certainty of a Sharpe ratio that may be the best of many tries.

Bailey and López de Prado 2014, "The Deflated Sharpe Ratio: Correcting for Selection Bias, Backtest Overfitting, and
Non-Normality", Journal of Portfolio Management 40(5), 94-107. With SR the Sharpe ratio of one period (day, week,
month), T the periods, g3 and g4 skewness and kurtosis of their returns, N the tries, V the variance of their Sharpe
ratios, e Euler's number and c the Euler-Mascheroni constant:

    SR0 = sqrt(V) ((1 - c) Z^-1(1 - 1 / N) + c Z^-1(1 - 1 / (N e)))
    DSR = Z((SR - SR0) sqrt(T - 1) / sqrt(1 - g3 SR + (g4 - 1) / 4 SR^2))

V is not measured here, as only champions are tested: it is taken as 1 / (T - 1), that of the Sharpe ratios of traders
without skill who have nothing in common (Lo 2002). Tries that resemble each other vary less, so this errs on the side
of caution.
"""

from dataclasses import dataclass
from math import e, sqrt
from statistics import NormalDist

import numpy as np

EULER_MASCHERONI = 0.5772156649015329
ROUNDING_DEVIATION = 1e-12
"""Deviation of returns below which it counts as rounding."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class DeflatedSharpe:
    """A Sharpe ratio, and the highest that chance would give among as many tries."""

    sharpe: float
    """Sharpe ratio of one period."""
    by_chance: float
    """Expected maximum Sharpe ratio per period over this many trials without skill."""
    probability: float
    """Probability that the true Sharpe ratio is above 0 in spite of the selection: the deflated Sharpe ratio."""


def deflated_sharpe(returns: np.ndarray, tries: int) -> DeflatedSharpe:
    """Compute the deflated Sharpe ratio of the returns of periods of equal length; nothing is scaled to a year.

    Args:
        returns: returns of each period, or differences of returns. If they do not vary, the probability is 0.5.
        tries: number of tries of which this may be the best, 1 or more.
    """
    periods = len(returns)
    deviation = float(returns.std(ddof=1)) if periods > 1 else 0.0
    if deviation <= ROUNDING_DEVIATION:
        return DeflatedSharpe(sharpe=0.0, by_chance=0.0, probability=0.5)
    sharpe = float(returns.mean()) / deviation
    # SR0 with V = 1 / (T - 1), the variance of a Sharpe ratio without skill.
    chance_sharpe = expected_highest_draw(tries) / sqrt(periods - 1)
    # Moments of the population, divided by T, for which g4 >= 1 + g3^2: `sharpe_probability` relies on it.
    standardised_returns = (returns - returns.mean()) / returns.std()
    skewness = float((standardised_returns**3).mean())
    kurtosis = float((standardised_returns**4).mean())
    probability = sharpe_probability(sharpe, chance_sharpe, periods=periods, skewness=skewness, kurtosis=kurtosis)
    return DeflatedSharpe(sharpe, chance_sharpe, probability)


def sharpe_probability(sharpe: float, chance_sharpe: float, *, periods: int, skewness: float, kurtosis: float) -> float:
    """Return the probability that the true Sharpe ratio is above `chance_sharpe`: the module's Z(...).

    Args:
        sharpe: measured Sharpe ratio of one period.
        chance_sharpe: expected highest Sharpe ratio without skill, of one period; SR0.
        periods: number of periods that were measured.
        skewness: skewness of the returns.
        kurtosis: kurtosis of the returns; 3 for a normal distribution.
    """
    # The radicand is at least (1 - g3 SR / 2)^2, as g4 >= 1 + g3^2 of skewness g3 and kurtosis g4. That can be 0, and
    # rounding can put it below 0.
    width = sqrt(max(1 - skewness * sharpe + (kurtosis - 1) / 4 * sharpe**2, ROUNDING_DEVIATION))
    return _NORMAL.cdf((sharpe - chance_sharpe) * sqrt(periods - 1) / width)


def expected_highest_draw(tries: int) -> float:
    """Approximate the expected highest of `tries` draws from the standard normal distribution; 0 for one draw."""
    # For one draw the formula would take the quantile of 0, which is minus infinity.
    if tries == 1:
        return 0.0
    # The highest of many draws follows a Gumbel distribution, whose mean brings in the Euler-Mascheroni constant.
    lower_quantile, upper_quantile = _NORMAL.inv_cdf(1 - 1 / tries), _NORMAL.inv_cdf(1 - 1 / (tries * e))
    return (1 - EULER_MASCHERONI) * lower_quantile + EULER_MASCHERONI * upper_quantile
