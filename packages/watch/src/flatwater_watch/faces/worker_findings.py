"""Findings in the workers that a program starts, summed by owner and merged with those of the program itself.

Each watched process leaves a summary, the JSON of `flatwater watch` on this process alone. Findings of several
processes are on the same growth if they have the same fingerprint. They are merged into one cause, which is the
evidence on an owner that grows, with rates in bytes per step of the program: a worker counts steps of its own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flatwater_watch.agent.boundaries import REQUEST
from flatwater_watch.agent.outcome import WORKERS_OWNER
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.judge import make_findings
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.series.readings import Growth, Scale
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import DRIFT, MEASURING
from flatwater_watch.units import format_bytes


@dataclass(frozen=True)
class _WorkerFinding:
    """A finding of one worker."""

    worker: Mapping[str, Any]
    """Summary of the worker."""
    finding: Finding

    @property
    def steps_per_second(self) -> float:
        """Steps of the worker, in its own unit, per second."""
        return float(self.worker["steps"]) / max(float(self.worker["seconds"]), 1e-9)  # no division by 0

    @property
    def grown_bytes(self) -> float:
        """Bytes by which the finding's owner grew while the worker was watched."""
        return self.finding.bytes_per_step * float(self.worker["steps"])


class _ProcessCause(NamedTuple):
    """One cause of growth, in one process or several."""

    evidence: Evidence
    limit: int | None
    """Bytes of the program, with the gain of its workers, at which memory ends; None if no limit is known."""
    may_forecast_end: bool = True
    """Whether the step at which memory ends may be reported."""


def add_workers(
    summary: dict[str, Any], workers: Sequence[Mapping[str, Any]], *, budget: int | None = None
) -> dict[str, Any]:
    """Return the summary of a program with its workers and their findings added; unchanged if none took a reading.

    Findings of workers on the same growth are merged into one cause; these causes are joined with those of the
    program's own process, and the findings on all processes are made of them.

    Args:
        summary: summary of the program's own process.
        workers: summaries of its workers, with `ended_at`.
        budget: bytes that the user allows all processes together; None if each has measured the machine's limit itself.
    """
    measured_workers = [worker for worker in workers if worker["readings"]]
    worker_fields = {"workers": [_worker_figures(worker) for worker in measured_workers]} if measured_workers else {}
    # Whether all workers together grow, as the watch in the program's own process has found.
    workers_grow = any(record["owner"] == WORKERS_OWNER for record in summary["findings"])
    groups = _group_findings(measured_workers, workers_grow=workers_grow)
    if not groups:
        return summary | worker_fields
    # Rates are per step of the program, whose own time may be shorter than that of its workers.
    summary = _use_workers_clock(summary, measured_workers)
    own_growth = max(0, summary["resident_growth_bytes"])
    workers_growth = sum(max(0, worker["resident_growth_bytes"]) for worker in measured_workers)
    total_growth = max(1, own_growth + workers_growth)  # at least 1, as shares are of it
    worker_causes = {
        fingerprint: _merge_group(group, summary, total_growth, budget) for fingerprint, group in groups.items()
    }
    workers_share = sum(min(1.0, cause.evidence.share) for cause in worker_causes.values())
    workers_rate = sum(cause.evidence.drift.per_step for cause in worker_causes.values())
    # Each cause's share is of the growth of all processes together, so the shares of the program's own causes shrink.
    own_causes = _own_causes(summary, own_growth / total_growth)
    causes = _join_causes(worker_causes, own_causes)
    findings = _make_joint_findings(causes, workers_rate, summary, measured_workers)
    # Of the program's own growth a share is explained, and this growth is a part of all.
    explained_share = summary["explained_share"] * own_growth / total_growth + workers_share
    # Growth of the program that has ended (`settled`) is no open question beside findings, perhaps in workers only.
    settled_changes = {"bytes": 0, "holders": ""} if summary["outcome"]["state"] == "settled" else {}
    return {
        **summary,
        **worker_fields,
        "held": _sum_owner_bytes(summary, measured_workers, {cause.evidence.owner for cause in worker_causes.values()}),
        "findings": [finding.to_json() for finding in findings],
        "explained_share": round(min(1.0, explained_share), 4),
        "resident_growth_bytes": total_growth,
        "outcome": summary["outcome"] | {"state": "grows"} | settled_changes,
        "cost": _sum_costs([summary, *measured_workers]),
        "processes": max(summary["processes"], 1 + len(measured_workers)),
        "unseen": [f"in the program's own process: {sentence}" for sentence in summary["unseen"]],
    }


def _own_causes(summary: Mapping[str, Any], process_share: float) -> dict[str, _ProcessCause]:
    """Return the causes of growth in the program's own process, by fingerprint.

    Args:
        summary: summary of this process.
        process_share: growth of this process, as a share of the growth of all processes.
    """
    findings = [Finding.from_json(record) for record in summary["findings"]]
    return {
        finding.fingerprint: _ProcessCause(
            _evidence_from_finding(finding, share=finding.share * process_share),
            finding.limit_bytes,
            may_forecast_end=finding.limit_step is not None,
        )
        for finding in findings
    }


def _join_causes(
    worker_causes: Mapping[str, _ProcessCause], own_causes: Mapping[str, _ProcessCause]
) -> list[_ProcessCause]:
    """Return the causes in the program's own process and in its workers; a cause in both, by fingerprint, becomes one.

    Growth of the workers as a whole, as the program's process sees it, is left out if their own causes explain it.
    """
    joined_causes = []
    for fingerprint, cause in worker_causes.items():
        own_cause = own_causes.get(fingerprint)
        joined_causes.append(cause if own_cause is None else _add_program_growth(cause, own_cause))
    joined_rate = sum(cause.evidence.drift.per_step for cause in joined_causes)
    causes_of_program_alone = []
    for fingerprint, cause in own_causes.items():
        if fingerprint in worker_causes:  # joined above
            continue
        # All workers together are one owner to the program's process, which says less than their own causes.
        enough_rate = MEASURING.minimum_workers_explained_share * cause.evidence.drift.per_step
        is_explained = cause.evidence.owner == WORKERS_OWNER and joined_rate >= enough_rate
        if not is_explained:
            causes_of_program_alone.append(cause)
    return [*causes_of_program_alone, *joined_causes]


def _add_program_growth(worker_cause: _ProcessCause, program_cause: _ProcessCause) -> _ProcessCause:
    """Return a cause in workers, with the growth of the same cause in the program's own process added."""
    worker_evidence, program_evidence = worker_cause.evidence, program_cause.evidence
    worker_slope, program_slope = worker_evidence.drift, program_evidence.drift
    evidence = replace(
        worker_evidence,
        drift=Slope(
            per_step=worker_slope.per_step + program_slope.per_step,
            low=worker_slope.low + program_slope.low,
            high=worker_slope.high + program_slope.high,
        ),
        share=worker_evidence.share + program_evidence.share,
        what=f"in the program itself, and {worker_evidence.what}",
    )
    return worker_cause._replace(evidence=evidence)


_EVIDENCE_FIELDS = (
    "verdict", "owner", "share", "what", "holders", "count", "plateau_bytes", "plateau_step", "advice", "redundancy",
    "outside", "parts", "made_at",
)  # fmt: skip
"""Fields of a finding that are taken over as evidence on all processes."""


def _evidence_from_finding(finding: Finding, **replacements: Any) -> Evidence:  # noqa: ANN401  (fields of `Evidence`)
    """Return the finding of one process as evidence on all processes, with `replacements` for some of its values."""
    low, high = finding.interval
    slope = Slope(per_step=finding.bytes_per_step, low=low, high=high)
    own_fields = {name: getattr(finding, name) for name in _EVIDENCE_FIELDS}
    return Evidence(**{"drift": slope, **own_fields, **replacements})


def _use_workers_clock(summary: dict[str, Any], workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary with the time of the workers, if the program counts seconds and its own time is shorter.

    A program that only waits for its workers takes no readings, so its own time is too short. If all workers count
    requests, as those of a server do, the steps of the program become all their requests.
    """
    if summary["unit"] != "second":  # the program counts steps of its own, such as updates
        return summary
    first_start = min(worker["ended_at"] - worker["seconds"] for worker in workers)
    seconds = max(worker["ended_at"] for worker in workers) - first_start
    all_count_requests = {worker["unit"] for worker in workers} == {REQUEST}
    if all_count_requests:
        steps = sum(worker["steps"] for worker in workers)
        return summary | {"unit": REQUEST, "seconds": max(round(seconds, 3), summary["seconds"]), "steps": steps}
    if summary["seconds"] >= seconds:
        return summary
    return summary | {"seconds": round(seconds, 3), "steps": round(seconds)}


def _seconds_per_unit(summary: Mapping[str, Any]) -> float:
    return 1.0 if summary["unit"] == "second" else summary["seconds"] / max(1, summary["steps"])


def _sum_owner_bytes(
    summary: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], owners: Collection[str]
) -> dict[str, int]:
    """Return the bytes by owner in the program, with those in its workers added for `owners`, which grew there."""
    # Other owners in a worker are the program's, inherited by the fork: they would count twice.
    sizes = dict(summary["held"])
    for worker in workers:
        for owner in worker["held"].keys() & owners:
            sizes[owner] = sizes.get(owner, 0) + worker["held"][owner]
    return sizes


def _sum_costs(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the cost of all watches together; the CPU share is that of all processes' CPU seconds."""
    costs = [summary["cost"] for summary in summaries]
    cpu_seconds = sum(cost["cpu_seconds"] for cost in costs)  # of the processes, their watches included
    watch_seconds = sum(cost["cpu_share"] * cost["cpu_seconds"] for cost in costs)
    return {
        "cpu_share": round(watch_seconds / cpu_seconds, 5) if cpu_seconds > 0 else 0.0,
        "cpu_seconds": round(cpu_seconds, 3),
        "bytes": sum(cost["bytes"] for cost in costs),
    }


def _worker_figures(worker: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a worker that the program's summary lists: its time, its growth, its number of findings."""
    fields = ("unit", "steps", "seconds", "readings", "resident_bytes", "resident_growth_bytes")
    return {name: worker[name] for name in fields} | {"findings": len(worker["findings"])}


def _group_findings(workers: Sequence[Mapping[str, Any]], *, workers_grow: bool) -> dict[str, list[_WorkerFinding]]:
    """Group the workers' findings by fingerprint, without slowdowns, and without groups of few bytes in all.

    Args:
        workers: summaries of all workers.
        workers_grow: whether all workers together grow, as the program sees them; if not, bytes that workers give back
            when they are replaced are left out.
    """
    groups: dict[str, list[_WorkerFinding]] = {}
    workers_by_end = sorted(workers, key=lambda worker: float(worker["ended_at"]))
    for worker in workers:
        for finding in (Finding.from_json(record) for record in worker["findings"]):
            if not VERDICTS[finding.verdict].is_of_bytes:  # a slowdown
                continue
            if workers_grow or not _is_given_back(worker, finding.owner, workers_by_end):
                groups.setdefault(finding.fingerprint, []).append(_WorkerFinding(worker, finding))
    minimum_bytes = 2 * DRIFT.least_bytes  # twice the material rise of one process
    return {
        fingerprint: group
        for fingerprint, group in groups.items()
        if sum(member.grown_bytes for member in group) >= minimum_bytes
    }


def _is_given_back(worker: Mapping[str, Any], owner: str, workers_by_end: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the bytes of an owner do not add up over the workers, as each gives them back when it is replaced.

    They do not if workers were replaced often enough, and this worker's owner is hardly larger than in the first ones.
    """
    # The bytes of some owners are not counted, such as those of native code: then the growth of workers is compared.
    is_counted = owner in worker["held"]

    def size(summary: Mapping[str, Any]) -> float:
        return float(summary["held"][owner] if is_counted else summary["resident_growth_bytes"])

    # Workers that ended before this worker began, or began after it had ended.
    predecessors_and_successors = [
        other
        for other in workers_by_end
        if not _live_at_once(worker, other) and (owner in other["held"] or not is_counted)
    ]
    generations = 1 + _generation_count(predecessors_and_successors)  # 1 for this worker
    if generations < MEASURING.minimum_generations:
        return False
    # The largest of those that ended first: if the bytes added up, the worker would have more.
    first_half = predecessors_and_successors[: (len(predecessors_and_successors) + 1) // 2]
    return size(worker) <= MEASURING.maximum_generation_growth * max(size(other) for other in first_half)


def _begin_and_end(worker: Mapping[str, Any]) -> tuple[float, float]:
    """Return when the watch of a worker began and when it ended, in seconds since 1970."""
    return worker["ended_at"] - worker["seconds"], worker["ended_at"]


def _live_at_once(worker: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    (begin, end), (other_begin, other_end) = _begin_and_end(worker), _begin_and_end(other)
    return begin < other_end and other_begin < end


def _generation_count(workers_by_end: Iterable[Mapping[str, Any]]) -> int:
    """Return the length of the longest succession of workers, in which each begins after the one before has ended.

    Args:
        workers_by_end: workers in the order of their ends, so that taking each that can follow gives the longest
            succession.
    """
    count, last_end = 0, 0.0
    for begin, end in map(_begin_and_end, workers_by_end):
        if begin >= last_end:
            count, last_end = count + 1, end
    return count


def _concurrent_count(group: Sequence[_WorkerFinding]) -> int:
    """Return the maximum number of a group's workers that lived at once: workers in succession do not add up."""
    # A sweep over times, each with the change of the number of workers; an end sorts before a start at the same time.
    lives = [_begin_and_end(member.worker) for member in group]
    starts, ends = [(begin, 1) for begin, _ in lives], [(end, -1) for _, end in lives]
    maximum = running_workers = 0
    for _, change in sorted(starts + ends):
        running_workers += change
        maximum = max(maximum, running_workers)
    return max(1, maximum)


def _merge_group(
    group: Sequence[_WorkerFinding], summary: Mapping[str, Any], total_growth: int, budget: int | None
) -> _ProcessCause:
    """Merge a group's findings into one cause, whose rate is that of all workers alive at once, per program step.

    Its words, its plateau and its limit are those of the finding with most bytes. A plateau is the size at which a
    buffer is full.
    """
    largest_member = max(group, key=lambda member: member.grown_bytes)
    largest_finding = largest_member.finding
    concurrent_workers = _concurrent_count(group)
    factors = _program_step_factors(group, summary, concurrent_workers)
    scaled_findings = list(zip(factors, (member.finding for member in group), strict=True))
    # Bytes per step of the program, with the bounds of the interval.
    rate = sum(factor * finding.bytes_per_step for factor, finding in scaled_findings)
    low = sum(factor * finding.interval[0] for factor, finding in scaled_findings)
    high = sum(factor * finding.interval[1] for factor, finding in scaled_findings)
    process_phrase = "in a worker process"
    if concurrent_workers > 1:
        process_phrase = f"in each of {concurrent_workers} worker processes"
        if summary["unit"] != REQUEST:
            process_phrase += f", {format_bytes(rate / concurrent_workers)} each"
    plateau = largest_finding.plateau_bytes
    evidence = _evidence_from_finding(
        largest_finding,
        drift=Slope(per_step=rate, low=low, high=high),
        share=sum(member.grown_bytes for member in group) / total_growth,
        what=f"{process_phrase}: {largest_finding.what}",
        plateau_bytes=None if plateau is None else plateau * concurrent_workers,  # of all workers alive at once
        plateau_step=_plateau_step_of_program(largest_member, summary),
    )
    return _ProcessCause(evidence, _joint_limit(largest_member, summary, budget))


def _program_step_factors(
    group: Sequence[_WorkerFinding], summary: Mapping[str, Any], concurrent_workers: int
) -> list[float]:
    """Return for each worker the factor from its bytes per own step to the bytes that it adds per program step."""
    if summary["unit"] == REQUEST:  # the steps of the program are those of its workers
        return [member.worker["steps"] / max(1, summary["steps"]) for member in group]
    # The mean of all workers, for as many as live at once.
    return [concurrent_workers * _seconds_per_unit(summary) / len(group) * member.steps_per_second for member in group]


def _plateau_step_of_program(member: _WorkerFinding, summary: Mapping[str, Any]) -> int | None:
    """Return the step of the program at which a worker's buffer will be full; None if it is not filling up."""
    worker_step = member.finding.plateau_step
    if worker_step is None:
        return None
    seconds_left: float = (worker_step - member.worker["steps"]) / member.steps_per_second
    steps: int = summary["steps"]
    return steps + round(seconds_left / _seconds_per_unit(summary))


def _joint_limit(member: _WorkerFinding, summary: Mapping[str, Any], budget: int | None) -> int | None:
    """Return the limit of all processes together, for a finding of a worker; None if no limit is known.

    It is in bytes of the program, with the bytes that its workers have gained.
    """
    limit: int | None = member.finding.limit_bytes
    if limit is None or budget is not None:  # the user's limit holds for all processes together already
        return limit
    # The worker's limit is the sum of its bytes and the system's free bytes at its beginning. A spawned worker begins
    # with far fewer bytes than the program holds, so the limit is moved from the worker's beginning to the program's.
    return limit + _bytes_at_beginning(summary) - _bytes_at_beginning(member.worker)


def _bytes_at_beginning(summary: Mapping[str, Any]) -> int:
    return int(summary["resident_bytes"] - max(0, summary["resident_growth_bytes"]))


def _make_joint_findings(
    causes: Sequence[_ProcessCause],
    workers_rate: float,
    summary: Mapping[str, Any],
    workers: Sequence[Mapping[str, Any]],
) -> list[Finding]:
    """Make findings on the causes, the fastest first, with the step at which all processes reach the limit together.

    Args:
        causes: causes in the program's own process and in its workers.
        workers_rate: growth of all workers together, in bytes per step of the program.
        summary: summary of the program's own process.
        workers: summaries of the workers.
    """
    steps, grown_bytes = summary["steps"], max(0, summary["resident_growth_bytes"])
    # Only the gain of the workers is added: a forked worker shares its first pages with the program.
    resident = summary["resident_bytes"] + sum(max(0, worker["resident_growth_bytes"]) for worker in workers)
    rate = grown_bytes / max(1, steps) + workers_rate
    steps_per_second = 1 / max(1e-9, _seconds_per_unit(summary))
    last_end = max(worker["ended_at"] for worker in workers)
    # One step is one unit, as the summary counts steps in the unit of the report.
    scale = Scale(
        summary["unit"], per_unit=1.0, step=steps, units=steps, steps_per_second=steps_per_second, now=last_end
    )
    # The rate of a sum of processes has no interval.
    whole_slope = Slope(per_step=rate, low=rate, high=rate)
    findings = []
    for evidence, limit, may_forecast_end in causes:
        growth = Growth(step=steps, resident=resident, limit=limit, whole=whole_slope, unit=summary["unit"])
        limit_step = None
        if may_forecast_end and limit is not None and rate > 0:
            limit_step = steps + round(max(0.0, limit - resident) / rate)
        findings += make_findings([evidence], growth, limit_step, scale=scale)
    return sorted(findings, key=lambda finding: -finding.bytes_per_step)
