"""The boundaries that a program passes: how many of each kind, and the seconds from one kind to the next.

This is on the way of every environment step, and some take 8 µs. Where boundaries of one kind follow each other faster
than the clock needs to be looked at, most are only counted. That ends with the next tick of the clock, at the latest.
"""

from collections import defaultdict
from collections.abc import Callable
from math import ceil, inf
from time import monotonic

EVERY = 0.0005
"""Seconds after which the clock is looked at again while boundaries of one kind follow each other, ..."""
MOST = 64
"""... and boundaries, at most."""
TICK = "tick"
"""A boundary in time, for programs that have none of their own, ..."""
TICK_SECONDS = 0.05
"""... so long after the one before."""
RESTING = 40
"""Ticks after which one is needed at the latest."""
NEVER = "the beginning"
"""The kind before the first one."""


class Boundaries:
    """Counts and times what is passed, and says so to the watch each time that it looks at the clock."""

    def __init__(self, looked: Callable[[str, float], bool], *, ticks: bool) -> None:
        """Nothing has been passed yet.

        Args:
            looked: told of the kind and the monotonic time whenever the clock is looked at. Says whether it took time.
            ticks: whether ticks of the clock are among the boundaries; without them each boundary is looked at.
        """
        self._most = MOST if ticks else 0
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        """From the kind of one boundary to that of the next."""
        self._counts: dict[str, int] = defaultdict(int)
        self._looked = looked
        self._others = 0
        """Boundaries not in time, at the last one in time."""
        self._before, self._passed = NEVER, monotonic()
        self._period = 0.0
        """Seconds between two of the same kind, as they were last."""
        self._granted = self._left = self._counted = 0
        """Boundaries of the kind before that need no look: at the last look, now, and when they were last counted."""

    @property
    def counts(self) -> dict[str, int]:
        """How many of each kind."""
        passed, self._counted = self._counted - self._left, self._left
        if passed:
            self._counts[self._before] += passed
        return self._counts

    def clock(self, unit: str | None, *, ticks: bool) -> int:
        """Boundaries so far: of one kind; if it is None, those in time, or all others."""
        if unit is not None:
            return self.counts.get(unit, 0)
        in_time = self.counts.get(TICK, 0)
        return in_time if ticks else sum(self.counts.values()) - in_time

    def step(self, kind: str) -> None:
        """Pass a boundary."""
        if self._left > 0 and kind == self._before:
            self._left -= 1
        else:
            self._look(kind)

    def tick(self, ticks: int) -> bool:
        """Pass boundaries in time, of which only the last one was needed. Whether others came by as often."""
        self._look(TICK, ticks)
        others = self.clock(None, ticks=False)
        since, self._others = others - self._others, others
        return since >= ticks

    def _look(self, kind: str, passed: int = 1) -> None:
        now, before, skipped = monotonic(), self._before, self._granted - self._left
        spent = now - self._passed
        self.counts[kind] += passed
        if kind == before:
            self.seconds[before, kind] += spent
            self._period = spent / (skipped + 1)
            grant = 0 if kind == TICK else min(self._most, int(EVERY / max(self._period, EVERY / MOST)))
        else:
            alike = min(spent, skipped * self._period)
            if skipped:
                self.seconds[before, before] += alike
            self.seconds[before, kind] += spent - alike
            grant = 0
        self._before = kind
        self._granted = self._left = self._counted = grant
        self._passed = monotonic() if self._looked(kind, now) else now


def ticks_until(due: float) -> int:
    """After how many ticks a reading is due, at a monotonic time: one at least."""
    return max(1, min(RESTING, ceil((due - monotonic()) / TICK_SECONDS))) if due < inf else RESTING
