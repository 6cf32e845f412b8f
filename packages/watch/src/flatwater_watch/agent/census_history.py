"""Growth rate of an owner over all censuses. The two censuses that identified it are too close in time for a rate."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flatwater_watch.agent.growth import Sample, after_warm_up, growth_bytes, growth_rate
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.heap.census import Census
from flatwater_watch.thresholds import SHIPPED

WEIGHING = SHIPPED.weighing

LATER = 1.4
"""Factor between the clocks at which owners are weighed."""
OWNERS = 60
"""Whose bytes a result keeps."""
MOST = 40
"""Censuses that are remembered; the older half is thinned when there are more."""


@dataclass
class CensusHistory:
    """What the censuses counted."""

    censuses: list[Mapping[str, tuple[int, int]]] = field(default_factory=list)
    """Of each, the larger holdings by path: the clock at which one was opened, and its bytes."""
    clocks: list[int] = field(default_factory=list)
    """At which each was begun."""
    due: float = 0.0
    """Clock from which on owners are weighed again."""


def record_census_(marks: CensusHistory, clock: int, census: Census) -> None:
    """Note what a census counted."""
    large = {
        path: (holding.step or clock, holding.bytes)
        for path, holding in census.holdings.items()
        if holding.bytes >= WEIGHING.least_bytes
    }
    marks.clocks.append(clock)
    marks.censuses.append(large)
    if len(marks.censuses) > MOST:
        del marks.clocks[1 : MOST // 2 : 2], marks.censuses[1 : MOST // 2 : 2]
    marks.due = LATER * clock


def newest_owner_sizes(marks: CensusHistory) -> dict[str, int]:
    """Bytes by owner at the newest census, the largest first."""
    newest = marks.censuses[-1] if marks.censuses else {}
    sizes = sorted(((size, owner) for owner, (_, size) in newest.items()), reverse=True)
    return {owner: size for size, owner in sizes[:OWNERS]}


def with_census_rate(found: Finding, marks: CensusHistory, owners: Iterable[str], rows: Sequence[Sample]) -> Finding:
    """The finding with the rate over the recent half of the censuses, where its owner was in two of them.

    Its share is told of the stretch between the first and the last of them after warm-up: a rate, and growth in stairs
    between other moments, would be apart by a stair.

    Args:
        found: per boundary.
        marks: censuses so far.
        owners: of all findings: what one holds below another counts there only.
        rows: all readings.
    """
    if not found.holders or found.outside:
        return found
    below = [other for other in owners if other.startswith((f"{found.owner}.", f"{found.owner}["))]
    clocks, sizes = _owner_sizes(marks, found.owner, below)
    if len(clocks) <= 1 or found.bytes_per_step <= 0:
        return found
    recent = max(0, min(bisect_left(clocks, (clocks[0] + clocks[-1]) / 2), len(clocks) - WEIGHING.fewest))
    rates = (_slope(clocks[first:], sizes[first:]) for first in range(recent, -1, -1))
    rate = next((rate for rate in rates if rate > 0), 0.0)  # the later half may lie on one stair
    whole = growth_rate(rows)
    if rate == 0:
        return found
    if 0 < SHIPPED.investigating.too_large * whole < rate:  # the sizes are estimates
        rate = min(rate, found.bytes_per_step)
    (low, high), scale = found.interval, rate / found.bytes_per_step
    share = min(1.0, rate / whole) if whole > 0 else found.share
    after = bisect_left(clocks, after_warm_up(rows)[0].reading.step)
    if after < len(clocks) - 1:
        grown = _resident_at(rows, clocks[-1]) - _resident_at(rows, clocks[after])
        if grown >= WEIGHING.told * growth_bytes(rows) > 0:
            share = min(1.0, max(0.0, (sizes[-1] - sizes[after]) / grown))
    return replace(found, bytes_per_step=rate, interval=(low * scale, high * scale), share=share)


def _slope(clocks: Sequence[float], sizes: Sequence[float]) -> float:
    """The median of the slopes of all pairs, each with the weight of its distance (Sievers 1978).

    Two censuses on one stair have no slope and are near to each other; those far apart know the rate best.
    """
    pairs = [(i, j) for i in range(len(clocks)) for j in range(i + 1, len(clocks))]
    slopes = sorted(((sizes[j] - sizes[i]) / (clocks[j] - clocks[i]), clocks[j] - clocks[i]) for i, j in pairs)
    left = sum(weight for _, weight in slopes) / 2
    for slope, weight in slopes:
        left -= weight
        if left <= 0:
            return slope
    return 0.0


def _resident_at(rows: Sequence[Sample], clock: float) -> int:
    """Of the reading at which a census was begun, or of the one after it."""
    at = bisect_left([row.reading.step for row in rows], clock)
    return rows[min(at, len(rows) - 1)].resident


def _owner_sizes(marks: CensusHistory, owner: str, below: list[str]) -> tuple[list[float], list[float]]:
    """Clocks and bytes of an owner. It has none until it is seen first; a census that misses it later says nothing."""
    clocks: list[float] = []
    sizes: list[float] = []
    seen = False
    for begun, holdings in zip(marks.clocks, marks.censuses, strict=True):
        clock, size = holdings.get(owner, (begun, 0))
        if (seen and owner not in holdings) or (clocks and clock <= clocks[-1]):
            continue
        seen = owner in holdings
        clocks.append(clock)
        sizes.append(size - sum(holdings[other][1] for other in below if other in holdings))
    return clocks, sizes
