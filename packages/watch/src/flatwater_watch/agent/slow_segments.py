"""The segment of a program that became slower, by the wall time from each boundary to the next.

A boundary is a place that the program passes again and again, of a kind such as `update` or `episode`. A segment is the
way from one boundary to the next, named by both kinds. The wall clock is cheap enough to be read at each boundary. It
is good enough to choose between segments, once the CPU time of the whole program has shown that it became slower.
"""

from collections.abc import Mapping, Sequence

from flatwater_watch.agent.growth import Sample, samples_after_warm_up
from flatwater_watch.diagnose.evidence import SlowSegment
from flatwater_watch.thresholds import SLOWER


def find_slow_segment(samples: Sequence[Sample]) -> SlowSegment | None:
    """Return the segment of the program that has most of its slowdown; None if no segment has most of it.

    The first third of the samples is compared with the last third.
    """
    steady_samples = samples_after_warm_up(samples)
    # Too few: each third would have a reading or two.
    if len(steady_samples) <= 2 * SLOWER.comparison_divisor:
        return None
    third = len(steady_samples) // SLOWER.comparison_divisor
    early_seconds = _segment_seconds(steady_samples[0], steady_samples[third])
    late_seconds = _segment_seconds(steady_samples[-1 - third], steady_samples[-1])
    gained_seconds = {segment: seconds - early_seconds.get(segment, 0.0) for segment, seconds in late_seconds.items()}
    # Only segments that became slower are summed: a faster one must not make another look like the whole slowdown.
    total_gain = sum(seconds for seconds in gained_seconds.values() if seconds > 0)
    if total_gain == 0:
        return None
    slowest = max(gained_seconds, key=lambda segment: gained_seconds[segment])
    if gained_seconds[slowest] < SLOWER.minimum_main_share * total_gain:
        return None
    begin, end = slowest
    name = f"from {begin} to {end}" if begin != end else f"from one {begin} to the next"
    now_ms = 1e3 * late_seconds.get(slowest, 0.0)
    earlier_ms = 1e3 * early_seconds.get(slowest, 0.0)
    return SlowSegment(name, f"{name}: {now_ms:.3g} ms a boundary, {earlier_ms:.3g} ms before")


def _segment_seconds(first: Sample, last: Sample) -> Mapping[tuple[str, str], float]:
    """Return the seconds of each segment between two samples, per boundary of any kind that was passed."""
    boundaries = max(1, last.reading.step - first.reading.step)
    return {
        segment: (seconds - first.segments.get(segment, 0.0)) / boundaries for segment, seconds in last.segments.items()
    }
