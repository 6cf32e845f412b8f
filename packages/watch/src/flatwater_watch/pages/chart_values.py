"""What happens to values before a chart has them: how many are drawn, in which unit, and how a gap is written."""

from collections.abc import Iterable
from math import isfinite

MAXIMUM_POINTS = 500
"""Maximum points of a curve: more than a screen can show, and few enough for a page of any run."""
UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
"""Names of units with their bytes, largest first."""


def finite_or_none(values: Iterable[float | None]) -> list[float | None]:
    """Return the values, with None, which is drawn as a gap, for each number that is not finite."""
    return [value if value is not None and isfinite(value) else None for value in values]


def byte_unit(values: Iterable[float]) -> tuple[str, int]:
    """Return the name and the bytes of the unit for an axis, such as `("MiB", 1048576)`.

    It is the largest unit in which the largest value is at least 1; bytes if there is none.
    """
    largest = max((abs(value) for value in values), default=0)
    return next(((name, size) for name, size in UNITS if largest >= size), UNITS[-1])


def largest_values(values: dict[str, float], maximum: int, names: str) -> tuple[list[tuple[str, float]], str]:
    """Return the names and values of the largest bars of a chart, and a sentence on the others.

    Args:
        values: values by name.
        maximum: maximum number of values that are returned.
        names: noun for the values, in the plural, such as `columns`.

    Returns:
        The largest values in ascending order, as rows of a chart go from below; and ` The other 3 columns have less
        each.`, which is empty if there are no others.
    """
    largest = sorted(values.items(), key=lambda name_and_value: name_and_value[1])[-maximum:]
    other_count = len(values) - len(largest)
    return largest, f" The other {other_count} {names} have less each." if other_count else ""
