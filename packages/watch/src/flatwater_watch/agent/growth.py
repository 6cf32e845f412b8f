"""The readings of a watched program, and figures of them: its growth, the share explained, the unit of reports.

Within the watch growth is measured per boundary of any kind, which is called a step: they come as long as the program
runs. Reports give it per update, episode or second. The conversion is the number of boundaries to one of these.
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
        # Every second one of the older half goes, and the first stays: it is the reference for all growth.
        del samples[1 : MAXIMUM_SAMPLES // 2 : 2]


def samples_after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples after warm-up; at least one, unless there are none."""
    return samples[len(samples) // ENDING.warm_up_divisor :]


def samples_from_step(samples: Sequence[Sample], step: float) -> Sequence[Sample]:
    """Return the samples at a step and after it."""
    return [sample for sample in samples if sample.reading.step >= step]


def recent_peak(samples: Sequence[Sample]) -> int:
    """Return the most resident bytes of the process, the watch's own included, over the newer half of the samples."""
    return max((sample.reading.resident for sample in samples[len(samples) // 2 :]), default=0)


def choose_scale(samples: Sequence[Sample], unit: str | None = None, now: float = 0.0) -> Scale:
    """Return the unit in which this program's growth is reported: its slowest regular boundary, or seconds.

    `unit` is the kind of boundary that the user asked for, if any; reports compute dates from `now`, in seconds since
    1970.
    """
    first, last = samples_after_warm_up(samples)[0], samples[-1]
    steps = last.reading.step - first.reading.step
    chosen_unit = unit or _slowest_kind(samples)
    if chosen_unit != "second" and chosen_unit in last.counts:
        unit_count = last.counts[chosen_unit]
        units: float = unit_count - first.counts.get(chosen_unit, 0)
    else:  # also if the unit that the user asked for has not come yet
        chosen_unit, unit_count = "second", round(last.seconds)
        units = last.seconds - first.seconds
    return Scale(
        unit=chosen_unit,
        per_unit=steps / units if units else 1.0,  # boundaries of any kind in one unit
        step=last.reading.step,
        units=unit_count,
        steps_per_second=boundaries_per_second(samples) if steps else 0.0,
        now=now,
    )


def _slowest_kind(samples: Sequence[Sample]) -> str:
    """Return the regular kind of boundary with the smallest count; `second` if no kind is regular."""
    last = samples[-1]
    # The sample nearest to the middle boundary: around it there may be none, as a long pause follows a census or trace.
    middle = min(samples[:-1] or samples, key=lambda sample: abs(sample.reading.step - last.reading.step / 2))
    regular_counts: dict[str, int] = {}
    for kind in KINDS_SLOWEST_FIRST:
        count, count_at_middle = last.counts.get(kind, 0), middle.counts.get(kind, 0)
        if count >= MINIMUM_COUNT and min(count_at_middle, count - count_at_middle) >= MINIMUM_COUNT_PER_HALF:
            regular_counts[kind] = count
    return min(regular_counts, key=lambda kind: regular_counts[kind]) if regular_counts else "second"


def cause_still_grows(cause: Evidence, found_step: int, samples: Sequence[Sample], shared_rate: float = 0.0) -> bool:
    """Return whether a cause still grows, by at least `ENDING.minimum_remaining_rate_share` of the rate found.

    The growth is measured over the newest part of the readings since the finding, as a table that is being loaded grows
    like a leak until it is complete. Slowdowns and fillings always count as growing, and so does a cause that was found
    a few readings ago. A cause whose rate predicts less than `MINIMUM_TOTAL_BYTES` there counts as stopped.

    All causes that share the growth of the process with this one have the rate `shared_rate` together. It counts up to
    the rate of the process until the finding, as items that two causes hold are in both rates.
    """
    if cause.verdict in {"slowdown", "filling"}:
        return True
    samples_since_finding = samples_from_step(samples, found_step)
    # The newer half of the boundaries from the finding to the last sample, from the last sample before the middle on:
    # what was gained between two readings counts too, as they are rare on a busy machine. A single reading after the
    # middle shows no growth.
    middle = (found_step + samples[-1].reading.step) / 2
    newest_half = samples_from_step(samples_since_finding, middle)
    if len(newest_half) > 1:
        newest_half = samples_since_finding[-len(newest_half) - 1 :]
    steps_of_half = newest_half[-1].reading.step - newest_half[0].reading.step if newest_half else 0
    # Readings are dense while memory rises, and rare on a busy machine. As many boundaries as the finding took, bursts
    # and pauses included, show whether the growth goes on, however few readings were taken there.
    half_outlasts_search = 0 < found_step - samples[0].reading.step <= steps_of_half
    if len(samples_since_finding) <= ENDING.minimum_readings_since_finding and not half_outlasts_search:
        return True  # found too lately to be judged
    reading_count = max(ENDING.recent_readings, len(samples_since_finding) // 2)
    recent_samples = newest_half if half_outlasts_search else samples_since_finding[-1 - reading_count :]
    steps = recent_samples[-1].reading.step - recent_samples[0].reading.step
    predicted_bytes = cause.rate.per_step * steps
    if steps > 0 and predicted_bytes < MINIMUM_TOTAL_BYTES:
        return False  # too few bytes to tell growth from noise
    first, found = samples[0].reading, samples_since_finding[0].reading
    rate_until_found = _gain_between_readings(first, found, cause) / max(1, found.step - first.step)
    rate = max(cause.rate.per_step, min(shared_rate, rate_until_found))
    return _gain_over_samples(recent_samples, cause) >= ENDING.minimum_remaining_rate_share * rate * steps


class LateGrowth(NamedTuple):
    """The growth from the middle third of the work to the last third, by medians of the readings."""

    begin: int
    """Boundary at which the last third begins."""
    rate: float
    """Bytes per boundary."""
    may_be_noise: bool
    """Whether the bytes gained are few beside the deviations of the readings in the last third."""


def late_growth(samples: Sequence[Sample]) -> LateGrowth | None:
    """Return the growth in the last third of the work; None if a third has too few readings.

    Readings are dense at the beginning, where memory rises, so that they do not show when that ended. Work is counted
    in the program's own boundaries, such as requests, if it has any: a server that waits at its end grows no more.
    """
    last = samples[-1]
    kinds = [kind for kind in KINDS_SLOWEST_FIRST if last.counts.get(kind, 0) >= MINIMUM_COUNT]
    kind = min(kinds, key=lambda kind: last.counts[kind], default=None)
    # One reading at each amount of work, the first: what follows without work is a wait.
    working_samples: dict[int, Sample] = {}
    for sample in samples:
        working_samples.setdefault(sample.reading.step if kind is None else sample.counts.get(kind, 0), sample)
    first_work, last_work = min(working_samples), max(working_samples)
    third = (last_work - first_work) // 3
    last_third = [sample.reading for work, sample in working_samples.items() if work >= last_work - third]
    middle_third = [
        sample.reading for work, sample in working_samples.items() if third <= work - first_work < 2 * third
    ]
    if min(len(last_third), len(middle_third)) < ENDING.minimum_readings_since_finding:
        return None
    gains = {
        name: median(getattr(reading, name) or 0 for reading in last_third)  # `in_use` may be None: unknown
        - median(getattr(reading, name) or 0 for reading in middle_third)
        for name in ("step", "unaccounted", "in_use", "children")
    }
    steps = gains.pop("step")
    # The largest of three kinds of bytes: none of them has all growth.
    kind_of_bytes = max(gains, key=lambda name: gains[name])
    late_values = [getattr(reading, kind_of_bytes) or 0 for reading in last_third]
    middle_value = median(late_values)
    noise = median(abs(value - middle_value) for value in late_values)
    gain = gains[kind_of_bytes]
    return LateGrowth(last_third[0].step, gain / steps, gain < ENDING.minimum_late_noise_ratio * noise)


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
    """Return the causes, with native growth cut to the rate that the owners leave, or dropped if they leave little."""
    process_rate = growth_rate(samples)
    # Bytes per boundary that no owner explains.
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

    Three kinds are dropped below `ENDING.open_bytes`. A library that runs the program, such as pytest, keeps a record
    of its work on purpose, and drops it with its last call. Growth without an object and a line may be the start of a
    library. An owner whose rate may as well be 0 may have been filled once.
    """
    has_grown_much = growth_bytes(samples) >= ENDING.open_bytes
    # In the order of the sentences above. A proof is an object or a line.
    return [
        cause
        for cause in causes
        if (has_grown_much or not lies_in_library_call(cause.owner))
        and (cause.has_proof or sure_bytes(cause, samples) >= ENDING.open_bytes)
        and (has_grown_much or not VERDICTS[cause.verdict].is_of_bytes or cause.rate.low > 0)
    ]


def sure_bytes(cause: Evidence, samples: Sequence[Sample]) -> float:
    """Return the bytes that a cause has surely gained since warm-up: at the low bound of its rate, and at most all."""
    settled_samples = samples_after_warm_up(samples)
    steps = settled_samples[-1].reading.step - settled_samples[0].reading.step if settled_samples else 0
    return min(growth_bytes(samples), cause.rate.low * steps)


def drop_immaterial(causes: Sequence[Evidence], samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes, without owners among objects if all of these grew by less than a megabyte together.

    Two censuses may have seen a burst while the rate over all censuses is next to nothing.
    """
    steps = samples[-1].reading.step - samples[0].reading.step
    owned_rate = sum(cause.rate.per_step for cause in causes if cause.holders)
    return [cause for cause in causes if not cause.holders or owned_rate * steps >= DRIFT.least_bytes]


def process_still_grows(samples: Sequence[Sample]) -> bool:
    """Return whether the process has gained a material number of bytes since the first reading, and still gains."""
    gain = samples[-1].resident - samples[0].resident
    # Twice the bytes that an owner must gain, as no object proves this growth.
    minimum_gain = max(2 * DRIFT.least_bytes, samples[-1].reading.material_bytes)
    return gain >= minimum_gain and grew_in_last_half(samples)


def grew_in_last_half(samples: Sequence[Sample]) -> bool:
    """Return whether memory grew in the last half of the boundaries after warm-up; a cache that is full does not.

    The growth there must be a quarter of all growth since warm-up, or `ENDING.open_bytes` if that is less, and at least
    half of a material rise.
    """
    # By boundaries, as readings are dense at the beginning, where a program loads and compiles, and rare later. The
    # most bytes of each half are compared, as a collection may free garbage at any of the readings.
    settled_samples = samples_after_warm_up(samples)
    middle = (settled_samples[0].reading.step + settled_samples[-1].reading.step) / 2
    earlier_peak = max(sample.resident for sample in settled_samples if sample.reading.step <= middle)
    late_gain = max(sample.resident for sample in settled_samples) - earlier_peak
    total_gain = samples[-1].resident - settled_samples[0].resident
    sufficient_gain = min(ENDING.minimum_late_share * total_gain, ENDING.open_bytes)
    return late_gain >= max(samples[-1].reading.material_bytes / 2, sufficient_gain)


def is_last_reading_valid(last: Reading, reading: Reading, *, is_traced: bool, is_in_loop: bool) -> bool:
    """Return whether a reading at the end can be kept, as it shows how growth went on since the last one.

    It cannot if memory was freed at the end, which is no end of growth, nor if a trace may have made the process
    larger.
    """
    gain = min(reading.resident - last.resident, reading.unaccounted_with_children - last.unaccounted_with_children)
    # Within the loop a small fall is noise; after it, only a rise is surely not of teardown.
    minimum_gain = -last.material_bytes if is_in_loop else last.material_bytes
    may_be_trace = is_traced and gain >= last.material_bytes
    return reading.step > last.step and minimum_gain < gain and not may_be_trace


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

    Those since the main code returned stay unless they are the minority. `check_last` removes the last one too, if it
    shows a teardown within the main code.
    """
    if 0 < 2 * count_after_main < len(samples):  # else most work is done by threads that the main code has started
        del samples[-count_after_main:]
    elif check_last and is_teardown_sample(samples):  # as of a nursery, which frees its tasks before `main` returns
        del samples[-1]


def causes_or_native_growth(causes: list[Evidence], samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes if they explain most of the resident growth, else evidence of native growth, if there is any.

    This is for a program that ends before a cause was proven. Of either, `drop_unsure` leaves some out. Native
    growth is bytes that no Python object explains.
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
    """Return the growth of the process since warm-up, per boundary."""
    last, rate = samples[-1].reading, growth_rate(samples)
    slope = Slope(per_step=rate, low=rate, high=rate)  # without uncertainty
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
    """Return the share of the growth, 0 to 1, that has a cause: findings, freed memory, files, arrays being filled.

    `filled_bytes`, those gained in containers that are full by now, count as well.

    It is 1 if the growth is too small to be told from noise.
    """
    if len(samples) <= 1:
        return 1.0
    first, last = samples_after_warm_up(samples)[0].reading, samples[-1].reading
    grown_bytes = growth_bytes(samples)
    if grown_bytes <= last.material_bytes:
        return 1.0
    # The other findings are on freed, mapped or declared memory, which the readings below count.
    owned_share = sum(finding.share for finding in findings if finding.holders or finding.verdict in {"native", "leak"})
    freed_bytes = max(0, (last.free or 0) - (first.free or 0))
    mapped_bytes = max(0, last.file_mapped - first.file_mapped)
    array_bytes = max(0, last.owned_bytes - first.owned_bytes)  # of a known size
    explained_bytes = owned_share * grown_bytes + freed_bytes + mapped_bytes + array_bytes + filled_bytes
    return min(1.0, explained_bytes / grown_bytes)
