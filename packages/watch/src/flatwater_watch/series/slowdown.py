"""Tests of whether the steps of a phase take ever more time.

CPU time is far noisier than bytes: the speed of a machine changes by a fifth from second to second, and by half while
other programs run. So no short stretch is judged: the mean cost of a step in equal stretches, from the beginning or
from the middle on, must rise throughout and nearly double. All functions here are pure.
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
    rises_in_most_blocks,
    robust_slope,
    thin_evenly,
)
from flatwater_watch.thresholds import DRIFT, SLOWER


class Slowdown(NamedTuple):
    """Mean CPU seconds per step, before and now."""

    before: float
    """Mean over the first stretch of the window."""
    now: float
    """Mean over the last stretch of the window."""


def find_slowdown(costs: Series) -> Slowdown | None:
    """Return the mean CPU seconds of a step before and now if they rise by much and go on rising; else None.

    All readings after the warm-up are judged; if these do not rise so, the recent half of the readings is.

    Args:
        costs: at each reading, the mean CPU seconds per step since the reading before.
    """
    steps, values = costs.steps, costs.values
    if len(steps) <= SLOWER.minimum_readings:
        return None
    middle = bisect_left(steps, (steps[0] + steps[-1]) / 2)
    warm_up_end = max(1, len(steps) // SLOWER.warm_up_divisor)
    # The longer window first, and only windows with enough readings.
    begins = [begin for begin in (warm_up_end, middle) if len(steps) - begin >= SLOWER.minimum_readings]
    slowdowns = (_slowdown_in_window(steps[begin:], values[begin:]) for begin in begins)
    return next((slowdown for slowdown in slowdowns if slowdown is not None), None)


def _slowdown_in_window(steps: Sequence[float], costs: Sequence[float]) -> Slowdown | None:
    """Return the mean CPU seconds of a step before and now; None unless they rise by much, to the end, without a jump.

    Args:
        steps: steps of the readings, ascending.
        costs: CPU seconds per step at each reading, as the mean since the reading before.
    """
    means = _mean_costs(steps, costs)
    middle_mean = means[DRIFT.blocks // 2]
    early_rise, late_rise = middle_mean - means[0], means[-1] - middle_mean
    is_large = means[-1] >= (1 + SLOWER.minimum_rise) * means[0]
    is_lasting = late_rise >= SLOWER.minimum_late_rise_share * early_rise
    if not (is_large and is_lasting and rises_in_most_blocks(means)):
        return None
    steps, costs = thin_evenly(steps, DRIFT.judged_points), thin_evenly(costs, DRIFT.judged_points)
    slope = robust_slope(steps, costs, DRIFT.confidence)
    residuals = line_residuals(steps, costs, slope)
    if slope.low <= 0 or slope.per_step * slope.span < DRIFT.minimum_rise_deviations * median(residuals):
        return None
    # When another program starts, the costs jump from one level to another. So a line must fit about as well as two
    # levels of at least two readings each, with the jump at the best place between them.
    jump_misfits = (
        sum(median_residuals(costs[:jump])) + sum(median_residuals(costs[jump:])) for jump in range(2, len(costs) - 1)
    )
    line_fits = sum(residuals) <= SLOWER.maximum_line_misfit * min(jump_misfits)
    return Slowdown(before=means[0], now=means[-1]) if line_fits else None


def _mean_costs(steps: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Return the mean CPU seconds per step in each of `DRIFT.blocks` stretches of equally many steps.

    Args:
        steps: steps of the readings, ascending.
        costs: CPU seconds per step at each reading, as the mean since the reading before.
    """
    seconds = (cost * (end - begin) for cost, (begin, end) in zip(costs[1:], pairwise(steps), strict=True))
    seconds_at_reading = [0.0, *accumulate(seconds)]

    def seconds_to_step(step: float) -> float:
        """Return the CPU seconds from the first reading to a step, interpolated between two readings."""
        next_reading = max(1, bisect_left(steps, step))
        return seconds_at_reading[next_reading] - costs[next_reading] * (steps[next_reading] - step)

    length = (steps[-1] - steps[0]) / DRIFT.blocks
    sums = [seconds_to_step(steps[0] + i * length) for i in range(DRIFT.blocks)] + [seconds_at_reading[-1]]
    return [(later - earlier) / length for earlier, later in pairwise(sums)]
