"""Growth rate of an owner over all censuses. The two censuses that identified it are too close in time for a rate."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flatwater_watch.agent.growth import Sample, after_warm_up, growth_bytes, growth_rate
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.heap.census import Census
from flatwater_watch.thresholds import SHIPPED

WEIGHING = SHIPPED.weighing

CENSUS_INTERVAL_FACTOR = 1.4
"""Factor between the clocks at which owners are weighed, so that their number grows with the logarithm of the run."""
MAXIMUM_OWNERS = 60
"""Maximum number of owners whose bytes a result keeps."""
MAXIMUM_CENSUSES = 40
"""Maximum number of censuses that are remembered; the older half is thinned when there are more."""


@dataclass(eq=False, repr=False)
class CensusHistory:
    """Sizes of the larger owners in all censuses that are remembered."""

    censuses: list[Mapping[str, tuple[int, int]]] = field(default_factory=list)
    """The larger holdings of each census by path: the clock at which the census read it, and its bytes."""
    clocks: list[int] = field(default_factory=list)
    """Clock at which each census began."""
    next_clock: float = 0.0
    """Clock from which on owners are weighed again."""


def record_census_(history: CensusHistory, clock: int, census: Census) -> None:
    """Add the larger holdings of a census to the history."""
    sizes = {
        path: (holding.step or clock, holding.bytes)
        for path, holding in census.holdings.items()
        if holding.bytes >= WEIGHING.least_bytes
    }
    history.clocks.append(clock)
    history.censuses.append(sizes)
    if len(history.censuses) > MAXIMUM_CENSUSES:
        # Every second one of the older half goes, and the first stays: it is the reference for all growth.
        del history.clocks[1 : MAXIMUM_CENSUSES // 2 : 2], history.censuses[1 : MAXIMUM_CENSUSES // 2 : 2]
    history.next_clock = CENSUS_INTERVAL_FACTOR * clock


def newest_owner_sizes(history: CensusHistory) -> dict[str, int]:
    """Bytes by owner at the newest census, the largest first."""
    newest = history.censuses[-1] if history.censuses else {}
    sizes = sorted(((size, owner) for owner, (_, size) in newest.items()), reverse=True)
    return {owner: size for size, owner in sizes[:MAXIMUM_OWNERS]}


def with_census_rate(
    finding: Finding, history: CensusHistory, owners: Iterable[str], rows: Sequence[Sample]
) -> Finding:
    """The finding with its rate over the recent half of the censuses, if its owner was in two of them.

    Its share is that of the growth between the first and the last census after warm-up. Where growth comes in steps, a
    share by rates over other stretches would be off by a step.

    Args:
        finding: finding, per boundary.
        history: censuses so far.
        owners: owners of all findings; bytes below another finding's owner count for that owner only.
        rows: all readings.
    """
    if not finding.holders or finding.outside:
        return finding
    below = [inner for inner in owners if inner.startswith((f"{finding.owner}.", f"{finding.owner}["))]
    clocks, sizes = _owner_sizes(history, finding.owner, below)
    if len(clocks) <= 1 or finding.bytes_per_step <= 0:
        return finding
    recent = max(0, min(bisect_left(clocks, (clocks[0] + clocks[-1]) / 2), len(clocks) - WEIGHING.minimum_censuses))
    rates = (_slope(clocks[first:], sizes[first:]) for first in range(recent, -1, -1))
    rate = next((rate for rate in rates if rate > 0), 0.0)  # the later half may lie on one stair
    process_rate = growth_rate(rows)
    if rate == 0:
        return finding
    # Sizes are estimates, and may make a rate too large.
    if 0 < SHIPPED.investigating.maximum_container_growth_ratio * process_rate < rate:
        rate = min(rate, finding.bytes_per_step)
    (low, high), scale = finding.interval, rate / finding.bytes_per_step
    share = min(1.0, rate / process_rate) if process_rate > 0 else finding.share
    first_after_warm_up = bisect_left(clocks, after_warm_up(rows)[0].reading.step)
    if first_after_warm_up < len(clocks) - 1:
        grown = _resident_at(rows, clocks[-1]) - _resident_at(rows, clocks[first_after_warm_up])
        if grown >= WEIGHING.minimum_owner_share * growth_bytes(rows) > 0:
            share = min(1.0, max(0.0, (sizes[-1] - sizes[first_after_warm_up]) / grown))
    return replace(finding, bytes_per_step=rate, interval=(low * scale, high * scale), share=share)


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
    """Resident bytes at the reading of this clock, or at the first reading after it; a census begins with a reading."""
    index = bisect_left([row.reading.step for row in rows], clock)
    return rows[min(index, len(rows) - 1)].resident


def _owner_sizes(history: CensusHistory, owner: str, below: list[str]) -> tuple[list[float], list[float]]:
    """Clocks and bytes of an owner. It has none until it is seen first; a census that misses it later says nothing."""
    clocks: list[float] = []
    sizes: list[float] = []
    was_held = False
    for begun, holdings in zip(history.clocks, history.censuses, strict=True):
        clock, size = holdings.get(owner, (begun, 0))
        if (was_held and owner not in holdings) or (clocks and clock <= clocks[-1]):
            continue
        was_held = owner in holdings
        clocks.append(clock)
        sizes.append(size - sum(holdings[inner][1] for inner in below if inner in holdings))
    return clocks, sizes
