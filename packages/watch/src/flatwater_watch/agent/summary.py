"""The summary of a watched program: the findings that hold now, and its state as the JSON of `flatwater watch`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from flatwater_watch.agent.census_history import CensusHistory, has_stopped, measure_growth
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

    Left out are unsure and immaterial causes, and early leaks if memory has become level. Native growth is cut to what
    the owners leave. A slowdown gets the segment of the loop that became slow.
    """
    segment = find_slow_segment(samples)
    growing_causes = [
        replace(cause, slow_segment=segment) if cause.verdict == "slowdown" else cause
        for cause in _measured_causes(causes, history, samples)
        if _still_grows(cause, samples, found_steps, history)
    ]
    rising_causes = _drop_leaks_if_level(growing_causes, samples, found_steps)
    capped_causes = cap_native_rate(rising_causes, samples)
    material_causes = drop_immaterial(capped_causes, samples)
    return drop_unsure(material_causes, samples)


def _drop_leaks_if_level(
    causes: list[Evidence], samples: Sequence[Sample], found_steps: Mapping[str, int]
) -> list[Evidence]:
    """Return the causes; if memory hardly grows in the last third, without the leaks that were found before it.

    Several causes may share one growth, so that the process is compared with the sum of their rates.
    """
    late = late_growth(samples) if samples else None
    if late is None:
        return causes
    begin, late_rate = late
    leaks = [
        cause
        for cause in causes
        if cause.holders
        and cause.verdict in {"leak", "cache", "backlog"}  # others are of other memory, or end by themselves
        and cause.owner != GARBAGE_OWNER  # which rises and falls
        and found_steps.get(cause.owner, 0) < begin
    ]
    if not leaks:
        return causes
    sufficient_rate = ENDING.minimum_remaining_rate_share * sum(cause.rate.per_step for cause in leaks)
    is_level = late_rate < sufficient_rate
    return [cause for cause in causes if not is_level or cause not in leaks]


def stopped_owners(
    causes: Sequence[Evidence], samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> set[str]:
    """Return the owners that have stopped growing, by the readings or by the censuses."""
    return {
        cause.owner
        for cause in _measured_causes(causes, history, samples)
        if not _still_grows(cause, samples, found_steps, history)
    }


def _still_grows(
    cause: Evidence, samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> bool:
    """Return whether a cause still grows, by the readings, and by the censuses if it is an owner."""
    owner_stopped = bool(cause.holders) and has_stopped(history, cause.owner)
    return not owner_stopped and cause_still_grows(cause, found_steps.get(cause.owner, 0), samples)


def _measured_causes(causes: Sequence[Evidence], history: CensusHistory, samples: Sequence[Sample]) -> list[Evidence]:
    """Return the causes, each with the growth of its owner over all censuses, if that could be measured."""
    owners = [cause.owner for cause in causes]
    return [replace(cause, measured=measure_growth(cause, history, owners, samples)) for cause in causes]


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

    Separate causes, such as workers, are no part of the growth of the process, and each is judged alone.
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
    """Return the causes, that of garbage with the bytes that full collections free."""
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
) -> dict[str, Any]:
    """Return the JSON of `flatwater watch`, without the program's command and the cost of the watch.

    Of the known causes those that are not sure yet get a sentence only. `decide_outcome` says what the other named
    arguments are.
    """
    scale = choose_scale(samples, unit) if samples else Scale(unit="second", per_unit=1.0, step=0, units=0)
    # Workers are left out, as their memory is no part of this process's growth.
    share = explained_share(samples, [finding for finding in findings if finding.owner != WORKERS_OWNER])
    return {
        "unit": scale.unit,
        "steps": round(seconds) if scale.unit == "second" else counts[scale.unit],
        "seconds": round(seconds, 3),
        "readings": len(samples),
        "resident_bytes": footprint().resident,
        "resident_growth_bytes": growth_bytes(samples),
        "explained_share": round(share, 4),
        "outcome": decide_outcome(
            samples,
            findings,
            share,
            censuses=censuses,
            leads=leads,
            garbage=garbage,
            refilled_paths=refilled_paths,
            unsure_causes=_unsure_causes(known_causes, findings, samples),
        ).to_json(),
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
