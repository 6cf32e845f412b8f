"""The counts and times of boundaries that come too often to be reported one by one.

A boundary is a place that a program passes again and again, such as an environment's step; a segment is the way from
one boundary to the next. A kind of boundary that comes often is frequent, all others are rare.

A call counter counts a number of frequent boundaries without a report (`call_counters.py`). After them every boundary
is reported for a few rounds, which are a sample: the time between samples is divided among segments in its proportions.
"""

from collections import defaultdict
from collections.abc import Mapping

from flatwater_watch.agent.call_counters import CallCounter

FREQUENT_PER_SECOND = 500.0
"""Boundaries of a kind per second, from which on the kind is sampled."""
SAMPLE_INTERVAL_SECONDS = 0.02
"""Mean seconds between two samples."""
MAXIMUM_UNREPORTED = 4096
"""Maximum boundaries of one kind between two samples."""
ROUNDS_PER_SAMPLE = 4
"""Rounds in a sample, each from a boundary to the next one of its kind."""
REVIEW_SECONDS = 0.1
"""Seconds between two decisions on which kinds are frequent."""
GOLDEN_FRACTION = (5**0.5 - 1) / 2
"""The golden ratio's fraction: the fractional parts of its multiples are spread evenly over 0 to 1 (Weyl)."""

Segment = tuple[str, str]
"""A segment of the program: the kind of a boundary, and the kind of the next one."""


class BoundarySampler:
    """A sampler that decides how many boundaries go unreported, counts them, and divides their time among segments."""

    def __init__(
        self, counters: Mapping[str, CallCounter], counts: dict[str, int], seconds: dict[Segment, float], now: float
    ) -> None:
        """Begin with no frequent kind.

        Args:
            counters: call counters by kind of boundary.
            counts: number of boundaries by kind, to which unreported ones are added; missing kinds have 0.
            seconds: seconds by segment, to which all recorded times are added; missing segments have 0.
            now: monotonic time.
        """
        self._counters, self._counts, self._seconds = counters, counts, seconds
        self._frequent_kinds: list[str] = []
        """The frequent kinds, the most frequent one first."""
        self._mean_unreported = 0.0
        """Mean number of boundaries of the most frequent kind that go unreported between two samples."""
        self._varied_fraction = 0.0
        """Fraction, from 0 to 1, of twice that mean that goes unreported next."""
        self._unreported_count = 0
        """Boundaries that went unreported since the last report."""
        self._usual_interval = 0.0
        """Seconds between two unreported boundaries, by the last measurement."""
        self._sample_kind = ""
        """The kind with which the sample under way began; a round ends with each boundary of this kind."""
        self._rounds_left = 0
        """Number of times that this kind must still come before the sample ends."""
        self._unsampled_seconds, self._sampled_seconds = 0.0, defaultdict[Segment, float](float)
        """Seconds between samples, and sampled seconds by segment, since the last review."""
        self._reviewed_at, self._counts_at_review = now, dict(counts)

    def count_skipped_boundaries_(self) -> None:
        """Add the boundaries that went unreported since the last call to the counts."""
        for kind in self._frequent_kinds:
            self._add_unreported_boundaries_(kind, self._counters[kind].take_skipped_())

    def _skip_next_(self, boundaries: int) -> None:
        """Leave the next boundaries of each frequent kind unreported, and count those left out since the last query."""
        for kind in self._frequent_kinds:
            self._add_unreported_boundaries_(kind, self._counters[kind].skip_next_(boundaries))

    def _add_unreported_boundaries_(self, kind: str, boundaries: int) -> None:
        self._counts[kind] += boundaries
        self._unreported_count += boundaries

    def record_time_(self, previous_kind: str, kind: str, now: float, spent_seconds: float) -> None:
        """Record the seconds from one reported boundary to the next; review now and then which kinds are frequent."""
        if self._frequent_kinds:
            self._attribute_seconds_(previous_kind, kind, spent_seconds)
        else:
            self._seconds[previous_kind, kind] += spent_seconds
        if now >= self._reviewed_at + REVIEW_SECONDS:
            self._choose_frequent_kinds_(now)

    def _attribute_seconds_(self, previous_kind: str, kind: str, spent_seconds: float) -> None:
        """Add the seconds between two reports to a segment, or to the time between samples; begin or end a sample.

        The next review divides the time between samples in the proportion of the sampled seconds.
        """
        self.count_skipped_boundaries_()
        unreported_count, self._unreported_count = self._unreported_count, 0
        is_frequent = kind in self._frequent_kinds
        next_unreported = 0
        if unreported_count and is_frequent:  # a sample begins: every boundary is reported for some rounds
            self._unsampled_seconds += spent_seconds
            self._usual_interval = spent_seconds / (unreported_count + 1)
            self._sample_kind, self._rounds_left = kind, ROUNDS_PER_SAMPLE
        elif unreported_count:  # a rare kind came amid unreported boundaries
            usual_seconds = min(spent_seconds, unreported_count * self._usual_interval)
            self._unsampled_seconds += usual_seconds
            # The seconds beyond led up to the rare kind, from a boundary that was not reported: most likely one of the
            # most frequent kind.
            self._seconds[self._frequent_kinds[0], kind] += spent_seconds - usual_seconds
        elif is_frequent and previous_kind in self._frequent_kinds:  # within a sample
            self._sampled_seconds[previous_kind, kind] += spent_seconds
            if kind == self._sample_kind:
                self._rounds_left -= 1
            if self._rounds_left <= 0:
                next_unreported = self._draw_unreported_count_()
        else:  # next to a rare kind, which ends the sample
            self._seconds[previous_kind, kind] += spent_seconds
            if is_frequent:
                next_unreported = self._draw_unreported_count_()
        self._skip_next_(next_unreported)

    def _draw_unreported_count_(self) -> int:
        """Draw the number of boundaries to leave unreported next, from 1 to about twice the mean."""
        # Never twice the same number: against a program's own period, a fixed one would sample one phase for ever.
        self._varied_fraction = (self._varied_fraction + GOLDEN_FRACTION) % 1
        return min(MAXIMUM_UNREPORTED, 1 + int(self._mean_unreported * 2 * self._varied_fraction))

    def _choose_frequent_kinds_(self, now: float) -> None:
        """Review the time since the last review: divide the seconds between samples, then choose the frequent kinds."""
        self._divide_unsampled_seconds_()
        # From here on every boundary is reported, so that the counts are complete.
        self._skip_next_(0)
        new_counts = {kind: self._counts.get(kind, 0) - self._counts_at_review.get(kind, 0) for kind in self._counters}
        period = now - self._reviewed_at
        frequent_kinds = [kind for kind in new_counts if new_counts[kind] >= FREQUENT_PER_SECOND * period]
        self._frequent_kinds = sorted(frequent_kinds, key=lambda kind: -new_counts[kind])
        self._mean_unreported = 0.0
        if self._frequent_kinds:  # as many boundaries of the most frequent kind as come between two samples
            per_second = new_counts[self._frequent_kinds[0]] / period
            self._mean_unreported = per_second * SAMPLE_INTERVAL_SECONDS
        self._reviewed_at, self._counts_at_review = now, dict(self._counts)

    def _divide_unsampled_seconds_(self) -> None:
        """Divide the seconds between samples among the segments, in the proportion of the sampled seconds.

        Without a sample, all of them go to the segment between two boundaries of the most frequent kind.
        """
        total_sampled = sum(self._sampled_seconds.values())
        if total_sampled:
            for segment, seconds in self._sampled_seconds.items():
                self._seconds[segment] += seconds + self._unsampled_seconds * seconds / total_sampled
        elif self._frequent_kinds:
            self._seconds[self._frequent_kinds[0], self._frequent_kinds[0]] += self._unsampled_seconds
        self._unsampled_seconds = 0.0
        self._sampled_seconds.clear()
        self._rounds_left = 0  # a sample that is under way ends with the next boundary
