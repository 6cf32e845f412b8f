"""How fast an owner grows, from censuses far apart: the two that convict it are too near to tell its rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flatwater.memory.leaks.census import Census
from flatwater.memory.leaks.finding import Finding

LATER = 1.3
"""Factor between the numbers of readings at which owners are weighed."""
LATE = 0.3
"""A rate since the beginning that is less than this part of the found one is of an owner that began late."""


@dataclass
class Marks:
    """Bytes of holdings at some clocks."""

    first: tuple[int, Mapping[str, int]] | None = None
    weighed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By owner: clock and bytes when it was weighed last."""
    due: int = 0
    """Readings at which owners are weighed next."""


def mark_(marks: Marks, clock: int, census: Census, owners: Sequence[str]) -> None:
    """Note the bytes of all holdings the first time, and those of the owners later."""
    sizes = {path: holding.bytes for path, holding in census.holdings.items()}
    if marks.first is None:
        marks.first = clock, sizes
    for owner in owners:
        if owner in sizes:
            below = [other for other in owners if other != owner and other.startswith((f"{owner}.", f"{owner}["))]
            marks.weighed[owner] = clock, max(0, sizes[owner] - sum(sizes.get(other, 0) for other in below))


def weighed(found: Finding, marks: Marks, whole: float) -> Finding:
    """The finding with the rate since the first census, where there is one.

    Args:
        found: per boundary.
        marks: censuses so far.
        whole: resident bytes per boundary that the process grows by.
    """
    if marks.first is None or found.owner not in marks.weighed or not found.holders:
        return found
    (began, before), (clock, size) = marks.first, marks.weighed[found.owner]
    if clock <= began:
        return found
    rate = (size - before.get(found.owner, 0)) / (clock - began)
    if rate < LATE * found.bytes_per_step:
        return found
    low, high = found.interval
    scale = rate / found.bytes_per_step
    share = min(1.0, rate / whole) if whole > 0 else found.share
    return replace(found, bytes_per_step=rate, interval=(low * scale, high * scale), share=share)


def next_due(readings: int) -> int:
    """The number of readings at which owners are weighed after so many."""
    return max(readings + 1, int(LATER * readings))
