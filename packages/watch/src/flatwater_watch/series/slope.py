"""Tests of whether a series rises or falls for good: a robust slope with its interval, and four conditions on it.

Warm-up is recognised, not configured: only the recent half of a series is judged, and a rise that slows down within it
is left alone. A leak and a buffer that fills rise in a straight line.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from flatwater_watch.heap.raw import count_values
from flatwater_watch.medians import median, median_low, normal_deviations
from flatwater_watch.thresholds import DRIFT, FILLING

MAXIMUM_POINTS = 200
"""Maximum points of a series, which is thinned beyond: a slope takes time with the square of the points."""


class Slope(NamedTuple):
    """Change per step, with bounds at 95 % confidence unless another one is given."""

    per_step: float
    low: float
    """Lower bound of the slope."""
    high: float
    """Upper bound of the slope."""
    span: float = 0.0
    """Number of steps over which it was measured."""

    def unexplained_part(self, rate: float) -> "Slope":
        """Return the slope of what is left beside a rate that is explained; its lower bound is 0 or more."""
        return Slope(per_step=self.per_step - rate, low=max(0.0, self.low - rate), high=self.high - rate)


@dataclass(eq=False, repr=False)
class Series:
    """Readings of one number over time; the older half is thinned when there are more than `MAXIMUM_POINTS`."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, step: float, value: float) -> None:
        """Append a reading, and thin the older half if there are too many; `step` must be later than the last step."""
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > MAXIMUM_POINTS:
            # In place, and every second point, so that the series still reaches back to its beginning.
            del self.steps[1 : MAXIMUM_POINTS // 2 : 2]
            del self.values[1 : MAXIMUM_POINTS // 2 : 2]


def robust_slope(steps: Sequence[float], values: Sequence[float], confidence: float = 0.95) -> Slope:
    """Return the median of the slopes of all pairs of points (Theil 1950), with the rank interval of Sen (1968).

    Outliers in up to 29 % of the points do not move the median far. The bounds are the slopes whose ranks lie z·s/2
    below and above the middle, where z is the normal deviation at the confidence, and s the standard deviation of
    Kendall's statistic, corrected for tied values.
    """
    steps, values = thin_evenly(steps), thin_evenly(values)
    n = len(steps)
    slopes = sorted(
        (values[j] - values[i]) / (steps[j] - steps[i])
        for i in range(n)
        for j in range(i + 1, n)
        if steps[i] != steps[j]
    )
    tie_variance = sum(_kendall_variance(k) for series in (steps, values) for k in _tie_counts(series))
    deviation = sqrt(max(0, _kendall_variance(n) - tie_variance) / 18)
    interval_ranks = normal_deviations(confidence) * deviation  # z·s
    # Sen's ranks of N slopes are (N - z·s) / 2 and (N + z·s) / 2 + 1. They begin at 1, and indexes at 0.
    low_index = max(0, round((len(slopes) - interval_ranks) / 2) - 1)
    high_index = min(len(slopes) - 1, round((len(slopes) + interval_ranks) / 2))
    return Slope(per_step=median(slopes), low=slopes[low_index], high=slopes[high_index], span=steps[-1] - steps[0])


def drift_slope(
    steps: Sequence[float],
    values: Sequence[float],
    *,
    minimum: float,
    fewest: int = DRIFT.minimum_points,
    confidence: float = 0.95,
) -> Slope | None:
    """Return the slope of the recent part of a series if it drifts (rises for good), None if it does not.

    The recent part is the second half of the steps; if that does not drift, the last points of a long series are tried.
    A part drifts if the lower bound of its slope is positive, and if it rises by `minimum`, in most of five equal
    blocks, and without slowing down.

    Args:
        steps: steps at which the values were read, ascending.
        values: values, one for each step.
        minimum: minimum rise within the recent part.
        fewest: minimum number of points of the recent part.
        confidence: confidence at which the slope must be positive.
    """
    if len(steps) < fewest:
        return None
    half_index = min(bisect_left(steps, (steps[0] + steps[-1]) / 2), len(steps) - fewest)
    slope = _window_slope(steps[half_index:], values[half_index:], minimum, confidence)
    # The last points are tried only if they are fewer than the half: else they say nothing new.
    late_begin = len(steps) - max(DRIFT.late_window_points, fewest)
    if slope is not None or late_begin <= half_index:
        return slope
    # A late rise must stand out from all of the recent half: twelve points of mere noise often make a line.
    noise = DRIFT.minimum_rise_deviations * median(median_residuals(values[half_index:]))
    return _window_slope(steps[late_begin:], values[late_begin:], max(minimum, noise), confidence)


def _window_slope(steps: Sequence[float], values: Sequence[float], minimum: float, confidence: float) -> Slope | None:
    """Return the slope of a part of a series; None unless it rises all along, beyond noise, and without slowing down.

    Args:
        steps: steps of the part, ascending.
        values: values, one for each step.
        minimum: minimum rise from the first step to the last.
        confidence: confidence at which the slope must be positive.
    """
    steps, values = thin_evenly(steps, DRIFT.judged_points), thin_evenly(values, DRIFT.judged_points)
    if not _rises_throughout(values, minimum):  # the cheap condition first
        return None
    slope = robust_slope(steps, values, confidence)
    noise = DRIFT.minimum_rise_deviations * median(line_residuals(steps, values, slope))
    rise = slope.per_step * slope.span
    is_material = rise >= max(minimum, noise)
    return slope if slope.low > 0 and is_material and _does_not_slow_down(steps, values) else None


def filling_slope(
    steps: Sequence[float], values: Sequence[float], *, latest_step: float, minimum: float
) -> Slope | None:
    """Return the rate at which a buffer of a known size is being filled; None if it does not fill, or has stopped.

    Since the bytes last fell, there must be enough rises in each half of the steps, which together have the minimum, do
    not fade, and do not end with a pause much longer than the earlier ones. That is less proof than for growth without
    a known cause: the touched bytes of a buffer have no noise, as they rise when the program writes to a new page, and
    stay. But they rise in jumps of a huge page (2 MiB) or several, so that few readings make no line.

    Args:
        steps: steps at which the bytes were read, ascending; those without a rise may be left out.
        values: touched bytes, one for each step.
        latest_step: step of the latest reading, at or after the last of these steps.
        minimum: half of the bytes by which the buffer must rise in all.

    Returns:
        Bytes per step, with bounds of one jump less and one jump more over the whole span.
    """
    if len(values) < FILLING.minimum_readings or values[-1] - min(values) < 2 * minimum:  # the cheap condition first
        return None
    last_fall = max((i for i in range(1, len(values)) if values[i] < values[i - 1]), default=0)
    # Indexes of the readings at which the bytes have risen since they last fell.
    rise_indexes = [i for i in range(last_fall + 1, len(values)) if values[i] > values[i - 1]]
    if not rise_indexes:
        return None
    begin = rise_indexes[0] - 1  # the reading before the first rise
    middle_step = (steps[begin] + latest_step) / 2
    early_indexes = [i for i in rise_indexes if steps[i] <= middle_step]
    late_count = len(rise_indexes) - len(early_indexes)
    if len(values) - begin < FILLING.minimum_readings or min(len(early_indexes), late_count) < FILLING.minimum_rises:
        return None
    span = latest_step - steps[begin]
    rise = values[-1] - values[begin]
    early_rise = values[early_indexes[-1]] - values[begin]
    longest_pause = max(steps[later] - steps[earlier] for earlier, later in pairwise([begin, *rise_indexes]))
    is_small = rise < 2 * minimum
    fades = rise - early_rise < FILLING.minimum_late_rise_share * early_rise
    has_stopped = latest_step - steps[rise_indexes[-1]] > FILLING.maximum_pause_ratio * longest_pause
    if is_small or fades or has_stopped:
        return None
    largest_jump = max(values[i] - values[i - 1] for i in rise_indexes)
    low, high = (rise - largest_jump) / span, (rise + largest_jump) / span
    return Slope(per_step=rise / span, low=low, high=high, span=span)


def jump_points(steps: Sequence[float], values: Sequence[float], minimum: float) -> tuple[list[float], list[float]]:
    """Return the steps and the values of a series at its jumps, which are changes by a part of `minimum` or more.

    Memory that grows once an epoch, and is read at every update, rises in jumps: most neighbours are equal, and the
    slopes between them say nothing. One point for each jump makes a line again.

    Args:
        steps: steps at which the values were read, ascending.
        values: values, one for each step.
        minimum: minimum rise that counts as growth; a jump has at least `DRIFT.jump_share` of it.
    """
    jump_indexes = [0] if values else []
    for i in range(1, len(values)):
        if abs(values[i] - values[jump_indexes[-1]]) >= DRIFT.jump_share * minimum:
            jump_indexes.append(i)
    longest_pause = max((steps[later] - steps[earlier] for earlier, later in pairwise(jump_indexes)), default=0)
    # If the level part at the end is the longest, growth may have stopped: then the last point counts too.
    if jump_indexes and steps[-1] - steps[jump_indexes[-1]] > longest_pause:
        jump_indexes.append(len(values) - 1)
    return [steps[i] for i in jump_indexes], [values[i] for i in jump_indexes]


def has_recent_rise(values: Sequence[float], minimum: float) -> bool:
    """Return whether a series may be rising: a cheap test before `drift_slope`.

    The last few values, or as few spread over the recent half, must rise by half of `minimum`, the rise that
    `drift_slope` wants of more values. They must also rise by several times the usual difference of neighbours, which
    noise rarely does.
    """
    n = len(values)
    if n < DRIFT.minimum_points:
        return False
    windows = [values[-DRIFT.minimum_points :]]
    if n > 2 * DRIFT.minimum_points:
        windows.append(thin_evenly(values[n // 2 :], DRIFT.minimum_points))
    rising_windows = [window for window in windows if window[-1] - window[0] >= minimum / 2 and _is_rising(window)]
    if not rising_windows:
        return False
    usual_difference = median(abs(later - earlier) for earlier, later in pairwise(values))
    return any(window[-1] - window[0] >= DRIFT.minimum_rise_noise * usual_difference for window in rising_windows)


def thin_evenly(series: Sequence[float], maximum: int = MAXIMUM_POINTS) -> Sequence[float]:
    """Return the values of a series, thinned evenly to at most `maximum`, the first and the last included."""
    n = len(series)
    return series if n <= maximum else [series[i * (n - 1) // (maximum - 1)] for i in range(maximum)]


def _is_rising(values: Sequence[float]) -> bool:
    """Return whether the values rise: of all pairs of values, with one exception at most, the later is the larger."""
    rises = [values[j] > values[i] for i in range(len(values)) for j in range(i + 1, len(values))]  # of each pair
    return sum(rises) >= len(rises) - 1


def rises_in_most_blocks(levels: Sequence[float]) -> bool:
    """Return whether a series rises throughout, by the levels of its successive blocks.

    The last level must lie above the first, and `DRIFT.blocks_rising` of the rises from block to block must have at
    least `DRIFT.participating_share` of the mean rise.
    """
    mean_rise = (levels[-1] - levels[0]) / (len(levels) - 1)
    rising_count = sum(later - earlier >= DRIFT.participating_share * mean_rise for earlier, later in pairwise(levels))
    return mean_rise > 0 and rising_count >= DRIFT.blocks_rising


def line_residuals(steps: Sequence[float], values: Sequence[float], slope: Slope) -> list[float]:
    """Return the distances of the values from the line with this slope that has as many values above it as below."""
    return median_residuals([value - slope.per_step * step for step, value in zip(steps, values, strict=True)])


def median_residuals(values: Sequence[float]) -> list[float]:
    """Return the distances of the values from their median."""
    middle = median(values)
    return [abs(value - middle) for value in values]


def _rises_throughout(values: Sequence[float], minimum: float) -> bool:
    """Return whether the values rise in most of `DRIFT.blocks` equal blocks, and by half of `minimum` in all.

    A block is judged by its median.
    """
    n = len(values)
    limits = [i * n // DRIFT.blocks for i in range(DRIFT.blocks + 1)]
    levels = [median_low(values[begin:end]) for begin, end in pairwise(limits)]
    return levels[-1] - levels[0] >= minimum / 2 and rises_in_most_blocks(levels)


def _does_not_slow_down(steps: Sequence[float], values: Sequence[float]) -> bool:
    """Return whether the second half rises about as fast as the first, or faster.

    It must have at least `DRIFT.minimum_late_slope_share` of the first half's slope.
    """
    middle = len(steps) // 2
    first_slope = robust_slope(steps[: middle + 1], values[: middle + 1])
    second_slope = robust_slope(steps[middle:], values[middle:])
    return second_slope.per_step >= DRIFT.minimum_late_slope_share * first_slope.per_step


def _kendall_variance(k: int) -> int:
    """Return 18 times the variance of Kendall's statistic for k values; k equal values (a tie) reduce it by as much."""
    return k * (k - 1) * (2 * k + 5)


def _tie_counts(series: Sequence[float]) -> list[int]:
    """Return the number of occurrences of each value that occurs more than once."""
    return [k for k in count_values(series).values() if k > 1]
