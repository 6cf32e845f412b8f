"""The segment of a program that became slower, by the wall time from each boundary to the next.

The wall clock is cheap enough to be read at each boundary. It is good enough to choose between segments, once the CPU
time of the whole program has shown that it became slower.
"""

from collections.abc import Mapping, Sequence

from flatwater_watch.agent.growth import Sample, after_warm_up
from flatwater_watch.diagnose.evidence import SlowSegment
from flatwater_watch.thresholds import SHIPPED

SLOWER = SHIPPED.slower


def find_slow_segment(samples: Sequence[Sample]) -> SlowSegment | None:
    """Return the segment of the program that has most of its slowdown; None if no segment has most of it."""
    after = after_warm_up(samples)
    if len(after) <= 2 * SLOWER.comparison_divisor:
        return None
    stretch = len(after) // SLOWER.comparison_divisor
    first_seconds = _segment_seconds(after[0], after[stretch])
    last_seconds = _segment_seconds(after[-1 - stretch], after[-1])
    gained_seconds = {segment: seconds - first_seconds.get(segment, 0.0) for segment, seconds in last_seconds.items()}
    if not gained_seconds:
        return None
    slowest = max(gained_seconds, key=lambda segment: gained_seconds[segment])
    # Only segments that became slower are summed: a faster one must not make another look like the whole slowdown.
    total_gain = sum(seconds for seconds in gained_seconds.values() if seconds > 0)
    if gained_seconds[slowest] <= 0 or gained_seconds[slowest] < SLOWER.minimum_main_share * total_gain:
        return None
    name = f"from {slowest[0]} to {slowest[1]}" if slowest[0] != slowest[1] else f"from one {slowest[0]} to the next"
    now_ms, before_ms = (1e3 * seconds.get(slowest, 0.0) for seconds in (last_seconds, first_seconds))
    return SlowSegment(name, f"{name}: {now_ms:.3g} ms a boundary, {before_ms:.3g} ms before")


def _segment_seconds(first: Sample, last: Sample) -> Mapping[tuple[str, str], float]:
    """Return the seconds of each segment between two samples, divided by the number of boundaries of any kind."""
    boundaries = max(1, last.reading.step - first.reading.step)
    return {
        segment: (seconds - first.segments.get(segment, 0.0)) / boundaries for segment, seconds in last.segments.items()
    }
