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
"""Factor between the clocks at which owners are weighed, so that their number grows with the logarithm of the run."""
OWNERS = 60
"""Maximum number of owners whose bytes a result keeps."""
MOST = 40
"""Maximum number of censuses that are remembered; the older half is thinned when there are more."""


@dataclass(eq=False, repr=False)
class CensusHistory:
    """Sizes of the larger owners in all censuses that are remembered."""

    censuses: list[Mapping[str, tuple[int, int]]] = field(default_factory=list)
    """The larger holdings of each census by path: the clock at which the census read it, and its bytes."""
    clocks: list[int] = field(default_factory=list)
    """Clock at which each census began."""
    due: float = 0.0
    """Clock from which on owners are weighed again."""


def record_census_(marks: CensusHistory, clock: int, census: Census) -> None:
    """Add the larger holdings of a census to the history."""
    sizes = {
        path: (holding.step or clock, holding.bytes)
        for path, holding in census.holdings.items()
        if holding.bytes >= WEIGHING.least_bytes
    }
    marks.clocks.append(clock)
    marks.censuses.append(sizes)
    if len(marks.censuses) > MOST:
        # Every second one of the older half goes, and the first stays: it is the reference for all growth.
        del marks.clocks[1 : MOST // 2 : 2], marks.censuses[1 : MOST // 2 : 2]
    marks.due = LATER * clock


def newest_owner_sizes(marks: CensusHistory) -> dict[str, int]:
    """Bytes by owner at the newest census, the largest first."""
    newest = marks.censuses[-1] if marks.censuses else {}
    sizes = sorted(((size, owner) for owner, (_, size) in newest.items()), reverse=True)
    return {owner: size for size, owner in sizes[:OWNERS]}


def with_census_rate(found: Finding, marks: CensusHistory, owners: Iterable[str], rows: Sequence[Sample]) -> Finding:
    """The finding with its rate over the recent half of the censuses, if its owner was in two of them.

    Its share is that of the growth between the first and the last census after warm-up. Where growth comes in steps, a
    share by rates over other stretches would be off by a step.

    Args:
        found: finding, per boundary.
        marks: censuses so far.
        owners: owners of all findings; bytes below another finding's owner count for that owner only.
        rows: all readings.
    """
    if not found.holders or found.outside:
        return found
    below = [inner for inner in owners if inner.startswith((f"{found.owner}.", f"{found.owner}["))]
    clocks, sizes = _owner_sizes(marks, found.owner, below)
    if len(clocks) <= 1 or found.bytes_per_step <= 0:
        return found
    recent = max(0, min(bisect_left(clocks, (clocks[0] + clocks[-1]) / 2), len(clocks) - WEIGHING.fewest))
    rates = (_slope(clocks[first:], sizes[first:]) for first in range(recent, -1, -1))
    rate = next((rate for rate in rates if rate > 0), 0.0)  # the later half may lie on one stair
    whole = growth_rate(rows)
    if rate == 0:
        return found
    if 0 < SHIPPED.investigating.too_large * whole < rate:  # sizes are estimates, and may make a rate too large
        rate = min(rate, found.bytes_per_step)
    (low, high), scale = found.interval, rate / found.bytes_per_step
    share = min(1.0, rate / whole) if whole > 0 else found.share
    first_after_warm_up = bisect_left(clocks, after_warm_up(rows)[0].reading.step)
    if first_after_warm_up < len(clocks) - 1:
        grown = _resident_at(rows, clocks[-1]) - _resident_at(rows, clocks[first_after_warm_up])
        if grown >= WEIGHING.told * growth_bytes(rows) > 0:
            share = min(1.0, max(0.0, (sizes[-1] - sizes[first_after_warm_up]) / grown))
    return replace(found, bytes_per_step=rate, interval=(low * scale, high * scale), share=share)


def _slope(clocks: Sequence[float], sizes: Sequence[float]) -> float:
    """The median of the slopes of all pairs, each with the weight of its distance (Sievers 1978).

    Two censuses on one stair have no slope and are near to each other; those far apart know the rate best.
    """
    pairs = [(i, j) for i in range(len(clocks)) for j in range(i + 1, len(clocks))]
    slopes = sorted(((sizes[j] - sizes[i]) / (clocks[j] - clocks[i]), clocks[j] - clocks[i]) for i, j in pairs)
    weight_left = sum(weight for _, weight in slopes) / 2
    for slope, weight in slopes:
        weight_left -= weight
        if weight_left <= 0:
            return slope
    return 0.0


def _resident_at(rows: Sequence[Sample], clock: float) -> int:
    """Resident bytes at the reading with which a census began, or at the one after it."""
    index = bisect_left([row.reading.step for row in rows], clock)
    return rows[min(index, len(rows) - 1)].resident


def _owner_sizes(marks: CensusHistory, owner: str, below: list[str]) -> tuple[list[float], list[float]]:
    """Clocks and bytes of an owner. It has none until it is seen first; a census that misses it later says nothing."""
    clocks: list[float] = []
    sizes: list[float] = []
    was_held = False
    for begun, holdings in zip(marks.clocks, marks.censuses, strict=True):
        clock, size = holdings.get(owner, (begun, 0))
        if (was_held and owner not in holdings) or (clocks and clock <= clocks[-1]):
            continue
        was_held = owner in holdings
        clocks.append(clock)
        sizes.append(size - sum(holdings[inner][1] for inner in below if inner in holdings))
    return clocks, sizes
