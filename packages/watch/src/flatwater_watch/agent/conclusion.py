"""The outcome of a watch, decided from its readings, its findings, and the share of the growth that they explain."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from flatwater_watch.agent.growth import (
    Sample,
    boundaries_per_second,
    explained_share,
    grew_in_last_half,
    growth_bytes,
    process_still_grows,
    samples_after_warm_up,
    swing_bytes,
)
from flatwater_watch.agent.outcome import WORKERS_OWNER, Outcome, State
from flatwater_watch.agent.reading_schedule import REGULAR_COUNT
from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, UNOWNED_KINDS, Evidence
from flatwater_watch.diagnose.finding import Finding, sort_findings
from flatwater_watch.diagnose.gc_sawtooth import gc_explains_growth, gc_sawtooth_evidence
from flatwater_watch.diagnose.judge import lies_below_root
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.meters.fork import fork_unsafe_library
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import SHIPPED
from flatwater_watch.units import format_bytes

if TYPE_CHECKING:
    from flatwater_watch.diagnose.garbage import Garbage
    from flatwater_watch.diagnose.monitor import Monitor
    from flatwater_watch.heap.census import CompletedCensus

ENDING, OWNING = SHIPPED.ending, SHIPPED.owning

LIBRARY_ADVICE = (
    "give what a library works with a name of your own (`model = Model(...)`, then `model.learn()`): a census begins "
    "at globals, local variables and threads of your program"
)
NATIVE_ADVICE = "`memray run --native` names the C function that allocates, if it is native code"


def decide_outcome(
    samples: Sequence[Sample],
    findings: Sequence[Finding],
    explained_share: float,
    *,
    censuses: int = 0,
    leads: Sequence[tuple[str, int]] = (),
    garbage: "Garbage | None" = None,
    refilled_paths: Iterable[str] = (),
    unsure_causes: Sequence[Evidence] = (),
) -> Outcome:
    """Return the state of a watched program (flat, settled, grows, ...), with what is known of growth without a cause.

    Args:
        samples: all readings.
        findings: all findings.
        explained_share: share of the growth that has a cause, 0 to 1.
        censuses: number of censuses taken.
        leads: roots that hold more than at the beginning, and by how many bytes; they may have stopped growing.
        garbage: cyclic garbage that is freed soon; None without any.
        refilled_paths: paths of containers that are emptied again and again.
        unsure_causes: causes that are not reported as findings, as memory has grown by little.
    """
    if not samples:
        return Outcome("unread")
    garbage_bytes = 0 if garbage is None else garbage.bytes
    if findings or garbage:
        open_bytes = round((1 - explained_share) * growth_bytes(samples))
    else:  # `explained_share` counts freed memory too, which makes no finding: here only pages of files are taken off
        open_bytes = _growth_without_files(samples)
    # Garbage that the next collection frees is not an open question, however much of it there is.
    open_bytes -= min(open_bytes, garbage_bytes)
    notes = (*([] if garbage is None else [_garbage_sentence(garbage)]), *_unsure_sentences(unsure_causes))
    if open_bytes >= ENDING.open_bytes and grew_in_last_half(samples):
        lead_advice = _lead_advice(leads, findings, open_bytes)
        longer_run = f"run it longer: {len(samples)} readings in {samples[-1].seconds:.0f} s were taken"
        state: State = "grows" if findings else "unexplained"
        gain_sentences = _gain_sentences(samples, censuses, has_leads=bool(lead_advice), has_findings=bool(findings))
        sentences = (*notes, *map(_refilled_sentence, refilled_paths), *gain_sentences)
        advice = (*lead_advice, longer_run, LIBRARY_ADVICE, NATIVE_ADVICE)
        return Outcome(state, bytes=open_bytes, known=sentences, next=advice)
    if findings:
        return Outcome("grows")
    kept_bytes = samples[-1].resident - samples[0].resident - garbage_bytes
    if kept_bytes >= ENDING.open_bytes:
        return Outcome("settled", bytes=kept_bytes, known=notes)
    return Outcome("flat", known=notes)


def _lead_advice(leads: Sequence[tuple[str, int]], findings: Sequence[Finding], open_bytes: int) -> list[str]:
    """Return a sentence for each root that has gained a reportable share of the open bytes and holds no finding."""
    owners = [finding.owner for finding in findings]
    large_leads = [
        (path, size)
        for path, size in leads
        if size >= OWNING.minimum_reported_share * open_bytes
        and not any(lies_below_root(owner, path) for owner in owners)
    ]
    return [
        f"look at {path}: it holds {format_bytes(size)} more than at the beginning"
        for path, size in large_leads[: OWNING.maximum_printed_findings]
    ]


def _growth_without_files(samples: Sequence[Sample]) -> int:
    """Return the resident bytes gained since warm-up, without pages of files, which the system takes back."""
    first, last = samples_after_warm_up(samples)[0].reading, samples[-1].reading
    return growth_bytes(samples) - max(0, last.file_mapped - first.file_mapped)


def _garbage_sentence(garbage: "Garbage") -> str:
    """Return a sentence on garbage that waits for the collector, as garbage in cycles always does."""
    is_mostly_young = 2 * garbage.young_bytes > garbage.bytes
    collection = "collection of young objects" if is_mostly_young else "full collection"
    waiting_bytes = f"{format_bytes(garbage.bytes)} in cycles wait for the collector ({garbage.what})"
    return f"{waiting_bytes}: its next {collection} frees them"


def _unsure_sentences(causes: Sequence[Evidence]) -> Iterator[str]:
    """Yield a sentence on causes with a proof, which lie in a call of a library, and one on causes without a proof."""
    threshold = format_bytes(ENDING.open_bytes)
    proven = [cause.owner for cause in causes if cause.has_proof]
    unproven = [cause.owner for cause in causes if not cause.has_proof]
    if proven:
        owners = _first_names(proven)
        yield f"{owners} grows until this call of a library returns: no finding below {threshold} of growth"
    if unproven:
        names = _first_names(unproven)
        yield f"{names} grows; no line is known that makes it, and less than {threshold} of it are sure"


def _first_names(owners: Sequence[str]) -> str:
    return f"{owners[0]} (and {len(owners) - 1} more)" if len(owners) > 1 else owners[0]


def _refilled_sentence(path: str) -> str:
    """Return a sentence on a container that did not leak, and may hold more and more at a time."""
    return f"{path} is emptied and filled again, which is not a leak: it may hold more each time"


def drop_explained_native_growth(
    causes: Sequence[Evidence], root_gains: Iterable[tuple[str, int]], resident_gain: int
) -> list[Evidence]:
    """Return the causes; without native growth if the program's roots gained most of what the process gained.

    A table that is loaded between two censuses looks like native growth until a census has seen it.

    Args:
        causes: evidence on each cause.
        root_gains: roots, and the bytes that each holds more than at the beginning.
        resident_gain: resident bytes gained.
    """
    if sum(size for _, size in root_gains) < OWNING.explained_share * resident_gain:
        return [*causes]
    native_owner = UNOWNED_KINDS["native"][0]  # the name by which native growth is reported
    return [cause for cause in causes if cause.owner != native_owner]


def order_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, those with most of the process's growth first; worker processes, which are no part, last."""
    worker_findings = [finding for finding in findings if finding.owner == WORKERS_OWNER]
    return [*sort_findings(finding for finding in findings if finding.owner != WORKERS_OWNER), *worker_findings]


def split_native_garbage(
    causes: Sequence[Evidence], sawtooth: GcSawtooth | None
) -> tuple[list[Evidence], list[Evidence]]:
    """Take native growth that is garbage, which full collections free, out of the causes.

    Returns:
        The other causes, and the evidence on that garbage, per boundary; it is empty if collections do not explain the
        native growth, or if the garbage is among the causes already. Garbage comes and goes, so that it may be reported
        while it does not rise.
    """
    native = next((cause for cause in causes if cause.verdict == "native"), None)
    if native is None or not gc_explains_growth(sawtooth):
        return list(causes), []
    other_causes = [cause for cause in causes if cause is not native]
    if any(cause.owner == GARBAGE_OWNER for cause in other_causes):
        return other_causes, []
    return other_causes, [gc_sawtooth_evidence(native.drift, collecting=gc.isenabled())]


def judge_collections(
    samples: Sequence[Sample], findings: Sequence[Finding], sawtooth: GcSawtooth | None, *, is_growing: bool
) -> list[Evidence]:
    """Return the evidence on garbage that collections free, per boundary; empty if there is none.

    Args:
        samples: all readings.
        findings: findings so far.
        sawtooth: bytes that full collections free; None before enough collections were seen.
        is_growing: whether memory grows without a cause. Else the garbage is reported only if no fork can search for it
            and memory swings by `ENDING.open_bytes` or more.
    """
    steps_per_second = boundaries_per_second(samples)
    is_known = any(finding.owner == GARBAGE_OWNER for finding in findings)
    if sawtooth is None or is_known or not 0 < steps_per_second < inf or not gc_explains_growth(sawtooth):
        return []
    is_reported = is_growing or (fork_unsafe_library() is not None and swing_bytes(samples) >= ENDING.open_bytes)
    if not is_reported:
        return []
    rate = sawtooth.rise / sawtooth.seconds / steps_per_second
    return [gc_sawtooth_evidence(Slope(rate, rate, rate), collecting=gc.isenabled())]


def may_conclude(monitor: "Monitor", samples: Sequence[Sample], *, is_at_ticks: bool) -> bool:
    """Return whether growth without a finding may be explained by causes that are not proven, as the program ends.

    Args:
        monitor: monitor of the program.
        samples: all readings, one or more.
        is_at_ticks: whether readings were taken at ticks of a timer, and not at boundaries of the program.
    """
    # Sets of paths: the first has a container that the second lacks, if such a container may explain the growth itself.
    if monitor.reset_tracker.periodically_emptied_paths > monitor.negligible_resets:
        return False
    # Data that is loaded at the beginning looks like a leak: only a program's own boundaries show that it repeats.
    # With many readings at boundaries, a leak would have become a finding already.
    is_likely = monitor.is_investigating if is_at_ticks else len(samples) <= ENDING.few_readings
    return is_likely and len(samples) >= REGULAR_COUNT and process_still_grows(samples)


def find_open_causes(
    monitor: "Monitor",
    samples: Sequence[Sample],
    findings: Sequence[Finding],
    sawtooth: GcSawtooth | None,
    latest: "CompletedCensus | None",
    *,
    may_pause: bool,
) -> tuple[list[Evidence], list[tuple[str, int]]]:
    """Search for causes of the growth that no finding explains, as the program ends.

    Args:
        monitor: monitor of the program.
        samples: all readings, one or more.
        findings: findings so far, per boundary.
        sawtooth: bytes that full collections free; None before enough collections were seen.
        latest: census that was taken as the program ended; None takes one.
        may_pause: whether the program may be paused for a whole census.

    Returns:
        Evidence on garbage that waits for the collector, or on native memory. If there is none, also the roots that
        hold more than at the beginning, each with the bytes gained: they are leads, which prove nothing.
    """
    outcome = decide_outcome(samples, findings, explained_share(samples, findings))
    if not outcome.next:  # all growth is explained
        return judge_collections(samples, findings, sawtooth, is_growing=False), []
    steps = samples[-1].reading.step - samples_after_warm_up(samples)[0].reading.step
    causes = monitor.explain_open_bytes_at_end(outcome.bytes, steps, sawtooth)
    garbage_bytes = 0 if monitor.ordinary_garbage is None else monitor.ordinary_garbage.bytes
    is_open = outcome.bytes - garbage_bytes >= ENDING.open_bytes
    causes = causes or judge_collections(samples, findings, sawtooth, is_growing=is_open)
    causes = causes or monitor.confirm_unproven(outcome.bytes)
    if causes or not may_pause:
        return causes, []
    census = latest or monitor.take_whole_census()  # one for both searches, as the program waits for it
    causes = monitor.find_behind_handles(outcome.bytes, census)
    return causes, [] if causes else monitor.root_gains(census)


def _gain_sentences(
    samples: Sequence[Sample], censuses: int, *, has_leads: bool, has_findings: bool
) -> tuple[str, ...]:
    """Return sentences on the bytes that each kind of memory gained, and on what the censuses have ruled out.

    Args:
        samples: all readings, one or more.
        censuses: number of censuses taken.
        has_leads: whether the outcome names roots that hold more than at the beginning.
        has_findings: whether there are findings.
    """
    first, last = samples_after_warm_up(samples)[0].reading, samples[-1].reading
    files = f"{format_bytes(max(0, last.file_mapped - first.file_mapped))} of it are pages of mapped files"
    if last.free is None or first.free is None:
        freed_phrase = "freed memory that the allocator keeps is not ruled out: this C library does not tell"
    else:
        freed_phrase = f"{format_bytes(max(0, last.free - first.free))} of it were freed, and the allocator keeps them"
    census_count = f"{censuses} census{'' if censuses == 1 else 'es'}"
    if has_leads:
        nothing = "nothing else" if has_findings else "nothing"
        census_sentence = (
            f"{census_count} saw {nothing} grow from one to the next; what has come since the beginning is named below"
        )
    elif censuses <= 1:
        census_sentence = (
            f"objects of your program are not ruled out: {census_count} came to an end, and two are compared"
        )
    else:
        other = "other " if has_findings else ""
        census_sentence = (
            f"what your globals, local variables and threads reach: {census_count} found no {other}container that "
            "explains it"
        )
    library = fork_unsafe_library()
    cycles = "" if library is None else f"cyclic garbage is not ruled out: no fork is made of a process with {library}"
    return tuple(text for text in (files, freed_phrase, census_sentence, cycles) if text)
