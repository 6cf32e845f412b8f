"""The readings of a watched program and figures of them: growth, the share explained, findings per unit of the user's.

Internally growth is measured per boundary of any kind, which is called a step: they come as long as the program runs.
Reports give it per update, episode or second. The conversion is the number of boundaries to one of these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf
from types import MappingProxyType
from typing import NamedTuple

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.judge import GARBAGE_OWNER, has_proof, judge_unowned
from flatwater_watch.heap.roots import is_of_library_call
from flatwater_watch.series.readings import Growth, Reading
from flatwater_watch.series.slope import Slope, drift_slope
from flatwater_watch.thresholds import SHIPPED

DRIFT, ENDING, OWNING, PAGE = (
    SHIPPED.drift,
    SHIPPED.ending,
    SHIPPED.owning,
    SHIPPED.investigating.minimum_bytes_per_step,
)

MAXIMUM_SAMPLES = 200
"""Maximum number of readings that are kept; the older half is thinned when there are more."""
MINIMUM_COUNT = 5
"""Minimum count of a boundary before growth is reported by it."""
MINIMUM_COUNT_PER_HALF = 2
"""Minimum count of a boundary in each half of the readings: a kind that comes at the beginning only is not regular."""
KINDS_SLOWEST_FIRST = ("epoch", "episode", "update", "step", "request")
"""Boundaries that are found without help, the most meaningful first: the order decides between equal counts."""


class Sample(NamedTuple):
    """One reading, with the counts of all boundaries then."""

    seconds: float
    """Seconds since the first boundary."""
    counts: Mapping[str, int]
    reading: Reading
    watch_overhead_bytes: int = 0
    """Resident bytes that were gained while the watch worked: its own, not the program's."""
    segments: Mapping[tuple[str, str], float] = MappingProxyType({})
    """Seconds so far by segment: the kind of a boundary, and the kind of the next one."""

    @property
    def resident(self) -> int:
        """Resident bytes of the program, without the watch's own."""
        return self.reading.resident - self.watch_overhead_bytes


@dataclass(frozen=True, eq=False, repr=False)
class Scale:
    """The conversion from boundaries to the unit in which growth is reported."""

    unit: str
    per_unit: float
    """Boundaries per unit."""
    step: int
    """Boundaries so far."""
    count: int
    """Units so far."""


def append_sample_(samples: list[Sample], sample: Sample) -> None:
    """Append a sample; the older half is thinned when there are more than `MAXIMUM_SAMPLES`."""
    samples.append(sample)
    if len(samples) > MAXIMUM_SAMPLES:
        del samples[1 : MAXIMUM_SAMPLES // 2 : 2]


def after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples after warm-up; at least one, unless there are none."""
    return samples[len(samples) // ENDING.warm_up_divisor :]


def recent_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The newer half of the samples; one sample at least, unless there are none."""
    return samples[len(samples) // 2 :]


def recent_peak(samples: Sequence[Sample]) -> int:
    """Most resident bytes of the process, the watch's own included, over the newer half of the samples."""
    return max((sample.reading.resident for sample in recent_half(samples)), default=0)


def choose_scale(samples: Sequence[Sample], unit: str | None = None) -> Scale:
    """The unit in which this program's growth is reported: its slowest regular boundary, or seconds.

    Args:
        samples: all readings, at least one.
        unit: kind of boundary that the user asked for; None takes the slowest regular one.
    """
    first, last = after_warm_up(samples)[0], samples[-1]
    boundaries = last.reading.step - first.reading.step
    chosen = unit or _slowest_kind(samples)
    if chosen == "second" or chosen not in last.counts:
        seconds = last.seconds - first.seconds
        return Scale("second", boundaries / seconds if seconds else 1.0, last.reading.step, round(last.seconds))
    count = last.counts[chosen] - first.counts.get(chosen, 0)
    return Scale(chosen, boundaries / count if count else 1.0, last.reading.step, last.counts[chosen])


def _slowest_kind(samples: Sequence[Sample]) -> str:
    """The kind of boundary that growth is reported by: the regular one of the smallest count, `second` without one."""
    last = samples[-1]
    # No reading may be near the middle: a census or a trace is followed by a long pause.
    middle = min(samples[:-1] or samples, key=lambda sample: abs(sample.reading.step - last.reading.step / 2))
    regular = {
        kind: last.counts[kind]
        for kind in KINDS_SLOWEST_FIRST
        if last.counts.get(kind, 0) >= MINIMUM_COUNT
        and min(middle.counts.get(kind, 0), last.counts[kind] - middle.counts.get(kind, 0)) >= MINIMUM_COUNT_PER_HALF
    }
    return min(regular, key=lambda kind: regular[kind]) if regular else "second"


def with_unit(finding: Finding, scale: Scale) -> Finding:
    """The finding per unit of the scale instead of per boundary."""

    def unit_at_step(step: int | None) -> int | None:
        """The unit in which a boundary falls, the present one at the earliest; None for None."""
        return None if step is None else scale.count + max(0, ceil((step - scale.step) / scale.per_unit))

    low, high = finding.interval
    return replace(
        finding,
        bytes_per_step=finding.bytes_per_step * scale.per_unit,
        interval=(low * scale.per_unit, high * scale.per_unit),
        plateau_step=unit_at_step(finding.plateau_step),
        limit_step=unit_at_step(finding.limit_step),
        unit=scale.unit,
    )


def with_limit_time(finding: Finding, limit: int | None, samples: Sequence[Sample], now: float) -> Finding:
    """The finding with the time at which memory runs out, if boundaries keep the pace that they had since warm-up.

    Args:
        finding: finding, per unit.
        limit: boundary at which memory runs out.
        samples: all readings.
        now: seconds since 1970.
    """
    first, last = after_warm_up(samples)[0], samples[-1]
    boundaries = last.reading.step - first.reading.step
    if limit is None or boundaries <= 0:
        return finding
    seconds_left = max(0, limit - last.reading.step) * (last.seconds - first.seconds) / boundaries
    return replace(finding, limit_time=now + seconds_left)


def finding_still_grows(finding: Finding, found_step: int, samples: Sequence[Sample]) -> bool:
    """Whether a finding's owner still grows: by at least `ENDING.minimum_remaining_rate_share` of the rate found.

    The growth is measured over the newest half of the readings since the finding, as a table that is being loaded grows
    like a leak until it is complete. Slowdowns and fillings always count as growing, and so does a finding that is only
    a few readings old.

    Args:
        finding: finding, per boundary.
        found_step: boundary at which it was found.
        samples: all readings.
    """
    newer = [sample for sample in samples if sample.reading.step >= found_step]
    if finding.verdict in {"slowdown", "filling"} or len(newer) <= ENDING.minimum_readings_since_finding:
        return True
    recent = newer[-1 - max(ENDING.recent_readings, len(newer) // 2) :]
    steps = recent[-1].reading.step - recent[0].reading.step
    if finding.owner == GARBAGE_OWNER:  # a collection frees garbage, and more comes
        grown = sum(
            max(0, _measured_gain(earlier.reading, later.reading, finding)) for earlier, later in pairwise(recent)
        )
    else:
        grown = _measured_gain(recent[0].reading, recent[-1].reading, finding)
    predicted = finding.bytes_per_step * steps
    if steps > 0 and predicted < PAGE:  # less than a page in all these readings does not count
        return False
    return grown >= ENDING.minimum_remaining_rate_share * predicted


def _measured_gain(before: Reading, after: Reading, finding: Finding) -> int:
    """Bytes gained between two readings in the kind of memory that the finding's verdict is about."""
    if finding.verdict == "retention":
        return (after.free or 0) - (before.free or 0)
    if finding.verdict == "mapped":
        return after.file_mapped - before.file_mapped
    live = (after.in_use or 0) - (before.in_use or 0)
    return max(after.unaccounted - before.unaccounted, live)


def growth_bytes(samples: Sequence[Sample]) -> int:
    """Resident bytes gained since warm-up."""
    after = after_warm_up(samples)
    return after[-1].resident - after[0].resident if after else 0


def swing_bytes(samples: Sequence[Sample]) -> int:
    """Difference of the highest and the lowest resident bytes since warm-up."""
    sizes = [sample.resident for sample in after_warm_up(samples)]
    return max(sizes) - min(sizes) if sizes else 0


def cap_native_rate(findings: Sequence[Finding], samples: Sequence[Sample]) -> list[Finding]:
    """The findings, with native growth limited to the growth that the measured owners leave unexplained.

    Args:
        findings: findings, per boundary.
        samples: all readings.
    """
    process_rate = growth_rate(samples)
    owned_rate = sum(finding.bytes_per_step for finding in findings if finding.verdict != "native")
    native_rate = process_rate - owned_rate
    capped = []
    for finding in findings:
        if finding.verdict != "native":
            capped.append(finding)
        elif native_rate > (1 - OWNING.explained_share) * process_rate:
            low, high = (min(bound, native_rate) for bound in finding.interval)
            rate = min(finding.bytes_per_step, native_rate)
            capped.append(
                replace(finding, bytes_per_step=rate, interval=(low, high), share=min(1.0, rate / process_rate))
            )
    return capped


def drop_unsure(findings: Sequence[Finding], samples: Sequence[Sample]) -> list[Finding]:
    """The findings, without the kinds that only much growth proves, while memory has grown by little.

    A library that runs the program, such as pytest, keeps a record of its work on purpose, and drops it with its last
    call. Growth without an object and a line may be the start of a library. An owner whose rate may as well be 0 may
    have been filled once. All of them are reported from the size on from which growth without a cause is reported too.

    Args:
        findings: findings of the monitor.
        samples: all readings.
    """
    large = growth_bytes(samples) >= ENDING.open_bytes
    return [
        finding
        for finding in findings
        if (has_proof(finding) or sure_bytes(finding, samples) >= ENDING.open_bytes)
        and (large or finding.verdict == "slowdown" or finding.interval[0] > 0)
        and (large or not is_of_library_call(finding.owner))
    ]


def sure_bytes(finding: Finding, samples: Sequence[Sample]) -> float:
    """Bytes since warm-up that a finding explains for sure: at the low bound of its rate, and no more than came."""
    after = after_warm_up(samples)
    steps = after[-1].reading.step - after[0].reading.step if after else 0
    return min(growth_bytes(samples), finding.interval[0] * steps)


def drop_immaterial(findings: Sequence[Finding], samples: Sequence[Sample]) -> list[Finding]:
    """The findings, without owners among objects if all of them together grew by less than a megabyte.

    Two censuses may have seen a burst while the rate over all censuses is next to nothing.

    Args:
        findings: findings, per boundary, with their rates over all censuses.
        samples: all readings.
    """
    steps = samples[-1].reading.step - samples[0].reading.step
    owned_rate = sum(finding.bytes_per_step for finding in findings if finding.holders)
    return [finding for finding in findings if not finding.holders or owned_rate * steps >= DRIFT.least_bytes]


def process_still_grows(samples: Sequence[Sample]) -> bool:
    """Whether the process has gained at least twice the bytes of a material rise, and still gains."""
    last = samples[-1]
    return last.resident - samples[0].resident >= max(
        2 * DRIFT.least_bytes, last.reading.material_bytes
    ) and grew_in_last_half(samples)


def grew_in_last_half(samples: Sequence[Sample]) -> bool:
    """Whether the last half of the readings after warm-up still shows growth. A cache that has filled fails this.

    Enough growth is a quarter of all growth since warm-up, or `ENDING.open_bytes` if that is less, and at least half of
    a material rise.
    """
    after = after_warm_up(samples)
    late_gain = samples[-1].resident - after[len(after) // 2].resident
    total_gain = samples[-1].resident - after[0].resident
    sufficient_gain = min(ENDING.minimum_late_share * total_gain, ENDING.open_bytes)
    return late_gain >= max(samples[-1].reading.material_bytes / 2, sufficient_gain)


def is_teardown_sample(samples: Sequence[Sample]) -> bool:
    """Whether the last reading was taken during teardown, so that it says nothing about the loop before."""
    # Resident bytes do not show it: the allocator may keep what is freed. So the unaccounted bytes are compared.
    if len(samples) <= ENDING.minimum_readings_since_finding:
        return False
    before, last = samples[-2].reading, samples[-1].reading
    grown = before.unaccounted - after_warm_up(samples)[0].reading.unaccounted
    return before.unaccounted - last.unaccounted >= max(before.material_bytes, ENDING.teardown_share * grown)


def owned_or_native(findings: list[Finding], samples: Sequence[Sample]) -> list[Finding]:
    """Findings that explain most of the resident growth; else a finding of native growth, if that is certain.

    For a program that ends before a finding was proven. Native growth: bytes that no Python object explains.
    """
    first, last = samples[0], samples[-1]
    explained_bytes = sum(finding.bytes_per_step for finding in findings) * (last.reading.step - first.reading.step)
    explains_most = explained_bytes >= ENDING.minimum_owned_share * (last.resident - first.resident)
    return drop_unsure(findings if explains_most else judge_native_at_end(samples), samples)


def judge_native_at_end(samples: Sequence[Sample]) -> list[Finding]:
    """The finding of growth that no object explains, for a program that ended before the monitor could be sure."""
    steps, values = (
        [sample.reading.step for sample in samples],
        [float(sample.reading.unaccounted) for sample in samples],
    )
    slope = drift_slope(
        steps,
        values,
        minimum=2 * samples[-1].reading.material_bytes,
        fewest=ENDING.minimum_native_readings,
        confidence=DRIFT.confidence,
    )
    return [] if slope is None else [judge_unowned("native", slope, process_growth(samples))]


def process_growth(samples: Sequence[Sample]) -> Growth:
    """Growth of the process since warm-up, per boundary."""
    last, rate = samples[-1].reading, growth_rate(samples)
    return Growth(last.step, last.resident, last.limit, Slope(rate, rate, rate), "boundary")


def boundaries_per_second(samples: Sequence[Sample]) -> float:
    """Boundaries per second since warm-up; infinite before the second reading."""
    first, last = after_warm_up(samples)[0], samples[-1]
    seconds = last.seconds - first.seconds
    return (last.reading.step - first.reading.step) / seconds if seconds > 0 else inf


def growth_rate(samples: Sequence[Sample]) -> float:
    """Resident bytes gained per boundary since warm-up; 0 before there are two readings."""
    first, last = after_warm_up(samples)[0], samples[-1]
    steps = last.reading.step - first.reading.step
    return (last.resident - first.resident) / steps if steps > 0 else 0.0


def explained_share(samples: Sequence[Sample], findings: Iterable[Finding]) -> float:
    """Share of the growth that has a cause: findings, freed memory, files, arrays touched for the first time.

    Args:
        samples: all readings.
        findings: findings, per boundary.

    Returns:
        Share from 0 to 1; 1 if the growth is too small to be distinguished from noise.
    """
    if len(samples) <= 1:
        return 1.0
    first, last = after_warm_up(samples)[0].reading, samples[-1].reading
    grown = growth_bytes(samples)
    if grown <= last.material_bytes:
        return 1.0
    owned = (
        sum(finding.share for finding in findings if finding.holders or finding.verdict in {"native", "leak"}) * grown
    )
    freed = max(0, (last.free or 0) - (first.free or 0))
    mapped = max(0, last.file_mapped - first.file_mapped)
    touched = max(0, last.owned_bytes - first.owned_bytes)
    return min(1.0, (owned + freed + mapped + touched) / grown)
