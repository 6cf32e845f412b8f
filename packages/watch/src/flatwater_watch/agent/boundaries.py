"""The boundaries that a program passes: how many of each kind, and the seconds from one kind to the next.

This is on the way of every environment step, and some take 8 µs: most of what comes often is counted where it is passed
(`call_counters.py`) and timed by samples (`boundary_sampling.py`).
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil, inf

from flatwater_watch.agent.boundary_sampling import BoundarySampler, Part
from flatwater_watch.agent.call_counters import CallCounter
from flatwater_watch.agent.guard import Guard
from flatwater_watch.meters.system_calls import monotonic

TICK = "a tick"
"""A boundary in time, for programs that have none of their own, and whose units have no space in their names, ..."""
TICK_SECONDS = 0.05
"""... so long after the one before."""
REQUEST = "request"
"""What a server answers. It is counted alone, in whatever thread it comes: readings of servers are taken in time.
A user's own unit may have this name, and is read as any other."""
RESTING = 40
"""Ticks after which one is needed at the latest."""
ALONE = 5.0
"""Seconds for which a look in another thread is waited for at the end: longer than one takes."""
NEVER = "the beginning"
"""The kind before the first one."""


class Boundaries:
    """Counts and times what is passed, and says so to the watch each time that it looks at the clock."""

    def __init__(
        self, looked: Callable[[str, float], bool], guard: Guard | None = None, unit: str | None = None
    ) -> None:
        """Nothing has been passed yet.

        Args:
            looked: told of the kind and the monotonic time whenever the clock is looked at. Says whether it took time.
            guard: of the watch; after a fault boundaries are counted only.
            unit: the only kind that is read, where there is one.
        """
        self._counted_alone = None if unit == REQUEST else REQUEST
        self._guard = guard or Guard()
        self.seconds: dict[Part, float] = defaultdict(float)
        """From the kind of one boundary to that of the next."""
        self._looked = looked
        self._looking = threading.Lock()
        self._looker: int | None = None
        """The thread that looks."""
        self._counts: dict[str, int] = defaultdict(int)
        self.requests = 0
        self._others = 0
        """Boundaries not in time, at the last one in time."""
        self._before, self._passed = NEVER, monotonic()
        self._samples: BoundarySampler | None = None

    def use_counters_(self, gates: Mapping[str, CallCounter]) -> None:
        """Let the gates, by kind, count what comes often. Only where `tick` is called, which finds that it ended."""
        self._samples = BoundarySampler(gates, self._counts, self.seconds, self._passed)

    @property
    def all_counts(self) -> dict[str, int]:
        """How many of each kind, requests as well: what growth can be told by."""
        return {REQUEST: self.requests, **self.counts}

    @property
    def counts(self) -> dict[str, int]:
        """How many of each kind that readings can be taken at."""
        if self._samples is not None:
            self._samples.count_skipped_()
        return self._counts

    def boundary_count(self, unit: str | None, *, ticks: bool) -> int:
        """Boundaries so far: of one kind; if it is None, those in time, or all others."""
        if unit is not None:
            return self.counts.get(unit, 0)
        in_time = self.counts.get(TICK, 0)
        return in_time if ticks else sum(self.counts.values()) - in_time

    def tick(self, ticks: int) -> bool:
        """Pass boundaries in time, of which only the last one was needed. Whether others came by as often."""
        self.step(TICK, ticks)
        others = self.boundary_count(None, ticks=False)
        since, self._others = others - self._others, others
        return since >= ticks

    @contextmanager
    def exclude_other_threads(self) -> Iterator[None]:
        """No thread looks at a boundary meanwhile: a look under way in another thread is waited for."""
        waited = self._looker != threading.get_ident() and self._looking.acquire(timeout=ALONE)
        if waited:
            self._looker = threading.get_ident()
        try:
            yield
        finally:
            if waited:
                self._looker = None
                self._looking.release()

    def step(self, kind: str, passed: int = 1) -> None:
        """Pass boundaries that were not granted. What comes in while another thread looks at one is only counted."""
        if kind == self._counted_alone:
            self.requests += passed
            return
        self._counts[kind] += passed
        if self._looking.acquire(blocking=False):
            try:
                self._looker = threading.get_ident()
                self._guard.run(self._read_clock, kind)
            finally:
                self._looker = None
                self._looking.release()

    def _read_clock(self, kind: str) -> None:
        now = monotonic()
        spent = now - self._passed
        if self._samples is None:
            self.seconds[self._before, kind] += spent
        else:
            self._samples.record_time_(self._before, kind, now, spent)
        self._before = kind
        self._passed = monotonic() if self._looked(kind, now) else now


def ticks_until(due: float) -> int:
    """After how many ticks a reading is due, at a monotonic time: one at least."""
    return max(1, min(RESTING, ceil((due - monotonic()) / TICK_SECONDS))) if due < inf else RESTING
