"""Boundaries that come often: counted where they are passed, looked at in samples.

Some are granted in advance (`call_counters.py`). When a grant is used up, all are looked at until that kind has come
some times more. These looks are a sample of whole rounds, by which the time between the looks is divided.
"""

from collections import defaultdict
from collections.abc import Mapping

from flatwater_watch.agent.call_counters import CallCounter

OFTEN = 500.0
"""Boundaries of a kind in a second, from which on not all are looked at."""
EVERY = 0.02
"""Seconds between two samples of them, ..."""
MOST = 4096
"""... and boundaries of one kind, at most."""
ROUNDS = 4
"""From a boundary to the next of its kind, in a sample."""
REVIEW = 0.1
"""Seconds after which it is found out again which kinds come often."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, without their whole part, lie even between 0 and 1 however many they are (Weyl)."""

Part = tuple[str, str]
"""The kind of one boundary, and that of the next."""


class BoundarySampler:
    """Grants boundaries, counts them, and tells how their seconds are divided."""

    def __init__(
        self, gates: Mapping[str, CallCounter], counts: dict[str, int], seconds: dict[Part, float], now: float
    ) -> None:
        """Nothing comes often yet.

        Args:
            gates: by kind, of those that may be granted some.
            counts: by kind; those that were granted are added to it. Missing ones are 0.
            seconds: from one boundary to the next; all are added to it. Missing ones are 0.
            now: monotonic time.
        """
        self._gates, self._counts, self._seconds = gates, counts, seconds
        self._often: list[str] = []
        """The kinds that come often, the one that comes most first."""
        self._mean = self._varied = 0.0
        """Boundaries to be granted to each of these kinds, in the mean, and how that varies."""
        self._skipped = 0
        """Boundaries that passed since the last look."""
        self._apart = 0.0
        """Seconds between two of them, as they were last."""
        self._kind, self._rounds = "", 0
        """The kind that the sample began with, and how often it must come to end it."""
        self._hidden, self._sampled = 0.0, defaultdict[Part, float](float)
        """Seconds between looks, and the samples of them, since the review."""
        self._reviewed, self._before = now, dict(counts)
        """When that was, and the counts of then."""

    def count_skipped_(self) -> None:
        """Count what has passed by now."""
        for kind in self._often:
            self._add(kind, self._gates[kind].take_skipped_())

    def _grant_to_all(self, boundaries: int) -> None:
        for kind in self._often:
            self._add(kind, self._gates[kind].skip_next_(boundaries))

    def _add(self, kind: str, passed: int) -> None:
        self._counts[kind] += passed
        self._skipped += passed

    def record_time_(self, before: str, kind: str, now: float, spent: float) -> None:
        """Book the seconds since the last look, and say how many boundaries may pass until the next one.

        Args:
            before: kind of the boundary at the last look.
            kind: the boundary of now.
            now: monotonic time.
            spent: seconds since the last look.
        """
        if self._often:
            self._attribute_seconds(before, kind, spent)
        else:
            self._seconds[before, kind] += spent
        if now >= self._reviewed + REVIEW:
            self._review(now)

    def _attribute_seconds(self, before: str, kind: str, spent: float) -> None:
        self.count_skipped_()
        skipped, self._skipped = self._skipped, 0
        hurried, boundaries = kind in self._often, 0
        if skipped and hurried:
            self._hidden += spent
            self._apart, self._kind, self._rounds = spent / (skipped + 1), kind, ROUNDS
        elif skipped:
            alike = min(spent, skipped * self._apart)
            self._hidden += alike
            self._seconds[self._often[0], kind] += spent - alike
        elif hurried and before in self._often:
            self._sampled[before, kind] += spent
            self._rounds -= kind == self._kind
            boundaries = 0 if self._rounds > 0 else self._next_grant()
        else:  # a kind that comes seldom ends the sample
            self._seconds[before, kind] += spent
            boundaries = self._next_grant() if hurried else 0
        self._grant_to_all(boundaries)

    def _next_grant(self) -> int:
        """Never the same, as programs repeat themselves: each part of what they repeat must come to be sampled."""
        self._varied = (self._varied + GOLDEN) % 1
        return min(MOST, 1 + int(self._mean * 2 * self._varied))

    def _review(self, now: float) -> None:
        """Find out which kinds come often, and book what was not looked at since the last time."""
        if sampled := sum(self._sampled.values()):
            for part, seconds in self._sampled.items():
                self._seconds[part] += seconds + self._hidden * seconds / sampled
        elif self._often:
            self._seconds[self._often[0], self._often[0]] += self._hidden
        self._hidden, self._rounds = 0.0, 0
        self._sampled.clear()
        self._grant_to_all(0)
        passed = {kind: self._counts.get(kind, 0) - self._before.get(kind, 0) for kind in self._gates}
        since = now - self._reviewed
        self._often = sorted((kind for kind in passed if passed[kind] >= OFTEN * since), key=lambda kind: -passed[kind])
        self._mean = passed[self._often[0]] / since * EVERY if self._often else 0.0
        self._reviewed, self._before = now, dict(self._counts)
