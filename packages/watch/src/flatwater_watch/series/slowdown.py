"""Tests of whether the steps of a phase take ever more time.

CPU time is far noisier than bytes: a machine's own speed changes by a fifth from second to second, and by half while
others work on it. So nothing short is judged: the mean cost of a step over equal stretches, from the beginning or from
the middle on, must rise throughout and nearly double. All functions here are pure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from flatwater_watch.medians import median
from flatwater_watch.series.slope import (
    Series,
    line_residuals,
    median_residuals,
    most_rise,
    robust_slope,
    thin_evenly,
)
from flatwater_watch.thresholds import SHIPPED

DRIFT, SLOWER = SHIPPED.drift, SHIPPED.slower


class Slowdown(NamedTuple):
    """Mean CPU seconds per step, before and now."""

    before: float
    """Mean over the first stretch of the window."""
    now: float
    """Mean over the last stretch of the window."""


def find_slowdown(costs: Series) -> Slowdown | None:
    """The rise of a step's cost, if it is large and goes on; else None.

    Args:
        costs: at each reading, the mean CPU seconds per step since the reading before.
    """
    steps, values = costs.steps, costs.values
    if len(steps) <= SLOWER.minimum_readings:
        return None
    middle = bisect_left(steps, (steps[0] + steps[-1]) / 2)
    windows = [
        begin
        for begin in (max(1, len(steps) // SLOWER.warm_up_divisor), middle)
        if len(steps) - begin >= SLOWER.minimum_readings
    ]
    rises = (_slowdown_in_window(steps[begin:], values[begin:]) for begin in windows)
    return next((slower for slower in rises if slower is not None), None)


def _slowdown_in_window(steps: Sequence[float], costs: Sequence[float]) -> Slowdown | None:
    """The rise of a step's cost over these readings, if it is large, goes on, and is not a single jump; else None."""
    means = _mean_costs(steps, costs)
    early_rise = means[DRIFT.blocks // 2] - means[0]
    late_rise = means[-1] - means[DRIFT.blocks // 2]
    if (
        means[-1] < (1 + SLOWER.minimum_rise) * means[0]
        or late_rise < SLOWER.minimum_late_rise_share * early_rise
        or not most_rise(means)
    ):
        return None
    steps, costs = thin_evenly(steps, DRIFT.judged_points), thin_evenly(costs, DRIFT.judged_points)
    slope = robust_slope(steps, costs, DRIFT.confidence)
    residuals = line_residuals(steps, costs, slope)
    if slope.low <= 0 or slope.per_step * slope.span < DRIFT.minimum_rise_deviations * median(residuals):
        return None
    # A line must fit about as well as the best single jump: another program's start makes a jump.
    jumps = (sum(median_residuals(costs[:i])) + sum(median_residuals(costs[i:])) for i in range(2, len(costs) - 1))
    return Slowdown(means[0], means[-1]) if sum(residuals) <= SLOWER.maximum_line_misfit * min(jumps) else None


def _mean_costs(steps: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Mean cost of a step over equal stretches, as readings are not equally far apart."""
    spent = [
        0.0,
        *accumulate(cost * (to - since) for cost, (since, to) in zip(costs[1:], pairwise(steps), strict=True)),
    ]

    def until(step: float) -> float:
        """CPU seconds spent up to a step."""
        index = max(1, bisect_left(steps, step))
        return spent[index] - costs[index] * (steps[index] - step)  # a cost is the mean since the reading before

    length = (steps[-1] - steps[0]) / DRIFT.blocks
    sums = [until(steps[0] + i * length) for i in range(DRIFT.blocks)] + [spent[-1]]
    return [(to - since) / length for since, to in pairwise(sums)]
