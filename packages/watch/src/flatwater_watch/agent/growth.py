"""The readings of a watched program and figures of them: growth, the share explained, findings per unit of the user's.

Internally growth is measured per boundary of any kind: a clock that runs as long as the program does. Reports give it
per update, episode or second. The conversion is the number of boundaries to one of these.
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
"""Boundaries that are found without help, the most meaningful ones first: the order decides between equal counts."""


class Sample(NamedTuple):
    """One reading, with the counts of all boundaries then."""

    seconds: float
    """Seconds since the first boundary."""
    counts: Mapping[str, int]
    reading: Reading
    watch_overhead_bytes: int = 0
    """Resident bytes that were gained while the watch worked: its own, not the program's."""
    parts: Mapping[tuple[str, str], float] = MappingProxyType({})
    """Seconds so far by pair: the kind of a boundary, and the kind of the next one."""

    @property
    def resident(self) -> int:
        """Resident bytes of the program, without the watch's own."""
        return self.reading.resident - self.watch_overhead_bytes


@dataclass(frozen=True, eq=False, repr=False)
class Scale:
    """The conversion from the clock of boundaries to the unit in which growth is reported."""

    unit: str
    per_unit: float
    """Boundaries per unit."""
    clock: int
    """Boundaries so far."""
    count: int
    """Units so far."""


def append_sample_(rows: list[Sample], row: Sample) -> None:
    """Append a row; the older half is thinned when there are more than 200."""
    rows.append(row)
    if len(rows) > MAXIMUM_SAMPLES:
        del rows[1 : MAXIMUM_SAMPLES // 2 : 2]


def after_warm_up(rows: Sequence[Sample]) -> Sequence[Sample]:
    """The rows after warm-up."""
    return rows[len(rows) // ENDING.warm_up_divisor :]


def recent_half(rows: Sequence[Sample]) -> Sequence[Sample]:
    """The newer half of the rows; one row at least, unless there are none."""
    return rows[len(rows) // 2 :]


def choose_scale(rows: Sequence[Sample], unit: str | None = None) -> Scale:
    """The unit in which this program's growth is reported: its slowest regular boundary, or seconds.

    Args:
        rows: at least one.
        unit: kind of boundary that the user asked for; None takes the slowest regular one.
    """
    first, last = after_warm_up(rows)[0], rows[-1]
    clock = last.reading.step - first.reading.step
    chosen = unit or _slowest_kind(rows)
    if chosen == "second" or chosen not in last.counts:
        seconds = last.seconds - first.seconds
        return Scale("second", clock / seconds if seconds else 1.0, last.reading.step, round(last.seconds))
    count = last.counts[chosen] - first.counts.get(chosen, 0)
    return Scale(chosen, clock / count if count else 1.0, last.reading.step, last.counts[chosen])


def _slowest_kind(rows: Sequence[Sample]) -> str:
    """The kind of boundary that growth is reported by: the regular one of the smallest count, `second` without one."""
    last = rows[-1]
    # No reading may be near the middle: a census or a trace is followed by a long pause.
    middle = min(rows[:-1] or rows, key=lambda row: abs(row.reading.step - last.reading.step / 2))
    regular = {
        kind: last.counts[kind]
        for kind in KINDS_SLOWEST_FIRST
        if last.counts.get(kind, 0) >= MINIMUM_COUNT
        and min(middle.counts.get(kind, 0), last.counts[kind] - middle.counts.get(kind, 0)) >= MINIMUM_COUNT_PER_HALF
    }
    return min(regular, key=lambda kind: regular[kind]) if regular else "second"


def with_unit(finding: Finding, scale: Scale) -> Finding:
    """The finding per unit of the scale instead of per boundary."""

    def at(step: int | None) -> int | None:
        """The unit in which a boundary falls, at the earliest the present one."""
        return None if step is None else scale.count + max(0, ceil((step - scale.clock) / scale.per_unit))

    low, high = finding.interval
    return replace(
        finding,
        bytes_per_step=finding.bytes_per_step * scale.per_unit,
        interval=(low * scale.per_unit, high * scale.per_unit),
        plateau_step=at(finding.plateau_step),
        limit_step=at(finding.limit_step),
        unit=scale.unit,
    )


def with_limit_time(finding: Finding, limit: int | None, rows: Sequence[Sample], now: float) -> Finding:
    """The finding with the time at which memory runs out, if boundaries keep the pace that they had since warm-up.

    Args:
        finding: finding, per unit.
        limit: boundary at which memory runs out.
        rows: all readings.
        now: seconds since 1970.
    """
    first, last = after_warm_up(rows)[0], rows[-1]
    boundaries = last.reading.step - first.reading.step
    if limit is None or boundaries <= 0:
        return finding
    seconds_left = max(0, limit - last.reading.step) * (last.seconds - first.seconds) / boundaries
    return replace(finding, limit_time=now + seconds_left)


def finding_still_grows(finding: Finding, found_step: int, rows: Sequence[Sample]) -> bool:
    """Whether a finding's owner still grows: by at least `ENDING.minimum_remaining_rate_share` of the rate found.

    The growth is measured over the newest half of the readings since the finding, as a table that is being loaded grows
    like a leak until it is complete. Slowdowns and fillings always count as growing, and so does a finding that is only
    a few readings old.

    Args:
        finding: finding, per boundary.
        found_step: boundary at which it was found.
        rows: all readings.
    """
    later = [row for row in rows if row.reading.step >= found_step]
    if finding.verdict in {"slowdown", "filling"} or len(later) <= ENDING.minimum_readings_since_finding:
        return True
    recent = later[-1 - max(ENDING.recent_readings, len(later) // 2) :]
    steps = recent[-1].reading.step - recent[0].reading.step
    if finding.owner == GARBAGE_OWNER:  # a collection frees garbage, and more comes
        grown = sum(
            max(0, _measured_gain(former.reading, latter.reading, finding)) for former, latter in pairwise(recent)
        )
    else:
        grown = _measured_gain(recent[0].reading, recent[-1].reading, finding)
    predicted = finding.bytes_per_step * steps
    if steps > 0 and predicted < PAGE:  # less than a page in all these readings is no growth
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


def growth_bytes(rows: Sequence[Sample]) -> int:
    """Resident bytes gained since warm-up."""
    after = after_warm_up(rows)
    return after[-1].resident - after[0].resident if after else 0


def swing_bytes(rows: Sequence[Sample]) -> int:
    """Difference of the highest and the lowest resident bytes since warm-up."""
    sizes = [row.resident for row in after_warm_up(rows)]
    return max(sizes) - min(sizes) if sizes else 0


def cap_native_rate(findings: Sequence[Finding], rows: Sequence[Sample]) -> list[Finding]:
    """The findings, with native growth limited to the growth that the measured owners leave unexplained.

    Args:
        findings: findings, per boundary.
        rows: all readings.
    """
    process_rate = growth_rate(rows)
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


def drop_unsure(findings: Sequence[Finding], rows: Sequence[Sample]) -> list[Finding]:
    """The findings, without the kinds that only much growth proves, while memory has grown by little.

    A library that runs the program, such as pytest, keeps a record of its work on purpose, and drops it with its last
    call. Growth without an object and a line may be the start of a library. Both kinds are reported from the size on
    from which growth without a cause is reported too.

    Args:
        findings: findings of the monitor.
        rows: all readings.
    """
    large = growth_bytes(rows) >= ENDING.open_bytes
    return [
        finding
        for finding in findings
        if (has_proof(finding) or sure_bytes(finding, rows) >= ENDING.open_bytes)
        and (large or not is_of_library_call(finding.owner))
    ]


def sure_bytes(finding: Finding, rows: Sequence[Sample]) -> float:
    """Bytes since warm-up that a finding explains for sure: at the low bound of its rate, and no more than came."""
    after = after_warm_up(rows)
    steps = after[-1].reading.step - after[0].reading.step if after else 0
    return min(growth_bytes(rows), finding.interval[0] * steps)


def drop_immaterial(findings: Sequence[Finding], rows: Sequence[Sample]) -> list[Finding]:
    """The findings, without owners among objects if all of them together grew by less than a megabyte.

    Two censuses may have seen a burst while the rate over all censuses is next to nothing.

    Args:
        findings: findings, per boundary, with their rates over all censuses.
        rows: all readings.
    """
    steps = rows[-1].reading.step - rows[0].reading.step
    owned_rate = sum(finding.bytes_per_step for finding in findings if finding.holders)
    return [finding for finding in findings if not finding.holders or owned_rate * steps >= DRIFT.least_bytes]


def process_still_grows(rows: Sequence[Sample]) -> bool:
    """Whether the process has gained a material amount since its beginning, and still gains."""
    last = rows[-1]
    return last.resident - rows[0].resident >= max(
        2 * DRIFT.least_bytes, last.reading.material_bytes
    ) and grew_in_last_half(rows)


def grew_in_last_half(rows: Sequence[Sample]) -> bool:
    """Whether the process still grew in the last half of the readings after warm-up: a warm cache does not."""
    after = after_warm_up(rows)
    late = rows[-1].resident - after[len(after) // 2].resident
    total_gain = rows[-1].resident - after[0].resident
    return late >= max(
        rows[-1].reading.material_bytes / 2, min(ENDING.minimum_late_share * total_gain, ENDING.open_bytes)
    )


def is_teardown_sample(rows: Sequence[Sample]) -> bool:
    """Whether the last reading was taken during teardown, so that it says nothing about the loop before."""
    # Resident bytes do not show it: the allocator may keep what is freed. So the unaccounted bytes are compared.
    if len(rows) <= ENDING.minimum_readings_since_finding:
        return False
    before, last = rows[-2].reading, rows[-1].reading
    grown = before.unaccounted - after_warm_up(rows)[0].reading.unaccounted
    return before.unaccounted - last.unaccounted >= max(before.material_bytes, ENDING.teardown_share * grown)


def owned_or_native(findings: list[Finding], rows: Sequence[Sample]) -> list[Finding]:
    """Findings that explain most of the resident growth; else a finding of native growth, if that is certain.

    For a program that ends before a finding was proven. Native growth: bytes that no Python object explains.
    """
    first, last = rows[0], rows[-1]
    explained_bytes = sum(finding.bytes_per_step for finding in findings) * (last.reading.step - first.reading.step)
    explains_most = explained_bytes >= ENDING.minimum_owned_share * (last.resident - first.resident)
    return drop_unsure(findings if explains_most else judge_native_at_end(rows), rows)


def judge_native_at_end(rows: Sequence[Sample]) -> list[Finding]:
    """The finding of growth that no object explains, for a program that ended before the monitor could be sure."""
    steps, values = [row.reading.step for row in rows], [float(row.reading.unaccounted) for row in rows]
    slope = drift_slope(
        steps,
        values,
        minimum=2 * rows[-1].reading.material_bytes,
        fewest=ENDING.minimum_native_readings,
        confidence=DRIFT.confidence,
    )
    return [] if slope is None else [judge_unowned("native", slope, process_growth(rows))]


def process_growth(rows: Sequence[Sample]) -> Growth:
    """Growth of the process since warm-up, per boundary."""
    last, rate = rows[-1].reading, growth_rate(rows)
    return Growth(last.step, last.resident, last.limit, Slope(rate, rate, rate), "boundary")


def boundaries_per_second(rows: Sequence[Sample]) -> float:
    """Boundaries per second since warm-up; infinite before the second reading."""
    first, last = after_warm_up(rows)[0], rows[-1]
    seconds = last.seconds - first.seconds
    return (last.reading.step - first.reading.step) / seconds if seconds > 0 else inf


def growth_rate(rows: Sequence[Sample]) -> float:
    """Resident bytes gained per boundary since warm-up; 0 before there are two readings."""
    first, last = after_warm_up(rows)[0], rows[-1]
    steps = last.reading.step - first.reading.step
    return (last.resident - first.resident) / steps if steps > 0 else 0.0


def explained_share(rows: Sequence[Sample], findings: Iterable[Finding]) -> float:
    """Share of the growth that has a cause: findings, freed memory, files, arrays touched for the first time.

    Args:
        rows: all readings.
        findings: findings, per boundary.

    Returns:
        0 to 1; 1 where the growth is too small to be told from noise.
    """
    if len(rows) <= 1:
        return 1.0
    first, last = after_warm_up(rows)[0].reading, rows[-1].reading
    grown = growth_bytes(rows)
    if grown <= last.material_bytes:
        return 1.0
    owned = (
        sum(finding.share for finding in findings if finding.holders or finding.verdict in {"native", "leak"}) * grown
    )
    freed = max(0, (last.free or 0) - (first.free or 0))
    mapped = max(0, last.file_mapped - first.file_mapped)
    touched = max(0, last.owned_bytes - first.owned_bytes)
    return min(1.0, (owned + freed + mapped + touched) / grown)
