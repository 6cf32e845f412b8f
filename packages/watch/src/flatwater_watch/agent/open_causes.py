"""The search for causes of growth that no finding explains, before a watch reports: garbage, native memory, roots.

A cause is `Evidence` of growth. Native memory is memory that no Python object holds. A root is a container that no
other container holds, such as a global. Garbage in cycles makes a sawtooth: memory rises, and falls at each collection.
"""

import gc
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from flatwater_watch.agent.conclusion import decide_outcome
from flatwater_watch.agent.growth import (
    Sample,
    boundaries_per_second,
    explained_share,
    growth_bytes,
    process_still_grows,
    samples_after_warm_up,
    samples_from_step,
    swing_bytes,
)
from flatwater_watch.agent.reading_schedule import REGULAR_COUNT
from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, NATIVE_OWNER, Evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.gc_sawtooth import gc_explains_growth, gc_sawtooth_evidence
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.meters.fork import fork_unsafe_library
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import ENDING, OWNING

if TYPE_CHECKING:
    from flatwater_watch.diagnose.monitor import Monitor
    from flatwater_watch.heap.census import Census


def find_open_causes(
    monitor: "Monitor",
    samples: Sequence[Sample],
    findings: Sequence[Finding],
    sawtooth: GcSawtooth | None,
    last_census: "Census | None",
    *,
    filled_bytes: int,
    may_pause: bool,
) -> tuple[list[Evidence], list[tuple[str, int]]]:
    """Search for causes of the growth that no finding explains, as the program ends.

    Args:
        monitor: has all that the watch has found so far, and makes the searches.
        samples: all readings.
        findings: all findings.
        sawtooth: figures of full collections; None if they are not known.
        last_census: census that was taken as the program ended; None takes one if a search needs it.
        filled_bytes: bytes gained in containers that are full by now.
        may_pause: whether the program may be paused for a search through the objects of a census.

    Returns:
        Evidence on garbage that waits for the collector, or on native memory. If there is none, also the roots that
        hold more than at the beginning, each with the bytes gained: they are leads, which prove nothing.
    """
    share = explained_share(samples, findings, filled_bytes)
    outcome = decide_outcome(samples, findings, share, filled_bytes=filled_bytes)
    if not outcome.next:  # without advice: all growth is explained, or has stopped
        return judge_collections(samples, findings, sawtooth, is_growing=False), []
    steps = samples[-1].reading.step - samples_after_warm_up(samples)[0].reading.step
    # The first search that finds a cause ends the search: the later ones prove less.
    causes = monitor.explain_open_bytes_at_end(outcome.bytes, steps, sawtooth)
    if not causes:
        garbage_bytes = 0 if monitor.ordinary_garbage is None else monitor.ordinary_garbage.bytes
        is_growing = outcome.bytes - garbage_bytes >= ENDING.open_bytes
        causes = judge_collections(samples, findings, sawtooth, is_growing=is_growing)
    if not causes:
        causes = monitor.confirm_unproven(outcome.bytes)
    if causes or not may_pause:
        return causes, []
    census = last_census or monitor.take_whole_census()  # one for both searches, as the program waits for it
    causes = monitor.find_behind_handles(outcome.bytes, census)
    return (causes, []) if causes else ([], monitor.root_gains(census))


def may_conclude(monitor: "Monitor", samples: Sequence[Sample], *, is_at_ticks: bool) -> bool:
    """Return whether growth without a finding may be explained by causes that are not proven, as the program ends.

    `is_at_ticks`: the program has no boundaries of its own, and was read at times of a clock.
    """
    # A set of paths that is greater than the other: some container is emptied and filled again, and is large enough to
    # explain the growth.
    if monitor.reset_tracker.periodically_emptied_paths > monitor.negligible_resets:
        return False
    # Data that is loaded at the beginning looks like a leak: only a program's own boundaries show that it repeats.
    # With many readings at boundaries, a leak would have become a finding already.
    is_likely = monitor.is_investigating if is_at_ticks else len(samples) <= ENDING.few_readings
    return is_likely and len(samples) >= REGULAR_COUNT and process_still_grows(samples)


def judge_collections(
    samples: Sequence[Sample], findings: Sequence[Finding], sawtooth: GcSawtooth | None, *, is_growing: bool
) -> list[Evidence]:
    """Return evidence on the garbage that full collections free, with its rate per step; empty without such garbage.

    `is_growing` says whether memory grows without a cause. Else garbage is reported only if no fork can search for it,
    and memory swings by `ENDING.open_bytes` or more.
    """
    is_reported_already = any(finding.owner == GARBAGE_OWNER for finding in findings)
    if sawtooth is None or is_reported_already:
        return []
    # The pace is 0 or `inf` before the program has passed a boundary in some time: then no rate can be given.
    steps_per_second = boundaries_per_second(samples)
    if not 0 < steps_per_second < inf or not gc_explains_growth(sawtooth):
        return []
    is_worth_reporting = is_growing or (fork_unsafe_library() is not None and swing_bytes(samples) >= ENDING.open_bytes)
    if not is_worth_reporting:
        return []
    rate = sawtooth.rise / sawtooth.seconds / steps_per_second  # bytes per boundary, between two collections
    return [gc_sawtooth_evidence(Slope(per_step=rate, low=rate, high=rate), collector_is_on=gc.isenabled())]


def split_native_garbage(
    causes: Sequence[Evidence], sawtooth: GcSawtooth | None
) -> tuple[list[Evidence], list[Evidence]]:
    """Take native growth out of the causes if it is garbage that full collections free.

    Returns:
        The other causes, and a list with the evidence on that garbage at the rate of the native growth. The list is
        empty if collections do not explain native growth, or if the garbage is among the causes already.
    """
    native = next((cause for cause in causes if cause.verdict == "native"), None)
    if native is None or not gc_explains_growth(sawtooth):
        return list(causes), []
    other_causes = [cause for cause in causes if cause is not native]
    if any(cause.owner == GARBAGE_OWNER for cause in other_causes):
        return other_causes, []
    return other_causes, [gc_sawtooth_evidence(native.drift, collector_is_on=gc.isenabled())]


def drop_native_in_roots(
    monitor: "Monitor", samples: Sequence[Sample], causes: list[Evidence], last_census: "Census | None"
) -> list[Evidence]:
    """Return the causes, without native growth if most of the bytes came in roots, as a census shows.

    A table that is loaded between two censuses looks like native growth until a census has seen it. If `last_census`,
    taken as the program ended, is None, one is taken.
    """
    if all(cause.owner != NATIVE_OWNER for cause in causes):
        return causes
    # A first census in slices takes long on a busy machine: no root has gained what had come by its end.
    samples_since_census = samples_from_step(samples, monitor.first_census_end)
    held_bytes = sum(size for _, size in monitor.root_gains(last_census))
    if held_bytes < OWNING.explained_share * growth_bytes(samples_since_census):
        return causes
    return [cause for cause in causes if cause.owner != NATIVE_OWNER]
