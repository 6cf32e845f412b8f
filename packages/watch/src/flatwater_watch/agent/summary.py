"""The summary of a watched program: the findings that hold now, and its state as the JSON of `flatwater watch`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flatwater_watch.agent.census_history import CensusHistory, with_census_rate
from flatwater_watch.agent.conclusion import decide_outcome
from flatwater_watch.agent.growth import (
    Sample,
    Scale,
    cap_native_rate,
    choose_scale,
    drop_immaterial,
    drop_unsure,
    explained_share,
    finding_still_grows,
    growth_bytes,
    process_growth,
)
from flatwater_watch.agent.outcome import WORKERS_OWNER
from flatwater_watch.agent.reading import unseen_sentences
from flatwater_watch.agent.slow_segments import with_slow_segment
from flatwater_watch.agent.workers import Workers, judge_workers
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.judge import limit_step, merge_same_cause, rank_findings, with_limit_step
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.thresholds import SHIPPED

if TYPE_CHECKING:
    from flatwater_watch.diagnose.garbage import Garbage

OWNING = SHIPPED.owning


def active_findings(
    findings: Sequence[Finding],
    samples: Sequence[Sample],
    found_steps: Mapping[str, int],
    history: CensusHistory,
    workers: Workers,
) -> list[Finding]:
    """The findings whose owners still grow, most bytes first, with their rates over all censuses.

    Args:
        findings: findings of the monitor, per boundary.
        samples: all readings.
        found_steps: step at which each owner was found, by owner; 0 for an owner that is missing.
        history: censuses so far.
        workers: sums of the child processes.
    """
    not_growing = stopped_owners(findings, samples, found_steps, history)
    active = [
        with_slow_segment(finding, samples)
        for finding in _with_census_rates(findings, history, samples)
        if finding.owner not in not_growing
    ]
    active = rank_findings(drop_unsure(drop_immaterial(cap_native_rate(active, samples), samples), samples))
    growth = process_growth(samples)
    joint_limit = limit_step(active, growth)  # the monitor's forecast knows the rates between two censuses only
    active = rank_findings(merge_same_cause([with_limit_step(finding, joint_limit) for finding in active]))
    of_workers = judge_workers(workers, growth)
    return active if of_workers is None else [*active, of_workers]


def stopped_owners(
    findings: Sequence[Finding], samples: Sequence[Sample], found_steps: Mapping[str, int], history: CensusHistory
) -> set[str]:
    """Owners that have stopped growing.

    Args:
        findings: findings of the monitor, per boundary.
        samples: all readings.
        found_steps: step at which each owner was found, by owner; 0 for an owner that is missing.
        history: censuses so far.
    """
    return {
        finding.owner
        for finding in _with_census_rates(findings, history, samples)
        if not finding_still_grows(finding, found_steps.get(finding.owner, 0), samples)
    }


def _with_census_rates(findings: Sequence[Finding], history: CensusHistory, samples: Sequence[Sample]) -> list[Finding]:
    owners = [finding.owner for finding in findings]
    return [with_census_rate(finding, history, owners, samples) for finding in findings]


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
    monitor_findings: Sequence[Finding] = (),
) -> dict[str, Any]:
    """The JSON of `flatwater watch`, without the program's command and the cost of the watch.

    Args:
        samples: all readings.
        findings: findings, per unit.
        unit: kind of boundary that the user asked for; None takes the slowest regular one.
        counts: boundaries so far, by kind.
        unread: number of objects that the last census could not read, by class.
        seconds: time since the first reading.
        censuses: number of censuses taken.
        leads: roots that hold more than at the beginning, and by how many bytes.
        garbage: cyclic garbage that is freed soon; None without any.
        refilled_paths: paths of containers that are emptied again and again.
        monitor_findings: findings of the monitor; those that are not sure yet get a sentence only.
    """
    scale = choose_scale(samples, unit) if samples else Scale("second", 1.0, 0, 0)
    share = explained_share(samples, [finding for finding in findings if finding.owner != WORKERS_OWNER])
    return _run_figures(samples, scale.unit, counts, seconds) | {
        "explained_share": round(share, 4),
        "outcome": decide_outcome(
            samples,
            findings,
            share,
            censuses=censuses,
            leads=leads,
            garbage=garbage,
            refilled_paths=refilled_paths,
            unsure_findings=_unsure_findings(monitor_findings, findings, samples),
        ).to_json(),
        "findings": [finding.to_json() for finding in findings],
        "unseen": unseen_sentences(samples, unread),
        "series": _series(samples, scale.unit),
    }


def _run_figures(
    samples: Sequence[Sample], unit: str, counts: Mapping[str, int], seconds: float
) -> dict[str, str | int | float]:
    """Figures of the run: its steps in the unit, seconds, readings and resident bytes."""
    return {
        "unit": unit,
        "steps": round(seconds) if unit == "second" else counts[unit],
        "seconds": round(seconds, 3),
        "readings": len(samples),
        "resident_bytes": footprint().resident,
        "resident_growth_bytes": growth_bytes(samples),
    }


def _unsure_findings(
    monitor_findings: Sequence[Finding], findings: Sequence[Finding], samples: Sequence[Sample]
) -> list[Finding]:
    """Findings of the monitor that are not sure yet, and whose owners are not reported."""
    sure = drop_unsure(monitor_findings, samples)
    reported_owners = {finding.owner for finding in findings}
    return [finding for finding in monitor_findings if finding not in sure and finding.owner not in reported_owners]


def _series(samples: Sequence[Sample], unit: str) -> dict[str, list[int] | list[float] | list[int | None]]:
    """The readings as columns of one length, for drawing; `growth.append_sample_` bounds their number."""
    return {
        "seconds": [round(sample.seconds, 3) for sample in samples],
        "steps": [round(sample.seconds) if unit == "second" else sample.counts.get(unit, 0) for sample in samples],
        "resident_bytes": [sample.resident for sample in samples],
        "file_bytes": [sample.reading.file_mapped for sample in samples],
        "freed_bytes": [sample.reading.free for sample in samples],
    }
