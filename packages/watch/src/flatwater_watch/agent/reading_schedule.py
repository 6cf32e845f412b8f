"""When to look at a program that passes thousands of boundaries a second: often at first, later within a share.

A program's memory swings within a round, so readings are best taken at the same place of it: at the slowest boundary
that comes by often enough, the anchor. Where none does, any boundary will do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from flatwater_watch.series.slope import POINTS, median

QUICK = 0.05
"""Seconds between the first readings, so that a program of a few seconds is seen through."""
QUICK_READINGS = 24
USUAL = 0.2
"""Seconds between later readings, at least."""
SHARE = 1 / 300
"""Maximum share of the program's time for plain readings; while nothing is suspicious, of its CPU time too, because a
program that sleeps for 95 % of its time has little. With the state on disk and ticks the cost is about three times
that."""
CREDIT, DEEP_SHARE = 6.0, 1 / 200
"""Seconds, and share of the time since the beginning, that may go into investigations."""
COUNTING_SHARE, PROVEN_SHARE = 1 / 50, 1 / 20
"""The share while a census is under way, so that it comes to its end, and while growth is proven and has no owner."""
SLICE, SLICE_SHARE = 0.05, 1 / 5
"""CPU seconds of a census in one piece, or this part of the time between two boundaries, where those are rare."""
TRACED = 0.5
"""Part of the time with tracing on that counts as spent: a traced program is about half as fast."""
INVESTIGATING = 0.06
"""Seconds to the first reading after a census; doubled for each that follows, as growth may come in bursts."""
BETWEEN = 2.0
"""Times as long as a reading took, until the next one while allocations are traced: the program is to make something
meanwhile, and a look for its line is slow under a trace as well."""
LONGEST = 10.0
"""Seconds without a reading, at most, where boundaries come by."""
RECENT = 9
"""Readings whose median cost is taken for the usual one: censuses are among them."""
REGULAR = 3
"""Times that a boundary must have come by before it can be the anchor."""
NEAR, FAR = 3, 10
"""The gap between readings of an investigation doubles for the first 3 readings, stays, and doubles again after the
10th: some growth comes in stairs."""


@dataclass
class ReadingSchedule:
    """Decides which boundaries are read. `step` of a watch compares with its fields and does nothing else."""

    began: float
    """Monotonic time of the first boundary."""
    due: float = 0.0
    """From then on the anchor is read."""
    late: float = 0.0
    """From then on any boundary is read."""
    anchor: str | None = None
    readings: int = 0
    spent: float = 0.0
    """Seconds that all readings took, investigations included."""
    recent: list[float] = field(default_factory=list)
    investigated: int = 0
    """Readings since the census that waits for another one, without those at which the other was under way."""
    eager: int = POINTS
    """Readings still to come that the clock alone paces: until the series are full, and after memory rose."""
    gap: float = 0.0
    """Seconds from the last reading to that which the clock alone would ask for."""

    def pace_by_clock(self) -> None:
        """Let the clock alone pace the next readings: memory rose."""
        self.eager = max(self.eager, QUICK_READINGS)


def schedule_next_(
    pace: ReadingSchedule,
    now: float,
    took: float,
    counts: Mapping[str, int],
    *,
    investigating: bool,
    counting: bool = False,
    tracing: bool = False,
    idle_cpu: float | None = None,
) -> None:
    """Set the time of the next reading.

    Args:
        pace: of the watch.
        now: when the reading ended.
        took: seconds that it took.
        counts: of boundaries so far.
        investigating: whether a census waits for another.
        counting: whether a census waits for its next slice.
        tracing: whether allocations are traced: the program is slow until then, so nothing puts that reading off.
        idle_cpu: the program's own CPU seconds so far, where nothing is suspicious; else None.
    """
    pace.eager = max(0, pace.eager - 1)
    pace.readings += 1
    pace.spent += took
    pace.investigated = pace.investigated + (not (tracing or counting)) if investigating else 0
    if not (counting or tracing):
        pace.recent = [*pace.recent[1 - RECENT :], took]
    gap = (
        max(INVESTIGATING, BETWEEN * took)
        if tracing
        else _gap(pace, now, investigating=investigating, counting=counting)
    )
    pace.gap = gap
    pace.due = now + (gap if idle_cpu is None else _idle_gap(pace, now, idle_cpu))
    pace.anchor, period = _slowest_boundary(counts, now - pace.began, max(2 * gap, USUAL))
    pace.late = pace.due if pace.anchor is None else pace.due + 2 * period


def census_slice_seconds(pace: ReadingSchedule, now: float, boundaries: int) -> float:
    """CPU seconds that a census may hold the program up at one boundary.

    Args:
        pace: of the watch.
        now: monotonic time.
        boundaries: passed so far.
    """
    return max(SLICE, SLICE_SHARE * (now - pace.began) / max(1, boundaries))


def overspent_seconds(pace: ReadingSchedule, now: float, share: float) -> float:
    """Seconds to wait until what was spent is within a share again; negative where some is left."""
    return (pace.spent - CREDIT) / share - (now - pace.began)


def spending_share(*, investigating: bool, counting: bool) -> float:
    """Part of the time that may be spent now."""
    return PROVEN_SHARE if investigating else COUNTING_SHARE if counting else DEEP_SHARE


def _gap(pace: ReadingSchedule, now: float, *, investigating: bool, counting: bool) -> float:
    least = QUICK if pace.readings < QUICK_READINGS else USUAL
    usual = median(pace.recent) / SHARE if pace.readings >= QUICK_READINGS and pace.recent else 0.0
    if pace.investigated:
        least = INVESTIGATING * 2.0 ** (min(pace.investigated, NEAR) - 1 + max(0, pace.investigated - FAR))
    if pace.investigated or counting:
        least, usual = min(least, LONGEST), 0.0
    return min(
        LONGEST,
        max(least, usual, overspent_seconds(pace, now, spending_share(investigating=investigating, counting=counting))),
    )


def _idle_gap(pace: ReadingSchedule, now: float, cpu: float) -> float:
    """Seconds to the next reading of a program that is flat: as the clock says, and as its own CPU time allows."""
    if pace.eager:
        return pace.gap
    allowed = median(pace.recent) / SHARE * (now - pace.began) / cpu if cpu > 0 else inf
    return max(pace.gap, min(LONGEST, allowed))


def _slowest_boundary(counts: Mapping[str, int], elapsed: float, longest: float) -> tuple[str | None, float]:
    """The slowest kind of boundary that comes by at least once in `longest` seconds, and its period."""
    periods = {kind: elapsed / count for kind, count in counts.items() if count >= REGULAR}
    fitting = {kind: period for kind, period in periods.items() if period <= longest}
    if not fitting:
        return None, 0.0
    slowest = max(fitting, key=lambda kind: fitting[kind])
    return slowest, fitting[slowest]
