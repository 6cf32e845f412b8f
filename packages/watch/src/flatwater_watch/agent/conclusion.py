"""The outcome of a watch, decided from its readings, its findings, and the share of the growth that they explain."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from flatwater_watch.agent.growth import (
    Sample,
    after_warm_up,
    boundaries_per_second,
    grew_in_last_half,
    growth_bytes,
    swing_bytes,
)
from flatwater_watch.agent.outcome import WORKERS_OWNER, Outcome, State
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

ENDING, OWNING = SHIPPED.ending, SHIPPED.owning

LIBRARY_ADVICE = (
    "give what a library works with a name of your own (`model = Model(...)`, then `model.learn()`): a census begins "
    "at globals, local variables and threads of your program"
)
NATIVE_ADVICE = "`memray run --native` names the C function that allocates, if it is native code"


def decide_outcome(
    samples: Sequence[Sample],
    findings: Sequence[Finding],
    explained: float,
    *,
    censuses: int = 0,
    leads: Sequence[tuple[str, int]] = (),
    garbage: "Garbage | None" = None,
    refilled_paths: Iterable[str] = (),
    unsure_causes: Sequence[Evidence] = (),
) -> Outcome:
    """The outcome of a watched program.

    Args:
        samples: all readings.
        findings: findings.
        explained: share of the growth that has a cause, 0 to 1.
        censuses: number of censuses taken.
        leads: roots that hold more than at the beginning, and by how many bytes: no proof that they go on growing.
        garbage: cyclic garbage that is freed soon; None without any.
        refilled_paths: paths of containers that are emptied again and again.
        unsure_causes: causes that are not reported as findings, as memory has grown by little.
    """
    if not samples:
        return Outcome("unread")
    # Freed memory does not make a finding: without a finding, all growth but pages of files is an open question.
    open_bytes = (
        round((1 - explained) * growth_bytes(samples)) if findings or garbage else _growth_without_files(samples)
    )
    notes = (*(() if garbage is None else (_garbage_sentence(garbage),)), *_unsure_sentences(unsure_causes))
    # Garbage that the next collection frees is not an open question, however much of it there is.
    open_bytes -= 0 if garbage is None else min(open_bytes, garbage.bytes)
    if open_bytes >= ENDING.open_bytes and grew_in_last_half(samples):
        owners = [finding.owner for finding in findings]
        open_leads = [lead for lead in leads if not any(lies_below_root(owner, lead[0]) for owner in owners)]
        large = [(path, size) for path, size in open_leads if size >= OWNING.minimum_reported_share * open_bytes][
            : OWNING.maximum_printed_findings
        ]
        named_leads = [
            f"look at {path}: it holds {format_bytes(size)} more than at the beginning" for path, size in large
        ]
        longer_run = f"run it longer: {len(samples)} readings in {samples[-1].seconds:.0f} s were taken"
        state: State = "grows" if findings else "unexplained"
        gain_sentences = _gain_sentences(samples, censuses, has_leads=bool(named_leads), has_findings=bool(findings))
        sentences = (*notes, *map(_refilled_sentence, refilled_paths), *gain_sentences)
        return Outcome(state, open_bytes, sentences, (*named_leads, longer_run, LIBRARY_ADVICE, NATIVE_ADVICE))
    if findings:
        return Outcome("grows")
    kept_bytes = samples[-1].resident - samples[0].resident - (0 if garbage is None else garbage.bytes)
    return Outcome("settled", kept_bytes, notes) if kept_bytes >= ENDING.open_bytes else Outcome("flat", 0, notes)


def _growth_without_files(samples: Sequence[Sample]) -> int:
    """Resident bytes gained since warm-up, without pages of files, which the system takes back."""
    first, last = after_warm_up(samples)[0].reading, samples[-1].reading
    return growth_bytes(samples) - max(0, last.file_mapped - first.file_mapped)


def _garbage_sentence(garbage: "Garbage") -> str:
    """A sentence on garbage that waits for the collector, as garbage in cycles always does."""
    collection = "collection of young objects" if 2 * garbage.young > garbage.bytes else "full collection"
    waits = f"{format_bytes(garbage.bytes)} in cycles wait for the collector ({garbage.what})"
    return f"{waits}: its next {collection} frees them"


def _unsure_sentences(causes: Sequence[Evidence]) -> Iterator[str]:
    """A sentence on records that a library keeps until its call returns, and one on growth without a proof."""
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
    """A sentence on a container that did not leak, and may hold more and more at a time."""
    return f"{path} is emptied and filled again, which is not a leak: it may hold more each time"


def drop_rooted_native(
    causes: Sequence[Evidence], root_gains: Iterable[tuple[str, int]], resident_gain: int
) -> list[Evidence]:
    """The causes, without native growth if roots of the program hold the bytes that have come.

    A table that is loaded between two censuses looks like native growth until a census has seen it.

    Args:
        causes: evidence.
        root_gains: roots, and the bytes that each holds more than at the beginning.
        resident_gain: resident bytes gained.
    """
    if sum(size for _, size in root_gains) < OWNING.explained_share * resident_gain:
        return [*causes]
    return [cause for cause in causes if cause.owner != UNOWNED_KINDS["native"][0]]


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with most of the growth first; worker processes last, as their bytes are no part of it."""
    of_workers = [finding for finding in findings if finding.owner == WORKERS_OWNER]
    return [*sort_findings(finding for finding in findings if finding.owner != WORKERS_OWNER), *of_workers]


def split_native_garbage(
    causes: Sequence[Evidence], sawtooth: GcSawtooth | None
) -> tuple[list[Evidence], list[Evidence]]:
    """The causes without native growth that collections free, and the evidence on that garbage, per boundary.

    The second list is empty if collections do not explain native growth, or if the garbage is among the causes. It
    need not rise now to be reported: garbage comes and goes.
    """
    native = next((cause for cause in causes if cause.verdict == "native"), None)
    if native is None or not gc_explains_growth(sawtooth):
        return list(causes), []
    others = [cause for cause in causes if cause is not native]
    if any(cause.owner == GARBAGE_OWNER for cause in others):
        return others, []
    return others, [gc_sawtooth_evidence(native.drift, collecting=gc.isenabled())]


def judge_collections(
    samples: Sequence[Sample], findings: Sequence[Finding], sawtooth: GcSawtooth | None, *, growing: bool
) -> list[Evidence]:
    """The evidence on garbage that collections free, per boundary; empty if there is none.

    Args:
        samples: all readings.
        findings: findings so far.
        sawtooth: bytes that full collections free; None before enough collections were seen.
        growing: whether memory grows without a cause. If it does not, the garbage is reported only where no fork can
            search for it, and only if memory swings by as much as an open question needs.
    """
    pace = boundaries_per_second(samples)
    is_known = any(finding.owner == GARBAGE_OWNER for finding in findings)
    if sawtooth is None or is_known or not 0 < pace < inf or not gc_explains_growth(sawtooth):
        return []
    if not growing and (fork_unsafe_library() is None or swing_bytes(samples) < ENDING.open_bytes):
        return []
    rate = sawtooth.rise / sawtooth.seconds / pace
    return [gc_sawtooth_evidence(Slope(rate, rate, rate), collecting=gc.isenabled())]


def _gain_sentences(
    samples: Sequence[Sample], censuses: int, *, has_leads: bool, has_findings: bool
) -> tuple[str, ...]:
    """Sentences that say how much each kind of memory gained, and where the censuses found no object.

    Args:
        samples: all readings, one or more.
        censuses: number of censuses taken.
        has_leads: whether the outcome names roots that hold more than at the beginning.
        has_findings: whether there are findings.
    """
    first, last = after_warm_up(samples)[0].reading, samples[-1].reading
    files = f"{format_bytes(max(0, last.file_mapped - first.file_mapped))} of it are pages of mapped files"
    if last.free is None or first.free is None:
        freed = "freed memory that the allocator keeps is not ruled out: this C library does not tell"
    else:
        freed = f"{format_bytes(max(0, last.free - first.free))} of it were freed, and the allocator keeps them"
    times, other_word = f"{censuses} census{'' if censuses == 1 else 'es'}", "other " if has_findings else ""
    census_sentence = (
        f"what your globals, local variables and threads reach: {times} found no {other_word}container that explains it"
    )
    if has_leads:
        nothing = "nothing else" if has_findings else "nothing"
        census_sentence = (
            f"{times} saw {nothing} grow from one to the next; what has come since the beginning is named below"
        )
    elif censuses <= 1:
        census_sentence = f"objects of your program are not ruled out: {times} came to an end, and two are compared"
    library = fork_unsafe_library()
    cycles = "" if library is None else f"cyclic garbage is not ruled out: no fork is made of a process with {library}"
    return tuple(text for text in (files, freed, census_sentence, cycles) if text)
