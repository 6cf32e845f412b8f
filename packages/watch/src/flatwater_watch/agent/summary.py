"""The summary of a watched program: the findings that hold now, and its state as the JSON of `flatwater watch`.

A sample is one reading of the process. A cause is `Evidence` of growth, and its owner the path of the container that
grows; without `holders` it is a kind of memory. Steps are boundaries that the program has passed, such as episodes; a
cause's `rate.per_step` is in bytes. `found_steps` has, by owner, the step at which each cause was found.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from flatwater_watch.agent.census_history import (
    CensusHistory,
    HeldGrowth,
    fallen_bytes,
    has_no_new_items,
    has_stopped,
    is_full,
    is_level_late,
    measured_causes,
)
from flatwater_watch.agent.conclusion import decide_outcome
from flatwater_watch.agent.growth import (
    Sample,
    cap_native_rate,
    cause_still_grows,
    choose_scale,
    drop_immaterial,
    drop_unsure,
    explained_share,
    growth_bytes,
    late_growth,
    process_growth,
)
from flatwater_watch.agent.outcome import WORKERS_OWNER
from flatwater_watch.agent.reading import unseen_sentences
from flatwater_watch.agent.slow_segments import find_slow_segment
from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence
from flatwater_watch.diagnose.finding import Finding, sort_findings
from flatwater_watch.diagnose.judge import NameCause, limit_step, make_findings, merge_related_causes
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.series.readings import Scale
from flatwater_watch.thresholds import ENDING

if TYPE_CHECKING:
    from flatwater_watch.diagnose.garbage import Garbage


def select_growing_causes(
    causes: Sequence[Evidence], samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> list[Evidence]:
    """Return the causes that still grow, each with its growth over all censuses.

    Left out are unsure and immaterial causes, early leaks if memory has become level, and containers that are full.
    Native growth, of memory that no object holds, is cut to what the other causes leave. A slowdown gets the segment of
    the loop that became slow.
    """
    segment = find_slow_segment(samples)
    measured = measured_causes(causes, history, samples)
    growing_causes = [
        replace(cause, slow_segment=segment) if cause.verdict == "slowdown" else cause
        for cause in _still_growing_causes(measured, samples, found_steps, history)
    ]
    rising_causes = _drop_leaks_if_level(growing_causes, samples, found_steps, history)
    capped_causes = cap_native_rate(rising_causes, samples)
    material_causes = drop_immaterial(capped_causes, samples)
    return [cause for cause in drop_unsure(material_causes, samples) if not is_full(history, cause)]


def stopped_owners(
    causes: Sequence[Evidence], samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> set[str]:
    """Return the owners that have stopped growing, by the readings or by the censuses.

    A container that is full explains the growth until then, and is none of them.
    """
    measured = measured_causes(causes, history, samples)
    growing_causes = _still_growing_causes(measured, samples, found_steps, history)
    return {cause.owner for cause in causes} - {cause.owner for cause in growing_causes}


def _still_growing_causes(
    causes: Sequence[Evidence], samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> list[Evidence]:
    """Return the causes that still grow, by the readings, and by the censuses if their owner is a container.

    Leaks share the growth of the process, so that it is compared with the sum of their rates. If other memory fell, and
    the readings cannot show whether they grow, they count as growing.
    """
    unfinished_causes = [cause for cause in causes if not _owner_has_stopped(cause, history)]
    leaks = _leaks(unfinished_causes)
    shared_rate = sum(cause.rate.per_step for cause in leaks)
    leaks_are_hidden = _growth_is_hidden(leaks, samples, history)
    growing_causes = []
    for cause in unfinished_causes:
        is_leak = cause in leaks
        found_step = found_steps.get(cause.owner, 0)
        if (is_leak and leaks_are_hidden) or cause_still_grows(
            cause, found_step, samples, shared_rate if is_leak else 0.0
        ):
            growing_causes.append(cause)
    return growing_causes


def _owner_has_stopped(cause: Evidence, history: CensusHistory) -> bool:
    """Return whether the censuses show that a cause's container has stopped growing; False without a container.

    If its bytes lie outside of Python (`cause.outside`), it is enough that it has no new items.
    """
    has_no_new_handles = cause.outside and has_no_new_items(history, cause.owner)
    return bool(cause.holders) and (has_no_new_handles or has_stopped(history, cause.owner))


def _drop_leaks_if_level(
    causes: list[Evidence], samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> list[Evidence]:
    """Return the causes; if memory hardly grows in the last third, without the leaks that were found before it."""
    late = late_growth(samples) if samples else None
    if late is None:
        return causes
    early_leaks = [cause for cause in _leaks(causes) if found_steps.get(cause.owner, 0) < late.begin]
    if not early_leaks or _growth_is_hidden(early_leaks, samples, history):
        return causes
    sufficient_rate = ENDING.minimum_remaining_rate_share * sum(cause.rate.per_step for cause in early_leaks)
    process_is_level = late.rate < sufficient_rate
    rising_causes = []
    for cause in causes:
        if cause in early_leaks:
            # A window that is full swings, and the swing may pass for slow growth: then its own censuses decide.
            is_over = process_is_level or (late.may_be_noise and is_level_late(history, cause.owner))
            if is_over:
                continue
        rising_causes.append(cause)
    return rising_causes


def _leaks(causes: Sequence[Evidence]) -> list[Evidence]:
    """Return the causes of endless growth in memory that Python objects hold: they share the growth of the process."""
    return [
        cause
        for cause in causes
        if cause.holders
        and cause.verdict in {"leak", "cache", "backlog"}  # others are of other memory, or end by themselves
        and cause.owner != GARBAGE_OWNER  # which rises and falls
    ]


def _growth_is_hidden(leaks: Sequence[Evidence], samples: Sequence[Sample], history: CensusHistory) -> bool:
    """Return whether other memory fell so much in the last third that readings do not show whether the leaks grow.

    It is enough if it lost as many bytes as the leaks must gain there to count as growing.
    """
    if not leaks:
        return False
    steps = (samples[-1].reading.step - samples[0].reading.step) / 3
    sufficient_bytes = ENDING.minimum_remaining_rate_share * steps * sum(cause.rate.per_step for cause in leaks)
    lost_bytes = fallen_bytes(history, [cause.owner for cause in leaks])
    return lost_bytes >= max(sufficient_bytes, samples[-1].reading.material_bytes)


def judge_causes(
    growing_causes: Sequence[Evidence],
    separate_causes: Sequence[Evidence],
    samples: Sequence[Sample],
    scale: Scale,
    *,
    sawtooth: GcSawtooth | None = None,
    root_gains: Sequence[tuple[str, int]] = (),
    name_cause: NameCause | None = None,
) -> list[Finding]:
    """Return the findings on causes, most bytes first; causes that one change mends become one finding.

    Args:
        growing_causes: causes of the growth of the process.
        separate_causes: causes that are no part of it, such as workers; each is judged alone, and comes last.
        samples: all readings, at least one.
        scale: unit in which growth is reported.
        sawtooth: figures of full collections, which evidence on garbage gets.
        root_gains: roots that hold more than at the beginning, each with the bytes gained.
        name_cause: function that gives evidence the names that people know.
    """
    growth = process_growth(samples)
    growing_causes = _add_sawtooth(growing_causes, sawtooth)
    separate_causes = _add_sawtooth(separate_causes, sawtooth)
    findings = make_findings(
        merge_related_causes(growing_causes),
        growth,
        full_step=limit_step(growing_causes, growth),  # where memory reaches its limit
        scale=scale,
        root_gains=root_gains,
        resident_gain=samples[-1].resident - samples[0].resident,
        name_cause=name_cause,
    )
    separate_findings = (
        make_findings([cause], growth, scale=scale, name_cause=name_cause) for cause in separate_causes
    )
    return [*findings, *chain.from_iterable(separate_findings)]


def _add_sawtooth(causes: Sequence[Evidence], sawtooth: GcSawtooth | None) -> list[Evidence]:
    """Return the causes; the one on cyclic garbage, if there is one, gets the figures of full collections."""
    return [replace(cause, gc_sawtooth=sawtooth) if cause.owner == GARBAGE_OWNER else cause for cause in causes]


def order_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, those with most of the process's growth first; worker processes, which are no part, last."""
    worker_findings = [finding for finding in findings if finding.owner == WORKERS_OWNER]
    return [*sort_findings(finding for finding in findings if finding.owner != WORKERS_OWNER), *worker_findings]


def build_summary(
    samples: Sequence[Sample],
    findings: Sequence[Finding],
    *,
    unit: str | None,
    counts: Mapping[str, int],
    unread: Mapping[str, int],
    seconds: float,
    censuses: int = 0,
    leads: Sequence[tuple[str, int]] = (),
    garbage: "Garbage | None" = None,
    refilled_paths: Iterable[str] = (),
    known_causes: Sequence[Evidence] = (),
    filled_bytes: int = 0,
    held_growth: Sequence[HeldGrowth] = (),
) -> dict[str, Any]:
    """Return the JSON of `flatwater watch`, without the program's command and the cost of the watch.

    `unit` is the kind of boundary that the user asked for. `counts` are boundaries by kind, `unread` unread objects by
    class. Unsure causes among the known ones get a sentence only. `decide_outcome` describes the other arguments.
    """
    scale = choose_scale(samples, unit) if samples else Scale(unit="second", per_unit=1.0, step=0, units=0)
    # Workers are left out, as their memory is no part of this process's growth.
    own_findings = [finding for finding in findings if finding.owner != WORKERS_OWNER]
    share = explained_share(samples, own_findings, filled_bytes)
    outcome = decide_outcome(
        samples,
        findings,
        share,
        censuses=censuses,
        leads=leads,
        garbage=garbage,
        refilled_paths=refilled_paths,
        unsure_causes=_unsure_causes(known_causes, findings, samples),
        filled_bytes=filled_bytes,
        held_growth=held_growth,
    )
    return {
        "unit": scale.unit,
        "steps": round(seconds) if scale.unit == "second" else counts[scale.unit],
        "seconds": round(seconds, 3),
        "readings": len(samples),
        "resident_bytes": footprint().resident,
        "resident_growth_bytes": growth_bytes(samples),
        "explained_share": 1.0 if outcome.state == "settled" else round(share, 4),  # of growth that is over: all
        "outcome": outcome.to_json(),
        "findings": [finding.to_json() for finding in findings],
        "unseen": unseen_sentences(samples, unread),
        "series": _reading_columns(samples, scale.unit),
    }


def _unsure_causes(
    known_causes: Sequence[Evidence], findings: Sequence[Finding], samples: Sequence[Sample]
) -> list[Evidence]:
    """Return the causes of the monitor that are not sure yet, and whose owners have no finding."""
    sure_causes = drop_unsure(known_causes, samples)
    reported_owners = {finding.owner for finding in findings}
    return [cause for cause in known_causes if cause not in sure_causes and cause.owner not in reported_owners]


def _reading_columns(samples: Sequence[Sample], unit: str) -> dict[str, list[int] | list[float] | list[int | None]]:
    """Return the readings by name of column, for drawing; `growth.append_sample_` bounds the number of rows.

    Freed bytes are None at readings at which the allocator gave no total.
    """
    return {
        "seconds": [round(sample.seconds, 3) for sample in samples],
        "steps": [round(sample.seconds) if unit == "second" else sample.counts.get(unit, 0) for sample in samples],
        "resident_bytes": [sample.resident for sample in samples],
        "file_bytes": [sample.reading.file_mapped for sample in samples],
        "freed_bytes": [sample.reading.free for sample in samples],
    }
