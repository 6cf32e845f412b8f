"""The readings of a watched program, and figures of them: its growth, the share explained, the unit of reports.

A boundary is a place that the program passes again and again, such as the end of an episode. Within the watch growth is
measured per boundary of any kind, which is called a step: they come as long as the program runs. Reports give it per
update, episode or second. The conversion is the number of boundaries to one of these.

A sample is a reading with these counts; the first fifth of all samples is warm-up. A cause is `Evidence` of growth. Its
owner is the path of the container that grows, which `holders` describes; without holders the owner is a kind of memory,
such as native memory, which no Python object holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence, MeasuredGrowth, unowned_evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.heap.roots import lies_in_library_call
from flatwater_watch.series.readings import Growth, Reading, Scale
from flatwater_watch.series.slope import Slope, drift_slope
from flatwater_watch.thresholds import CASE, DRIFT, ENDING, OWNING

MINIMUM_TOTAL_BYTES = CASE.minimum_bytes_per_step
"""Minimum bytes that a cause gains over all recent readings together, as many as an owner must gain at a single step to
be reported on demand; below it, the cause has stopped."""

MAXIMUM_SAMPLES = 200
"""Maximum number of readings that are kept; the older half is thinned when there are more."""
MINIMUM_COUNT = 5
"""Minimum count of a boundary before growth is reported by it."""
MINIMUM_COUNT_PER_HALF = 2
"""Minimum count of a boundary in each half of the readings: a kind that comes at the beginning only is not regular."""
KINDS_SLOWEST_FIRST = ("epoch", "episode", "update", "step", "request")
"""Boundaries that are found without help, the most meaningful first: the order decides between equal counts."""


class Sample(NamedTuple):
    """One reading, with the counts of all boundaries at that moment."""

    seconds: float
    """Seconds since the first boundary."""
    counts: Mapping[str, int]
    reading: Reading
    watch_overhead_bytes: int = 0
    """Resident bytes that were gained while the watch worked, which are not the program's."""
    segments: Mapping[tuple[str, str], float] = MappingProxyType({})
    """Seconds so far by segment: the kind of a boundary, and the kind of the next one."""

    @property
    def resident(self) -> int:
        """Resident bytes of the program, without the watch's own."""
        return self.reading.resident - self.watch_overhead_bytes


def append_sample_(samples: list[Sample], sample: Sample) -> None:
    """Append a sample; the older half is thinned when there are more than `MAXIMUM_SAMPLES`."""
    samples.append(sample)
    if len(samples) > MAXIMUM_SAMPLES:
        # Every second sample of the older half goes, and the first stays: it is the reference for all growth.
        del samples[1 : MAXIMUM_SAMPLES // 2 : 2]


def samples_after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples without the first fifth, which is warm-up; at least one, unless there are none."""
    return samples[len(samples) // ENDING.warm_up_divisor :]


def samples_from_step(samples: Sequence[Sample], step: float) -> Sequence[Sample]:
    """Return the samples at a step and after it."""
    return [sample for sample in samples if sample.reading.step >= step]


def recent_peak(samples: Sequence[Sample]) -> int:
    """Return the most resident bytes of the process, the watch's own included, over the newer half of the samples."""
    return max((sample.reading.resident for sample in samples[len(samples) // 2 :]), default=0)


def choose_scale(samples: Sequence[Sample], unit: str | None = None, now: float = 0.0) -> Scale:
    """Return the unit in which this program's growth is reported, and the number of steps in one unit.

    Args:
        samples: all samples, at least one.
        unit: kind of boundary that the user asked for; None takes the slowest regular kind, or else seconds.
        now: seconds since 1970, from which reports compute dates.
    """
    first, last = samples_after_warm_up(samples)[0], samples[-1]
    steps_passed = last.reading.step - first.reading.step
    chosen_unit = unit or _slowest_kind(samples)
    if chosen_unit != "second" and chosen_unit in last.counts:
        unit_count = last.counts[chosen_unit]
        units_passed: float = unit_count - first.counts.get(chosen_unit, 0)
    else:  # also if the unit that the user asked for has not come yet
        chosen_unit, unit_count = "second", round(last.seconds)
        units_passed = last.seconds - first.seconds
    return Scale(
        unit=chosen_unit,
        per_unit=steps_passed / units_passed if units_passed else 1.0,
        step=last.reading.step,
        units=unit_count,
        steps_per_second=boundaries_per_second(samples) if steps_passed else 0.0,
        now=now,
    )


def _slowest_kind(samples: Sequence[Sample]) -> str:
    """Return the regular kind of boundary with the smallest count; `second` if no kind is regular.

    A kind is regular if it came `MINIMUM_COUNT` times in all, and `MINIMUM_COUNT_PER_HALF` times in each half of the
    steps.
    """
    last = samples[-1]
    # The sample nearest to the middle step: around it there may be none, as a long pause follows a census or trace.
    middle = min(samples[:-1] or samples, key=lambda sample: abs(sample.reading.step - last.reading.step / 2))
    regular_counts: dict[str, int] = {}
    for kind in KINDS_SLOWEST_FIRST:
        count, early_count = last.counts.get(kind, 0), middle.counts.get(kind, 0)
        late_count = count - early_count
        if count >= MINIMUM_COUNT and min(early_count, late_count) >= MINIMUM_COUNT_PER_HALF:
            regular_counts[kind] = count
    return min(regular_counts, key=lambda kind: regular_counts[kind]) if regular_counts else "second"


def cause_still_grows(cause: Evidence, found_step: int, samples: Sequence[Sample], shared_rate: float = 0.0) -> bool:
    """Return whether memory still grows by a share of the rate of a cause, after the cause was found.

    The share is `ENDING.minimum_remaining_rate_share`, and the newest samples decide: a table that is being loaded
    grows like a leak until it is complete. Slowdowns, fillings and causes that were found a few readings ago always
    count as growing; a cause whose rate predicts less than `MINIMUM_TOTAL_BYTES` over these samples counts as stopped.

    Args:
        cause: the cause, with its rate in bytes per step.
        found_step: step at which the cause was found.
        samples: all samples.
        shared_rate: rate of all causes together that share the growth of the process, this one included; 0 if it has a
            kind of memory for itself.
    """
    if cause.verdict in {"slowdown", "filling"}:
        return True
    samples_since_finding = samples_from_step(samples, found_step)
    recent_samples = _newest_samples_since_finding(samples, samples_since_finding, found_step)
    if not recent_samples:  # found too lately to be judged
        return True
    steps = recent_samples[-1].reading.step - recent_samples[0].reading.step
    predicted_bytes = cause.rate.per_step * steps
    if steps > 0 and predicted_bytes < MINIMUM_TOTAL_BYTES:
        return False  # too few bytes to tell growth from noise
    first, found = samples[0].reading, samples_since_finding[0].reading
    rate_until_found = _gain_between_readings(first, found, cause) / max(1, found.step - first.step)
    # Items that two causes hold are in both rates: their sum counts up to the rate of the process until the finding.
    rate = max(cause.rate.per_step, min(shared_rate, rate_until_found))
    return _gain_over_samples(recent_samples, cause) >= ENDING.minimum_remaining_rate_share * rate * steps


def _newest_samples_since_finding(
    samples: Sequence[Sample], samples_since_finding: Sequence[Sample], found_step: int
) -> Sequence[Sample]:
    """Return the newest samples since a finding, by which its growth is judged; empty if it is too early for that.

    They are the newer half by steps, if that lasts as long as the search that led to the finding, else by readings.
    """
    # From the last sample before the middle step on: what was gained between two readings counts too, as they are rare
    # on a busy machine. A single reading after the middle shows no growth.
    middle_step = (found_step + samples[-1].reading.step) / 2
    newer_half = samples_from_step(samples_since_finding, middle_step)
    if len(newer_half) > 1:
        newer_half = samples_since_finding[-len(newer_half) - 1 :]
    steps_of_half = newer_half[-1].reading.step - newer_half[0].reading.step if newer_half else 0
    # As many steps as the finding took, bursts and pauses included, show whether the growth goes on, however few
    # readings were taken in them.
    steps_of_search = found_step - samples[0].reading.step
    if 0 < steps_of_search <= steps_of_half:
        return newer_half
    if len(samples_since_finding) <= ENDING.minimum_readings_since_finding:
        return ()
    reading_count = max(ENDING.recent_readings, len(samples_since_finding) // 2)
    return samples_since_finding[-1 - reading_count :]


class LateGrowth(NamedTuple):
    """The growth from the middle third of the work to the last third, by medians of the readings."""

    begin: int
    """Step at which the last third begins."""
    rate: float
    """Bytes per step."""
    may_be_noise: bool
    """Whether the bytes gained are few beside the deviations of the readings in the last third."""


def late_growth(samples: Sequence[Sample]) -> LateGrowth | None:
    """Return the growth from the middle third of the work to the last; None if one of them has too few readings.

    Work is a number of boundaries, of the kind that `_reading_by_work` chooses. Thirds of the readings would not show
    when a rise ended, as readings are dense at the beginning.
    """
    reading_by_work = _reading_by_work(samples)
    first_work, last_work = min(reading_by_work), max(reading_by_work)
    third = (last_work - first_work) // 3
    last_third = [reading for work, reading in reading_by_work.items() if work >= last_work - third]
    middle_third = [reading for work, reading in reading_by_work.items() if third <= work - first_work < 2 * third]
    if min(len(last_third), len(middle_third)) < ENDING.minimum_readings_since_finding:
        return None
    steps = median(reading.step for reading in last_third) - median(reading.step for reading in middle_third)
    # Bytes gained by each of three measures, of which the largest counts: none of them shows all growth.
    gains = {
        field: median(_field_bytes(last_third, field)) - median(_field_bytes(middle_third, field))
        for field in ("unaccounted", "in_use", "children")
    }
    main_field = max(gains, key=lambda field: gains[field])
    late_values = _field_bytes(last_third, main_field)
    late_median = median(late_values)
    noise = median(abs(value - late_median) for value in late_values)
    gain = gains[main_field]
    may_be_noise = gain < ENDING.minimum_late_noise_ratio * noise
    return LateGrowth(begin=last_third[0].step, rate=gain / steps, may_be_noise=may_be_noise)


def _reading_by_work(samples: Sequence[Sample]) -> dict[int, Reading]:
    """Return the first reading at each amount of work; a later one without new work only shows that the program waits.

    Work is counted in the program's rarest boundaries, such as requests, or else in steps: a server that waits at its
    end grows no more.
    """
    last_counts = samples[-1].counts
    kinds = [kind for kind in KINDS_SLOWEST_FIRST if last_counts.get(kind, 0) >= MINIMUM_COUNT]
    kind = min(kinds, key=lambda kind: last_counts[kind], default=None)
    reading_by_work: dict[int, Reading] = {}
    for sample in samples:
        work = sample.reading.step if kind is None else sample.counts.get(kind, 0)
        reading_by_work.setdefault(work, sample.reading)
    return reading_by_work


def _field_bytes(readings: Sequence[Reading], field: str) -> list[int]:
    """Return a field of each reading, such as `in_use`; 0 where it is None, as the allocator did not say."""
    return [getattr(reading, field) or 0 for reading in readings]


def _gain_over_samples(samples: Sequence[Sample], cause: Evidence) -> int:
    """Return the bytes gained from the first sample to the last in the kind of memory that a cause is about."""
    if cause.owner != GARBAGE_OWNER:
        return _gain_between_readings(samples[0].reading, samples[-1].reading, cause)
    # The rises alone: a collection frees garbage, and more comes.
    return sum(
        max(0, _gain_between_readings(earlier.reading, later.reading, cause)) for earlier, later in pairwise(samples)
    )


def _gain_between_readings(earlier: Reading, later: Reading, cause: Evidence) -> int:
    """Return the bytes gained between two readings in the kind of memory that the cause's verdict is about."""
    if cause.verdict == "retention":
        return (later.free or 0) - (earlier.free or 0)
    if cause.verdict == "mapped":
        return later.file_mapped - earlier.file_mapped
    # The largest: freed memory that is used again is no resident growth, memory that does not come from the allocator
    # is not in use there, and child processes have memory of their own.
    allocated_gain = (later.in_use or 0) - (earlier.in_use or 0)
    return max(later.unaccounted - earlier.unaccounted, allocated_gain, later.children - earlier.children)


def growth_bytes(samples: Sequence[Sample]) -> int:
    """Return the resident bytes gained since warm-up, below 0 if memory fell; 0 without samples."""
    settled_samples = samples_after_warm_up(samples)
    return settled_samples[-1].resident - settled_samples[0].resident if settled_samples else 0


def swing_bytes(samples: Sequence[Sample]) -> int:
    """Return the difference of the highest and the lowest resident bytes since warm-up."""
    sizes = [sample.resident for sample in samples_after_warm_up(samples)]
    return max(sizes) - min(sizes) if sizes else 0


def cap_native_rate(causes: Sequence[Evidence], samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes, with native growth cut to the rate that the other causes leave, or dropped if that is little.

    Native growth is that of memory that no Python object holds.
    """
    process_rate = growth_rate(samples)
    # Bytes per step that no other cause explains.
    open_rate = process_rate - sum(cause.rate.per_step for cause in causes if cause.verdict != "native")
    leaves_enough = open_rate > (1 - OWNING.explained_share) * process_rate
    capped_causes = []
    for cause in causes:
        if cause.verdict != "native":
            capped_causes.append(cause)
        elif leaves_enough:
            rate = Slope(
                per_step=min(cause.rate.per_step, open_rate),
                low=min(cause.rate.low, open_rate),
                high=min(cause.rate.high, open_rate),
            )
            measured_growth = MeasuredGrowth(rate, min(1.0, rate.per_step / process_rate))
            capped_causes.append(replace(cause, measured=measured_growth))
    return capped_causes


def drop_unsure(causes: Sequence[Evidence], samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes, without those that only much growth proves, while memory has grown by little.

    Three kinds are dropped below `ENDING.open_bytes`: records of libraries, unproven growth, and uncertain rates.
    """
    has_grown_much = growth_bytes(samples) >= ENDING.open_bytes
    sure_causes = []
    for cause in causes:
        # A library that runs the program, such as pytest, keeps a record of its work until its last call returns.
        may_be_record = lies_in_library_call(cause.owner)
        # Growth without a proof, which is an object or a line, may be the start of a library.
        may_be_start = not cause.has_proof and sure_bytes(cause, samples) < ENDING.open_bytes
        # A container whose rate may as well be 0 may have been filled once.
        may_be_over = VERDICTS[cause.verdict].is_of_bytes and not cause.rate.low > 0
        if not may_be_start and (has_grown_much or not (may_be_record or may_be_over)):
            sure_causes.append(cause)
    return sure_causes


def sure_bytes(cause: Evidence, samples: Sequence[Sample]) -> float:
    """Return the bytes that a cause has surely gained since warm-up: by the low bound of its rate.

    They are at most the bytes that the process has gained.
    """
    settled_samples = samples_after_warm_up(samples)
    steps = settled_samples[-1].reading.step - settled_samples[0].reading.step if settled_samples else 0
    return min(growth_bytes(samples), cause.rate.low * steps)


def drop_immaterial(causes: Sequence[Evidence], samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes, without those that Python objects hold if all of these grew by less than a MiB together.

    Two censuses may have seen a burst while the rate over all censuses is next to nothing.
    """
    steps = samples[-1].reading.step - samples[0].reading.step
    owned_rate = sum(cause.rate.per_step for cause in causes if cause.holders)
    return [cause for cause in causes if not cause.holders or owned_rate * steps >= DRIFT.least_bytes]


def process_still_grows(samples: Sequence[Sample]) -> bool:
    """Return whether the process has gained 2 MiB since the first sample (more if it is large), and still gains.

    It still gains if it `grew_in_last_half`.
    """
    gain = samples[-1].resident - samples[0].resident
    # Twice the bytes that a container must gain, as no object proves this growth.
    minimum_gain = max(2 * DRIFT.least_bytes, samples[-1].reading.material_bytes)
    return gain >= minimum_gain and grew_in_last_half(samples)


def grew_in_last_half(samples: Sequence[Sample]) -> bool:
    """Return whether memory grew in the last half of the steps after warm-up, as that of a full cache does not.

    The growth there must be a quarter of all growth since warm-up, or `ENDING.open_bytes` if that is less, and at least
    half of `Reading.material_bytes`.
    """
    # By steps, as readings are dense at the beginning, where a program loads and compiles, and rare later. The peaks of
    # the halves are compared, as a collection may free garbage at any of the readings.
    settled_samples = samples_after_warm_up(samples)
    middle_step = (settled_samples[0].reading.step + settled_samples[-1].reading.step) / 2
    earlier_peak = max(sample.resident for sample in settled_samples if sample.reading.step <= middle_step)
    late_gain = max(sample.resident for sample in settled_samples) - earlier_peak
    total_gain = samples[-1].resident - settled_samples[0].resident
    sufficient_gain = min(ENDING.minimum_late_share * total_gain, ENDING.open_bytes)
    return late_gain >= max(samples[-1].reading.material_bytes / 2, sufficient_gain)


def is_last_reading_valid(previous: Reading, last: Reading, *, is_traced: bool, is_in_loop: bool) -> bool:
    """Return whether the reading at the program's end shows how its growth went on since the previous reading.

    It does not if memory was freed at the end, which is no end of growth, nor if a trace of allocations, which takes
    memory itself, may have made the process larger. `is_in_loop`: the program still works, and frees nothing yet.
    """
    unaccounted_gain = last.unaccounted_with_children - previous.unaccounted_with_children
    gain = min(last.resident - previous.resident, unaccounted_gain)
    # Within the loop a small fall is noise; after it, only a rise is surely not of teardown.
    minimum_gain = -previous.material_bytes if is_in_loop else previous.material_bytes
    may_be_trace = is_traced and gain >= previous.material_bytes
    return last.step > previous.step and minimum_gain < gain and not may_be_trace


def is_teardown_sample(samples: Sequence[Sample]) -> bool:
    """Return whether the last reading was taken during teardown, so that it says nothing about the loop before."""
    if len(samples) <= ENDING.minimum_readings_since_finding:  # too few to show what the loop gained before
        return False
    # Unaccounted bytes (resident, less files, declared state and the allocator's free memory) fall when objects are
    # freed, even if the allocator keeps the pages, and resident bytes stay.
    previous, last = samples[-2].reading, samples[-1].reading
    earlier_bytes = previous.unaccounted_with_children
    grown_bytes = earlier_bytes - samples_after_warm_up(samples)[0].reading.unaccounted_with_children
    freed_bytes = earlier_bytes - last.unaccounted_with_children
    return freed_bytes >= max(previous.material_bytes, ENDING.teardown_share * grown_bytes)


def drop_teardown_samples_(samples: list[Sample], count_after_main: int, *, check_last: bool) -> None:
    """Remove the samples that were taken while the program ended, as it frees memory then, and waits for threads.

    Args:
        samples: all samples, of which the last may be removed.
        count_after_main: number of samples since the main code returned. If they are half of all or more, they stay:
            the program's work is done by threads that the main code has started.
        check_last: whether the last sample is removed if it shows a teardown within the main code, as of a nursery that
            frees its tasks.
    """
    if 0 < 2 * count_after_main < len(samples):
        del samples[-count_after_main:]
    elif check_last and is_teardown_sample(samples):
        del samples[-1]


def causes_or_native_growth(causes: list[Evidence], samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes if they explain most of the resident growth, else evidence of native growth, if there is any.

    Native growth is that of memory that no Python object holds. Unsure causes of both kinds are left out. This is for a
    program that ends before a cause was proven.
    """
    first, last = samples[0], samples[-1]
    explained_bytes = sum(cause.rate.per_step for cause in causes) * (last.reading.step - first.reading.step)
    explains_most = explained_bytes >= ENDING.minimum_owned_share * (last.resident - first.resident)
    if explains_most:
        return drop_unsure(causes, samples)
    # Twice the material rise of an owner, as no object proves this growth.
    slope = drift_slope(
        [sample.reading.step for sample in samples],
        [float(sample.reading.unaccounted) for sample in samples],
        minimum=2 * samples[-1].reading.material_bytes,
        fewest=ENDING.minimum_native_readings,
        confidence=DRIFT.confidence,
    )
    native_causes = [] if slope is None else [unowned_evidence("native", slope, process_growth(samples))]
    return drop_unsure(native_causes, samples)


def process_growth(samples: Sequence[Sample]) -> Growth:
    """Return the mean growth of the process since warm-up, per boundary, without bounds of its uncertainty."""
    last, rate = samples[-1].reading, growth_rate(samples)
    slope = Slope(per_step=rate, low=rate, high=rate)
    return Growth(step=last.step, resident=last.resident, limit=last.limit, whole=slope, unit="boundary")


def boundaries_per_second(samples: Sequence[Sample]) -> float:
    """Return the boundaries per second since warm-up; infinite before the second reading."""
    first, last = samples_after_warm_up(samples)[0], samples[-1]
    seconds = last.seconds - first.seconds
    return (last.reading.step - first.reading.step) / seconds if seconds > 0 else inf


def growth_rate(samples: Sequence[Sample]) -> float:
    """Return the resident bytes gained per boundary since warm-up; 0 before there are two readings."""
    first, last = samples_after_warm_up(samples)[0], samples[-1]
    steps = last.reading.step - first.reading.step
    return (last.resident - first.resident) / steps if steps > 0 else 0.0


def explained_share(samples: Sequence[Sample], findings: Iterable[Finding], filled_bytes: int = 0) -> float:
    """Return the share of the growth, 0 to 1, that has a cause; 1 if the growth is too small to be told from noise.

    Causes are findings, memory that was freed and is kept by the allocator, pages of files, arrays of a known size that
    are being filled, and `filled_bytes`, the bytes gained in containers that are full by now.
    """
    if len(samples) <= 1:
        return 1.0
    first, last = samples_after_warm_up(samples)[0].reading, samples[-1].reading
    grown_bytes = growth_bytes(samples)
    if grown_bytes <= last.material_bytes:
        return 1.0
    # All other findings are on memory that the three differences below count.
    finding_share = sum(
        finding.share for finding in findings if finding.holders or finding.verdict in {"native", "leak"}
    )
    freed_bytes = max(0, (last.free or 0) - (first.free or 0))
    mapped_bytes = max(0, last.file_mapped - first.file_mapped)
    array_bytes = max(0, last.owned_bytes - first.owned_bytes)
    explained_bytes = finding_share * grown_bytes + freed_bytes + mapped_bytes + array_bytes + filled_bytes
    return min(1.0, explained_bytes / grown_bytes)
