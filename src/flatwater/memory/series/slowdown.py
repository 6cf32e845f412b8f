"""Whether the steps of a phase take ever more time. Pure.

CPU time is far noisier than bytes: a machine's own speed changes by a fifth from second to second, and by half while
others work on it. So nothing short is judged: the mean cost of a step over equal stretches, from the beginning or from
the middle on, must rise throughout and nearly double.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from flatwater.memory.series.slope import (
    BLOCKS,
    JUDGED,
    STANDS_OUT,
    SURE,
    Series,
    beside_level,
    beside_line,
    most_rise,
    robust_slope,
    thinned,
)

FEWEST = 10
"""Readings of the shortest window that is judged."""
BEGINNING = 10
"""The first of so many equal parts of the readings is left out: caches are cold."""
RISE = 0.8
"""Part of itself by which the cost of a step must rise: the rate then falls by 44 %. Less may be a machine on which
other processes began to work."""
STILL = 0.3
"""Part of the rise to the middle stretch that must follow after it: 0.5 for log t, 0 for a warm-up that has ended."""
AS_GOOD = 1.1
"""Times the deviations from one jump that those from a line may be: when another program begins to work, costs jump."""


@dataclass(frozen=True)
class Slowdown:
    """Mean CPU seconds per step."""

    before: float
    """Over the first stretch of the window."""
    now: float
    """Over the last."""


def slowdown(costs: Series) -> Slowdown | None:
    """How far a step's cost has risen and rises still; None where it does not.

    Args:
        costs: the mean CPU seconds per step since the reading before, at each reading.
    """
    steps, values = costs.steps, costs.values
    if len(steps) <= FEWEST:
        return None
    middle = bisect_left(steps, (steps[0] + steps[-1]) / 2)
    windows = [first for first in (max(1, len(steps) // BEGINNING), middle) if len(steps) - first >= FEWEST]
    found = (_within(steps[first:], values[first:]) for first in windows)
    return next((slower for slower in found if slower is not None), None)


def _within(steps: Sequence[float], costs: Sequence[float]) -> Slowdown | None:
    means = _stretches(steps, costs)
    early, late = means[BLOCKS // 2] - means[0], means[-1] - means[BLOCKS // 2]
    if means[-1] < (1 + RISE) * means[0] or late < STILL * early or not most_rise(means):
        return None
    steps, costs = thinned(steps, JUDGED), thinned(costs, JUDGED)
    slope = robust_slope(steps, costs, SURE)
    beside = beside_line(steps, costs, slope)
    if slope.low <= 0 or slope.per_step * slope.span < STANDS_OUT * median(beside):
        return None
    jumps = (sum(beside_level(costs[:at])) + sum(beside_level(costs[at:])) for at in range(2, len(costs) - 1))
    return Slowdown(means[0], means[-1]) if sum(beside) <= AS_GOOD * min(jumps) else None


def _stretches(steps: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Mean cost of a step over equal stretches: readings are closer together at some times than at others."""
    spent = [
        0.0,
        *accumulate(cost * (to - since) for cost, (since, to) in zip(costs[1:], pairwise(steps), strict=True)),
    ]

    def until(step: float) -> float:
        at = max(1, bisect_left(steps, step))
        return spent[at] - costs[at] * (steps[at] - step)

    length = (steps[-1] - steps[0]) / BLOCKS
    sums = [until(steps[0] + i * length) for i in range(BLOCKS)] + [spent[-1]]
    return [(to - since) / length for since, to in pairwise(sums)]
