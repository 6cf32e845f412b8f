"""Medians and the normal distribution, in place of `statistics`, whose import takes longer than all its uses here.

A later import does not help: nothing is imported once a program has begun, as it may replace functions that imports
need.
"""

from collections.abc import Iterable
from functools import cache
from math import erf, exp, pi, sqrt


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    ordered_values = sorted(values)
    middle = len(ordered_values) // 2
    if len(ordered_values) % 2:  # an odd number
        return ordered_values[middle]
    return (ordered_values[middle - 1] + ordered_values[middle]) / 2


def median_low(values: Iterable[float]) -> float:
    """Return the middle value, or the smaller of the two in the middle."""
    ordered_values = sorted(values)
    return ordered_values[(len(ordered_values) - 1) // 2]


@cache
def normal_deviations(confidence: float) -> float:
    """Return z such that a normal variable lies within z standard deviations with this probability: 1.96 for 0.95."""
    z = 0.0
    for _ in range(50):  # Newton's method for erf(z / sqrt(2)) = confidence; its steps only rise to the root
        step = (confidence - erf(z / sqrt(2))) / (sqrt(2 / pi) * exp(-z * z / 2))
        if z + step <= z:  # the step is lost in rounding
            break
        z += step
    return z
