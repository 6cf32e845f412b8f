"""The boundaries that a program passes: their number by kind, and the seconds from one kind to the next.

A boundary is a place that a program passes again and again, such as the end of an episode (kind `episode`) or an
optimizer's step (`update`). A program without such places is read at ticks of a timer, which are boundaries as well. A
segment is the program's way from one boundary to the next.

This code runs at every environment step, and some steps take 8 µs: so frequent boundaries are counted in the wrapped
methods (`call_counters.py`) and timed by samples (`boundary_sampling.py`).
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil, inf

from flatwater_watch.agent.boundary_sampling import BoundarySampler, Segment
from flatwater_watch.agent.call_counters import CallCounter
from flatwater_watch.agent.guard import Guard
from flatwater_watch.agent.reading_schedule import REGULAR_COUNT
from flatwater_watch.meters.system_calls import monotonic

TICK = "a tick"
"""A boundary made by a timer, for programs without boundaries of their own. The space keeps it apart from any unit."""
TICK_SECONDS = 0.05
REQUEST = "request"
"""A request that a server answers. Requests are only counted, in any thread: servers are read at ticks.
A unit that the user chose may have this name, and is read like any other."""
MAXIMUM_TICKS = 40
"""Maximum ticks between two calls of the timer: 2 seconds."""
EXCLUSION_SECONDS = 5.0
"""Seconds that the end of a watch waits for a reading in another thread: longer than a reading takes."""
STOPPED_SECONDS = 2.0
"""Minimum seconds without a boundary, after which a program is read at ticks again; or as long as boundaries came, if
that is longer: a program that trains and then only plays has passed its last step, and one that evaluates now and then
changes a few times at most, as each pause must be longer than all before it."""
NO_BOUNDARY = "the beginning"
"""The kind that stands for the time before the first boundary."""


class Boundaries:
    """Counts and times the boundaries, and calls the watch whenever it reads the clock.

    `step` may be called by any thread of the program.
    """

    def __init__(
        self, on_clock_read: Callable[[str, float], bool], guard: Guard | None = None, unit: str | None = None
    ) -> None:
        """Begin without any boundary.

        Args:
            on_clock_read: callback that gets kind and monotonic time of a boundary, and returns whether it took time.
            guard: runs all work but counting; after a fault of the watch, boundaries are only counted.
            unit: the only kind at which readings are taken; None for all.
        """
        # Requests are only counted, unless the user chose them as the unit.
        self._kind_without_readings = None if unit == REQUEST else REQUEST
        self._guard = guard or Guard()
        self.seconds: dict[Segment, float] = defaultdict(float)
        """Seconds by pair: the kind of a boundary, and the kind of the next one."""
        self._on_clock_read = on_clock_read
        self._reading_lock = threading.Lock()
        self._lock_holder: int | None = None
        """The thread that holds the lock above, so that the thread itself does not wait for it."""
        self._counts: dict[str, int] = defaultdict(int)
        self.requests = 0
        self.found_steps: Mapping[str, int] = {}
        """Owners whose growth was found at these boundaries, with the step; readings at ticks would begin anew."""
        self._others_at_last_tick = 0
        """Boundaries other than ticks, at the last tick."""
        self._last_kind, self._last_time = NO_BOUNDARY, monotonic()
        self._first_step_time = self._newest_step_time = inf  # of boundaries other than ticks, as far as they were seen
        self._sampler = BoundarySampler({}, self._counts, self.seconds, self._last_time)

    def attach_counters_(self, counters: Mapping[str, CallCounter]) -> None:
        """Let call counters, by kind, count frequent boundaries from now on, without a call of `step` for each.

        Call `tick` now and then: only a tick notices that a frequent kind has stopped coming.
        """
        self._sampler = BoundarySampler(counters, self._counts, self.seconds, self._last_time)

    @property
    def all_counts(self) -> dict[str, int]:
        """Boundaries by kind, requests included: the units in which growth can be reported."""
        return {REQUEST: self.requests, **self.counts}

    @property
    def counts(self) -> dict[str, int]:
        """Boundaries by kind, for the kinds at which readings can be taken."""
        self._sampler.count_skipped_boundaries_()  # adds them to `_counts`
        return self._counts

    def boundary_count(self, unit: str | None, *, ticks: bool) -> int:
        """Return the number of boundaries of the kind `unit`.

        If that is None, return the number of ticks (if `ticks` is true), or of all other boundaries.
        """
        counts = self.counts
        if unit is not None:
            return counts.get(unit, 0)
        tick_count = counts.get(TICK, 0)
        return tick_count if ticks else sum(counts.values()) - tick_count

    def are_regular(self, unit: str | None) -> bool:
        """Return whether the program has passed enough boundaries, ticks left out, to be read at them.

        They must be of the kind `unit` if the user chose one. Boundaries that have stopped coming are regular no more,
        unless the user chose the kind or growth was found at them.
        """
        has_enough = self.boundary_count(unit, ticks=False) >= REGULAR_COUNT
        return has_enough and (bool(self.found_steps) or unit is not None or not self._have_stopped())

    def _have_stopped(self) -> bool:
        """Return whether boundaries other than ticks have stopped coming.

        They have if none came for `STOPPED_SECONDS`, and for longer than the time from their first to their last.
        """
        period = self._newest_step_time - self._first_step_time
        return monotonic() - self._newest_step_time > max(STOPPED_SECONDS, period)

    def _note_step_time_(self, now: float) -> None:
        """Note the time of a boundary other than a tick, for `_have_stopped`."""
        self._first_step_time, self._newest_step_time = min(self._first_step_time, now), now

    def tick(self, ticks: int) -> bool:
        """Count ticks of the timer; return whether other boundaries come at least as fast.

        That is whether at least `ticks` of them have passed since the last call.
        """
        boundary_count = self.boundary_count(unit=None, ticks=False)
        new_boundaries = boundary_count - self._others_at_last_tick
        self._others_at_last_tick = boundary_count
        if new_boundaries:  # frequent boundaries are only counted between two samples: the tick must not miss them
            self._note_step_time_(monotonic())
        self.step(TICK, ticks)
        return new_boundaries >= ticks

    @contextmanager
    def exclude_other_threads(self) -> Iterator[None]:
        """Keep other threads from reading in the block; wait at most `EXCLUSION_SECONDS` for one that reads now."""
        # The thread that holds the lock may end the watch itself, as in a signal handler: it must not wait for itself.
        holds_lock_already = self._lock_holder == threading.get_ident()
        is_locked = not holds_lock_already and self._reading_lock.acquire(timeout=EXCLUSION_SECONDS)
        if is_locked:
            self._lock_holder = threading.get_ident()
        try:
            yield
        finally:
            if is_locked:
                self._lock_holder = None
                self._reading_lock.release()

    def step(self, kind: str, count: int = 1) -> None:
        """Count boundaries of a kind, then record their time and take a reading if one is due.

        The latter is left out while another thread of the program is doing it.
        """
        # In any thread of the program, within its own calls: it never waits for a lock.
        if kind == self._kind_without_readings:
            self.requests += count
            return
        self._counts[kind] += count
        if self._reading_lock.acquire(blocking=False):
            try:
                self._lock_holder = threading.get_ident()
                self._guard.run(self._record_time_, kind)
            finally:
                self._lock_holder = None
                self._reading_lock.release()

    def _record_time_(self, kind: str) -> None:
        """Add the seconds since the last boundary to the segment between both kinds, and call `on_clock_read`."""
        now = monotonic()
        if kind != TICK:
            self._note_step_time_(now)
        self._sampler.record_time_(self._last_kind, kind, now, now - self._last_time)
        self._last_kind = kind
        # After a reading the clock is read again: the watch's own time belongs to no segment of the program.
        self._last_time = monotonic() if self._on_clock_read(kind, now) else now


def ticks_until_time(due_time: float) -> int:
    """Return the number of ticks until a monotonic time, between 1 and `MAXIMUM_TICKS`."""
    if due_time == inf:  # nothing is due
        return MAXIMUM_TICKS
    return max(1, min(MAXIMUM_TICKS, ceil((due_time - monotonic()) / TICK_SECONDS)))
