"""The times of readings, for a program that passes thousands of boundaries a second: close at first, later by a share.

A program's memory swings within a round, so readings are best taken at the same place of it: at the anchor, which is
the slowest boundary that comes often enough. If none does, any boundary will do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from flatwater_watch.medians import median
from flatwater_watch.series.slope import MAXIMUM_POINTS

FIRST_GAP_SECONDS = 0.05
"""Seconds between the first readings, so that a program of a few seconds is seen through."""
FIRST_READINGS = 24
"""Number of readings at that distance, and of those that the clock alone paces after memory rose."""
MINIMUM_GAP_SECONDS = 0.2
"""Minimum seconds between later readings."""
PLAIN_SHARE = 1 / 300
"""Maximum share of the program's time for plain readings; while nothing is suspicious, of its CPU time too, because a
program that sleeps for 95 % of its time has little. With the state on disk and ticks the cost is about three times
that."""
CREDIT, DEEP_SHARE = 6.0, 1 / 200
"""Seconds at once, and share of the time since the beginning, that may go into investigations."""
COUNTING_SHARE, PROVEN_SHARE = 1 / 50, 1 / 20
"""The share while a census is under way, so that it comes to its end, and while growth is proven and has no owner."""
SLICE, SLICE_SHARE = 0.05, 1 / 5
"""CPU seconds of one slice of a census; where boundaries are rare, this share of the time between two of them."""
FIRST_CREDIT, CREDIT_AGE, SHORT_SLICE = 0.03, 30.0, 0.002
"""While no growth is proven, slices are this short once readings and investigations have taken more than the first
number and the square of the age over the second: 0.06 CPU seconds after one second, 0.9 after five, `CREDIT` after 13.
So a program of a second pays for no whole census of a large heap, and one of ten seconds gets it nearly as early."""
TRACED_COST_SHARE = 0.5
"""Part of the time with tracing on that counts as spent: a traced program is about half as fast."""
FIRST_INVESTIGATION_GAP = 0.06
"""Seconds to the first reading after a census, doubled for each further reading, as growth may come in bursts."""
TRACED_GAP_RATIO = 2.0
"""Minimum gap between readings under a trace, in durations of the last reading: the program must allocate meanwhile,
and the search for its line is slow under a trace as well."""
MAXIMUM_GAP_SECONDS = 10.0
"""Maximum seconds between two readings, if boundaries come."""
RECENT_READINGS = 9
"""Number of readings whose median cost is the usual one; a median, as censuses are among them."""
REGULAR_COUNT = 3
"""Minimum count of a boundary before it can be the anchor."""
NEAR, FAR = 3, 10
"""The gap between readings of an investigation doubles for the first 3 readings, stays, and doubles again after the
10th: some growth comes in jumps."""


@dataclass(eq=False, repr=False)
class ReadingSchedule:
    """Times of the next reading; `step` of a watch compares with these fields and does nothing else."""

    began: float
    """Monotonic time of the first boundary."""
    due: float = 0.0
    """Monotonic time from which on the anchor is read."""
    latest: float = 0.0
    """Monotonic time from which on any boundary is read."""
    anchor: str | None = None
    """The kind of boundary at which readings are taken; None while no kind comes often enough."""
    readings: int = 0
    spent_seconds: float = 0.0
    """CPU seconds of all readings, investigations included."""
    recent_costs: list[float] = field(default_factory=list)
    """CPU seconds of the latest plain readings."""
    investigation_readings: int = 0
    """Readings since the first of two censuses, without those at which the second one was under way."""
    quick_readings_left: int = MAXIMUM_POINTS
    """Number of coming readings that the clock alone paces: until the series are full, and after memory rose."""
    gap: float = 0.0
    """Seconds from the last reading to the next one, if the clock alone decides."""
    is_growing: bool = False
    """Whether memory rises from boundary to boundary, so that the owner is wanted soon; at ticks a program may load."""

    def pace_by_clock(self) -> None:
        """Let the clock alone pace the next readings: memory rose."""
        self.quick_readings_left = max(self.quick_readings_left, FIRST_READINGS)


def schedule_next_(
    schedule: ReadingSchedule,
    now: float,
    reading_cost: float,
    counts: Mapping[str, int],
    *,
    investigating: bool,
    counting: bool = False,
    tracing: bool = False,
    idle_cpu: float | None = None,
) -> None:
    """Set the time of the next reading.

    Args:
        schedule: schedule of the watch.
        now: monotonic time at which the reading ended.
        reading_cost: CPU seconds that it took.
        counts: boundaries so far, by kind.
        investigating: whether a census waits for a second one.
        counting: whether a census waits for its next slice.
        tracing: whether allocations are traced: the program is slow until the next reading, so nothing delays it.
        idle_cpu: the program's own CPU seconds so far, if nothing is suspicious; else None.
    """
    schedule.quick_readings_left = max(0, schedule.quick_readings_left - 1)
    schedule.readings += 1
    schedule.spent_seconds += reading_cost
    schedule.investigation_readings = (
        schedule.investigation_readings + (not (tracing or counting)) if investigating else 0
    )
    if not (counting or tracing):
        schedule.recent_costs = [*schedule.recent_costs[1 - RECENT_READINGS :], reading_cost]
    gap = (
        max(FIRST_INVESTIGATION_GAP, TRACED_GAP_RATIO * reading_cost)
        if tracing
        else _gap(schedule, now, investigating=investigating, counting=counting)
    )
    schedule.gap = gap
    schedule.due = now + (gap if idle_cpu is None else _idle_gap(schedule, now, idle_cpu))
    schedule.anchor, period = _slowest_boundary(counts, now - schedule.began, max(2 * gap, MINIMUM_GAP_SECONDS))
    # Two periods of grace: an anchor that has stopped coming must not end the readings.
    schedule.latest = schedule.due if schedule.anchor is None else schedule.due + 2 * period


def census_slice_seconds(
    schedule: ReadingSchedule, now: float, boundaries: float = inf, *, investigating: bool
) -> float:
    """CPU seconds that a census may hold the program up at one boundary.

    Args:
        schedule: schedule of the watch.
        now: monotonic time.
        boundaries: boundaries passed so far; `inf` at a tick between them.
        investigating: whether growth is proven, and a census waits for a second one.
    """
    seconds = max(SLICE, SLICE_SHARE * (now - schedule.began) / max(1, boundaries))
    earned = earned_seconds(schedule, now)
    if investigating or schedule.is_growing or earned >= CREDIT:
        return seconds
    return min(seconds, max(SHORT_SLICE, earned - schedule.spent_seconds))


def earned_seconds(schedule: ReadingSchedule, now: float) -> float:
    """CPU seconds that a program of this age has to spare: what cannot be done in slices waits until they suffice."""
    return FIRST_CREDIT + (now - schedule.began) ** 2 / CREDIT_AGE


def overspent_seconds(schedule: ReadingSchedule, now: float, share: float) -> float:
    """Seconds until the time spent is within a share again; negative if some of the share is left."""
    return (schedule.spent_seconds - CREDIT) / share - (now - schedule.began)


def spending_share(*, investigating: bool, counting: bool) -> float:
    """Share of the time that readings and investigations may take now."""
    return PROVEN_SHARE if investigating else COUNTING_SHARE if counting else DEEP_SHARE


def _gap(schedule: ReadingSchedule, now: float, *, investigating: bool, counting: bool) -> float:
    """Seconds from this reading to the next one, if the clock alone decides; at most `MAXIMUM_GAP_SECONDS`.

    The largest of three: the minimum gap, the gap that keeps plain readings within `PLAIN_SHARE` of the time, and the
    time until readings and investigations are within their share again.

    Args:
        schedule: schedule of the watch, as it is after this reading.
        now: monotonic time at which the reading ended.
        investigating: whether a census waits for a second one.
        counting: whether a census waits for its next slice.
    """
    minimum_gap = FIRST_GAP_SECONDS if schedule.readings < FIRST_READINGS else MINIMUM_GAP_SECONDS
    share_gap = (
        median(schedule.recent_costs) / PLAIN_SHARE
        if schedule.readings >= FIRST_READINGS and schedule.recent_costs
        else 0.0
    )
    if schedule.investigation_readings:
        # Doubles with each reading up to the 3rd (NEAR), stays, and doubles again after the 10th (FAR).
        minimum_gap = FIRST_INVESTIGATION_GAP * 2.0 ** (
            min(schedule.investigation_readings, NEAR) - 1 + max(0, schedule.investigation_readings - FAR)
        )
    # Neither the cost of plain readings nor a long pause may hold up an investigation or a census.
    if schedule.investigation_readings or counting:
        minimum_gap = min(minimum_gap, MAXIMUM_GAP_SECONDS)
        share_gap = 0.0
    return min(
        MAXIMUM_GAP_SECONDS,
        max(
            minimum_gap,
            share_gap,
            overspent_seconds(schedule, now, spending_share(investigating=investigating, counting=counting)),
        ),
    )


def _idle_gap(schedule: ReadingSchedule, now: float, cpu: float) -> float:
    """Seconds to the next reading of a flat program: as the clock says, and as its own CPU time allows."""
    if schedule.quick_readings_left:
        return schedule.gap
    affordable_gap = median(schedule.recent_costs) / PLAIN_SHARE * (now - schedule.began) / cpu if cpu > 0 else inf
    return max(schedule.gap, min(MAXIMUM_GAP_SECONDS, affordable_gap))


def _slowest_boundary(counts: Mapping[str, int], elapsed: float, longest: float) -> tuple[str | None, float]:
    """The slowest kind of boundary that comes by at least once in `longest` seconds, and its period."""
    periods = {kind: elapsed / count for kind, count in counts.items() if count >= REGULAR_COUNT}
    eligible = {kind: period for kind, period in periods.items() if period <= longest}
    if not eligible:
        return None, 0.0
    slowest = max(eligible, key=lambda kind: eligible[kind])
    return slowest, eligible[slowest]
