"""The times at which the watch reads memory: often at first, and later within its share of the program's time.

A program may pass thousands of boundaries a second, such as steps of an environment, and its memory swings within each
round. So readings are taken at the same place of a round: at the anchor, which is the slowest kind of boundary that
comes often enough. If no kind comes often enough, they are taken at any boundary.

A plain reading is one without a census and a trace of allocations. An investigation takes a second census after a first
one. The budget says how many CPU seconds the watch has earned. The gap is the time from one reading to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from flatwater_watch.agent.budget import TIME_SHARE, Budget
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
SLICE_SECONDS, SLICE_SHARE = 0.05, 1 / 5
"""CPU seconds of one slice of a census; where boundaries are rare, this share of the time between two of them."""
LEAST_SLICE_SECONDS = 0.01
"""CPU seconds of the shortest slice of a census, as beginning and ending one takes a millisecond."""
STALE_TRACE_SECONDS = 0.2
"""Seconds after the last reading, from which on a trace is suspended at a place where no reading may be taken."""
FIRST_INVESTIGATION_GAP = 0.06
"""Seconds to the first reading after a census, doubled for each further reading, as growth may come in bursts."""
UNPAID_GAP_SECONDS = 1.0
"""Seconds between two readings while the budget is spent: without readings nobody sees that growth goes on."""
MAXIMUM_GAP_SECONDS = 10.0
"""Maximum seconds between two readings, if boundaries come."""
RECENT_READINGS = 9
"""Number of readings whose median cost is the usual one; a median, as censuses are among them."""
REGULAR_COUNT = 3
"""Minimum count of a boundary before it can be the anchor."""
RSS_CHECK_SECONDS = 1.0
"""Minimum seconds between two reads of resident memory alone, while the next reading is further away."""
RESET_CHECK_TICKS = 4
"""Maximum ticks to the next call while containers that were found are checked for emptying between two readings."""
RESET_CHECK_SHARE = 0.005
"""Share of the time for such checks: a check takes 1 ms, and 200 ms if many containers lie deep within a library."""
ALLOCATING_CPU_SECONDS = 0.005
"""CPU seconds from which on a reading did more than read: a census, a trace or a judgement allocated memory."""
LAST_DOUBLING, DOUBLING_RESUMES = 3, 10
"""The gap between readings of an investigation doubles for the first 3 readings, stays, and doubles again after the
10th: some growth comes in jumps."""


@dataclass(eq=False, repr=False)
class ReadingSchedule:
    """Times of the next reading, and the cost of readings so far; most boundaries only compare the time with these."""

    began: float
    """Monotonic time of the first boundary; infinite before it."""
    budget: Budget
    """Pays for readings and investigations, and says when the next reading may come."""
    due: float = 0.0
    """Monotonic time from which on the anchor is read."""
    latest: float = 0.0
    """Monotonic time from which on any boundary is read."""
    anchor: str | None = None
    """The kind of boundary at which readings are taken; None while no kind comes often enough."""
    readings: int = 0
    recent_costs: list[float] = field(default_factory=list)
    """CPU seconds of the latest plain readings."""
    investigation_readings: int = 0
    """Readings since the first of two censuses, without those at which the second census was under way."""
    quick_readings_left: int = MAXIMUM_POINTS
    """Number of coming readings whose gap ignores the program's CPU time: until series are full, after memory rose."""
    gap: float = 0.0
    """Seconds from the last reading to the next one, if the clock alone decides."""

    def pace_by_clock_(self) -> None:
        """Let the clock alone pace the next `FIRST_READINGS` readings, after memory rose."""
        self.quick_readings_left = max(self.quick_readings_left, FIRST_READINGS)


def schedule_next_(
    schedule: ReadingSchedule,
    now: float,
    reading_cost: float,
    counts: Mapping[str, int],
    *,
    is_investigating: bool,
    is_taking_census: bool = False,
    is_tracing: bool = False,
    quiet_cpu: float | None = None,
) -> None:
    """Set the time of the next reading, and the anchor, after a reading.

    Args:
        schedule: schedule of the watch.
        now: monotonic time at which the reading ended.
        reading_cost: CPU seconds that it took.
        counts: boundaries so far, by kind.
        is_investigating: whether a census waits for a second one.
        is_taking_census: whether a census waits for its next slice.
        is_tracing: whether allocations are traced: the program is slow until the next reading, so nothing delays it.
        quiet_cpu: CPU seconds of the program so far, without the watch's, if nothing is suspicious; else None.
    """
    schedule.quick_readings_left = max(0, schedule.quick_readings_left - 1)
    schedule.readings += 1
    schedule.budget.spent_seconds += reading_cost
    is_plain = not (is_taking_census or is_tracing)
    if not is_investigating:
        schedule.investigation_readings = 0
    elif is_plain:
        schedule.investigation_readings += 1
    if is_plain:
        schedule.recent_costs = [*schedule.recent_costs, reading_cost][-RECENT_READINGS:]
    if is_tracing:
        schedule.gap = FIRST_INVESTIGATION_GAP
    else:
        schedule.gap = _clock_gap_seconds(schedule, now, reading_cost, is_taking_census=is_taking_census)
    schedule.due = now + (schedule.gap if quiet_cpu is None else _quiet_gap_seconds(schedule, now, quiet_cpu))
    # A kind with a longer period would delay readings too much.
    longest_period = max(2 * schedule.gap, MINIMUM_GAP_SECONDS)
    schedule.anchor, anchor_period = _slowest_boundary(counts, now - schedule.began, longest_period)
    # Two periods of grace: an anchor that has stopped coming must not end the readings.
    schedule.latest = schedule.due if schedule.anchor is None else schedule.due + 2 * anchor_period


def census_slice_seconds(schedule: ReadingSchedule, now: float, boundaries: float = inf) -> float:
    """Return the CPU seconds that a census may hold the program up at one boundary; 0 until a slice is paid for.

    `boundaries` is the number passed so far: where they are rare, a slice may be longer. It is left out at a tick of
    the timer, which is no boundary of the program's own.
    """
    seconds_per_boundary = (now - schedule.began) / max(1, boundaries)  # 0 at a tick
    longest_slice = max(SLICE_SECONDS, SLICE_SHARE * seconds_per_boundary)
    slice_seconds = min(schedule.budget.left_seconds(now), longest_slice)
    return slice_seconds if slice_seconds >= LEAST_SLICE_SECONDS else 0.0


def _clock_gap_seconds(schedule: ReadingSchedule, now: float, reading_cost: float, *, is_taking_census: bool) -> float:
    """Return the seconds from this reading to the next one if the clock alone decides; at most `MAXIMUM_GAP_SECONDS`.

    They are the largest of three: the minimum gap, the gap that keeps plain readings within `PLAIN_SHARE` of the time,
    and the time until the reading is paid back. An investigation or a census sets a minimum of its own, and lifts the
    share.
    """
    minimum_gap = FIRST_GAP_SECONDS if schedule.readings < FIRST_READINGS else MINIMUM_GAP_SECONDS
    share_gap = 0.0
    is_plain = not (schedule.investigation_readings or is_taking_census)
    if is_plain and schedule.readings >= FIRST_READINGS and schedule.recent_costs:
        share_gap = median(schedule.recent_costs) / PLAIN_SHARE
    if schedule.investigation_readings:
        # The gap doubles for the first readings, stays, and doubles again (see `LAST_DOUBLING`).
        first_doublings = min(schedule.investigation_readings, LAST_DOUBLING) - 1
        later_doublings = max(0, schedule.investigation_readings - DOUBLING_RESUMES)
        minimum_gap = FIRST_INVESTIGATION_GAP * 2.0 ** (first_doublings + later_doublings)
    if is_taking_census:  # the census goes on as soon as its next slice is paid for
        seconds_to_slice = schedule.budget.wait_seconds(now, SLICE_SECONDS)
        minimum_gap = max(FIRST_GAP_SECONDS, min(minimum_gap, seconds_to_slice))
    # Until the debt is a slice at most, but no longer than it takes to earn this reading: dearer work waits by itself.
    seconds_to_small_debt = schedule.budget.wait_seconds(now, -SLICE_SECONDS)
    seconds_to_earn_reading = max(UNPAID_GAP_SECONDS, reading_cost / TIME_SHARE)
    pay_gap = min(seconds_to_earn_reading, seconds_to_small_debt)
    return min(MAXIMUM_GAP_SECONDS, max(minimum_gap, share_gap, pay_gap))


def _quiet_gap_seconds(schedule: ReadingSchedule, now: float, program_cpu: float) -> float:
    """Return the seconds to the next reading of a program in which nothing is suspicious.

    Unless readings are quick now, they keep within `PLAIN_SHARE` of the program's CPU time too; `program_cpu` are the
    CPU seconds that it has taken so far.
    """
    if schedule.quick_readings_left:  # memory rose lately, or the series are not full
        return schedule.gap
    cpu_gap = median(schedule.recent_costs) / PLAIN_SHARE  # CPU seconds of the program from reading to reading
    # The same gap by the clock, if the program goes on taking CPU time as before.
    affordable_gap = cpu_gap * (now - schedule.began) / program_cpu if program_cpu > 0 else inf
    return max(schedule.gap, min(MAXIMUM_GAP_SECONDS, affordable_gap))


def _slowest_boundary(
    counts: Mapping[str, int], elapsed_seconds: float, longest_period: float
) -> tuple[str | None, float]:
    """Return the slowest kind of boundary with a period of at most `longest_period` seconds, and its period.

    The kind is None, and the period 0, if no kind comes that often. `counts` came in `elapsed_seconds`.
    """
    periods = {kind: elapsed_seconds / count for kind, count in counts.items() if count >= REGULAR_COUNT}
    eligible = {kind: period for kind, period in periods.items() if period <= longest_period}
    if not eligible:
        return None, 0.0
    slowest = max(eligible, key=lambda kind: eligible[kind])
    return slowest, eligible[slowest]
