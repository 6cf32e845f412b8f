"""Statistics of a method over several seeds: mean, interquartile mean, and a bootstrap interval over seeds.

The formulas are those of rliable (Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the Statistical
Precipice): the interquartile mean leaves out the lowest and the highest quarter of the runs, rounded down; the interval
is the percentile interval of the means of runs that are resampled, with replacement, within each stratum. A group of
seeds in one environment is one stratum, so two groups are resampled each by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

INTERVAL_LEVEL = 0.95
"""Coverage of the interval."""
RESAMPLES = 10_000
"""Number of resamples of the runs: the ends then move by about a hundredth of the interval's width."""
CURVE_RESAMPLES = 1_000
"""Number of resamples for each point of a curve: a page has thousands of points, and more would not be seen."""
TRIMMED_SHARE = 0.25
"""Share of the runs that is left out at each end."""
MINIMUM_SEEDS = 2
"""Fewest seeds for which there is an interval."""


@dataclass(frozen=True)
class SeedStatistics:
    """Statistics of a number over seeds; `low` and `high` are the interval of the interquartile mean."""

    mean: float
    interquartile_mean: float
    low: float
    high: float


def interquartile_mean(values: Float[ndarray, "*R n"]) -> Float[ndarray, "*R"]:
    """Return the mean of the middle half of the last axis; with fewer than four values, the mean of all."""
    count = values.shape[-1]
    cut = int(TRIMMED_SHARE * count)
    middle: Float[ndarray, "*R"] = np.sort(values, axis=-1)[..., cut : count - cut].mean(-1)
    return middle


def seed_statistics(values: Sequence[float], *, resamples: int = RESAMPLES) -> SeedStatistics:
    """Return the statistics of a number over seeds; its interval is from `resamples` resamples."""
    array = np.asarray(values, np.float64)
    resampled_means = interquartile_mean(_resample(array, stratum=0, times=resamples))
    low, high = _percentile_interval(resampled_means)
    return SeedStatistics(
        mean=float(array.mean()), interquartile_mean=float(interquartile_mean(array)), low=low, high=high
    )


def seed_difference(values: Sequence[float], other_values: Sequence[float]) -> SeedStatistics:
    """Return the statistics of a difference between two groups of seeds, the first minus the other."""
    scores, other_scores = np.asarray(values, np.float64), np.asarray(other_values, np.float64)
    # The two groups are resampled independently, each as a stratum of its own.
    means = interquartile_mean(_resample(scores, stratum=0, times=RESAMPLES))
    other_means = interquartile_mean(_resample(other_scores, stratum=1, times=RESAMPLES))
    low, high = _percentile_interval(means - other_means)
    return SeedStatistics(
        mean=float(scores.mean() - other_scores.mean()),
        interquartile_mean=float(interquartile_mean(scores) - interquartile_mean(other_scores)),
        low=low,
        high=high,
    )


def _resample(values: Float[ndarray, "n"], stratum: int, times: int) -> Float[ndarray, "R n"]:
    """Return `times` resamples of `values`, each of as many values, drawn with replacement."""
    # The stratum's number is the seed: the same runs have the same interval each time, and two groups other draws.
    rng = np.random.default_rng(stratum)
    samples: Float[ndarray, "R n"] = values[rng.integers(len(values), size=(times, len(values)))]
    return samples


def _percentile_interval(means: Float[ndarray, "R"]) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - INTERVAL_LEVEL) / 2, (1 + INTERVAL_LEVEL) / 2])
    return float(low), float(high)
