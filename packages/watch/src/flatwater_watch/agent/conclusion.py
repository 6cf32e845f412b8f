"""The outcome of a watch, decided from its readings, its findings, and the share of the growth that they explain.

A sample is one reading of the process. A root is a container that no other container holds, such as a global. A cause
is `Evidence` of growth, and becomes a finding once it is sure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from flatwater_watch.agent.census_history import HeldGrowth
from flatwater_watch.agent.growth import Sample, grew_in_last_half, growth_bytes, samples_after_warm_up
from flatwater_watch.agent.outcome import Outcome
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.judge import lies_below_root
from flatwater_watch.meters.fork import fork_unsafe_library
from flatwater_watch.thresholds import ENDING, OWNING
from flatwater_watch.units import format_bytes

if TYPE_CHECKING:
    from flatwater_watch.diagnose.garbage import Garbage


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
    filled_bytes: int = 0,
    held_growth: Sequence[HeldGrowth] = (),
) -> Outcome:
    """Return the outcome of a watch: its state, and sentences and advice on growth without a cause.

    The state is `unread` without samples, `grows` with findings, `unexplained` if other growth goes on, `settled` if
    it came at the beginning only, or `flat`.

    Args:
        samples: all readings.
        findings: all findings.
        explained_share: share of the growth that has a cause or is in full containers, 0 to 1.
        censuses: number of censuses taken.
        leads: roots that hold more than at the beginning, and by how many bytes; they may have stopped growing.
        garbage: cyclic garbage that is freed soon.
        refilled_paths: paths of containers that are emptied again and again.
        unsure_causes: causes that are not reported as findings, as memory has grown by little.
        filled_bytes: bytes gained in containers that are full by now.
        held_growth: growth of containers by the censuses, largest first.
    """
    if not samples:
        return Outcome("unread")
    garbage_bytes, garbage_notes = (0, []) if garbage is None else (garbage.bytes, [_garbage_sentence(garbage)])
    if findings or garbage:
        growth_without_cause = round((1 - explained_share) * growth_bytes(samples))
    else:  # `explained_share` counts freed memory too, which makes no finding: here only pages of files are taken off
        growth_without_cause = _growth_without_files(samples) - filled_bytes
    # Garbage that the next collection frees is not an open question, however much of it there is.
    open_bytes = max(0, growth_without_cause - garbage_bytes)
    notes = (*garbage_notes, *_unsure_sentences(unsure_causes))
    if open_bytes >= ENDING.open_bytes and grew_in_last_half(samples):
        lead_advice = _lead_advice(leads, findings, open_bytes)
        gain_sentences = _gain_sentences(samples, censuses, has_leads=bool(lead_advice), has_findings=bool(findings))
        sentences = (*notes, *map(_refilled_sentence, refilled_paths), *gain_sentences)
        advice = (*lead_advice, _longer_run_advice(samples), LIBRARY_ADVICE, NATIVE_ADVICE)
        return Outcome("grows" if findings else "unexplained", bytes=open_bytes, known=sentences, next=advice)
    kept_bytes = samples[-1].resident - samples[0].resident - garbage_bytes  # since the first reading
    if kept_bytes >= ENDING.open_bytes and not findings:
        return Outcome("settled", bytes=kept_bytes, known=notes, holders=_main_holders(held_growth, kept_bytes))
    return Outcome("grows") if findings else Outcome("flat", known=notes)


def _longer_run_advice(samples: Sequence[Sample]) -> str:
    return f"run it longer: {len(samples)} readings in {samples[-1].seconds:.0f} s were taken"


def _main_holders(held_growth: Sequence[HeldGrowth], kept_bytes: int) -> str:
    """Return the fewest containers that have gained half of the bytes: `a.CACHE (full), a.LOG (no longer grows)`.

    It is empty if all containers together have gained less than that. `held_growth` has the largest first.
    """
    texts, missing_bytes = [], ENDING.minimum_owned_share * kept_bytes
    for growth in held_growth:
        state = "full" if growth.is_full else "no longer grows"
        texts.append(f"{growth.path} ({state})")
        missing_bytes -= growth.bytes
        if missing_bytes <= 0:
            return ", ".join(texts)
    return ""


def _lead_advice(leads: Sequence[tuple[str, int]], findings: Sequence[Finding], open_bytes: int) -> list[str]:
    """Return a sentence for each root that has gained much beside the open bytes, and has no finding below it.

    The leads are roots, each with the bytes gained.
    """
    owners = [finding.owner for finding in findings]
    large_leads = []
    for path, size in leads:
        has_finding = any(lies_below_root(owner, path) for owner in owners)
        if size >= OWNING.minimum_reported_share * open_bytes and not has_finding:
            large_leads.append((path, size))
    return [
        f"look at {path}: it holds {format_bytes(size)} more than at the beginning"
        for path, size in large_leads[: OWNING.maximum_printed_findings]
    ]


def _growth_without_files(samples: Sequence[Sample]) -> int:
    """Return the resident bytes gained since warm-up, without pages of files, which the system takes back."""
    first, last = samples_after_warm_up(samples)[0].reading, samples[-1].reading
    return growth_bytes(samples) - max(0, last.file_mapped - first.file_mapped)


def _garbage_sentence(garbage: "Garbage") -> str:
    """Return a sentence on cyclic garbage: how much waits for the collector, and which collection frees it."""
    is_mostly_young = 2 * garbage.young_bytes > garbage.bytes
    collection = "collection of young objects" if is_mostly_young else "full collection"
    waiting_bytes = f"{format_bytes(garbage.bytes)} in cycles wait for the collector ({garbage.what})"
    return f"{waiting_bytes}: its next {collection} frees them"


def _unsure_sentences(causes: Sequence[Evidence]) -> Iterator[str]:
    """Yield a sentence on the causes with a proof (a line or an object), if any, and one on those without, if any.

    The first says that the growth ends with a call of a library, the second that no line is known.
    """
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
    """Return the first owner, and how many more there are: `train.TABLE (and 2 more)`."""
    return f"{owners[0]} (and {len(owners) - 1} more)" if len(owners) > 1 else owners[0]


def _refilled_sentence(path: str) -> str:
    """Return a sentence on a container that is emptied and filled again and again."""
    return f"{path} is emptied and filled again, which is not a leak: it may hold more each time"


def _gain_sentences(
    samples: Sequence[Sample], censuses: int, *, has_leads: bool, has_findings: bool
) -> tuple[str, ...]:
    """Return sentences on growth without a cause: how much of it are files and freed memory, and what was searched.

    Args:
        samples: all readings.
        censuses: number of censuses taken.
        has_leads: whether roots that hold more than at the beginning are named in the advice.
        has_findings: whether other growth has findings.
    """
    first, last = samples_after_warm_up(samples)[0].reading, samples[-1].reading
    files_phrase = f"{format_bytes(max(0, last.file_mapped - first.file_mapped))} of it are pages of mapped files"
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
    sentences = (files_phrase, freed_phrase, census_sentence)
    library = fork_unsafe_library()
    if library is None:
        return sentences
    # Garbage is searched for in a fork of the process, so that without a fork nothing is known of it.
    return (*sentences, f"cyclic garbage is not ruled out: no fork is made of a process with {library}")
