"""Findings in the workers that a program starts, summed by owner and merged with those of the program itself."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flatwater_watch.agent.boundaries import REQUEST
from flatwater_watch.agent.outcome import WORKERS_OWNER
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.judge import judge
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.series.readings import Growth, Scale
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import SHIPPED
from flatwater_watch.units import format_bytes

DRIFT, MEASURING = SHIPPED.drift, SHIPPED.measuring


@dataclass(frozen=True)
class _WorkerFinding:
    """A finding of one worker."""

    worker: Mapping[str, Any]
    """Summary of the worker."""
    finding: Finding

    @property
    def per_second(self) -> float:
        """Units per second of the worker."""
        return float(self.worker["steps"]) / max(float(self.worker["seconds"]), 1e-9)

    @property
    def bytes(self) -> float:
        """Bytes that came while the worker was watched."""
        return self.finding.bytes_per_step * float(self.worker["steps"])


class _ProcessCause(NamedTuple):
    """One cause of growth in several processes."""

    evidence: Evidence
    limit: int | None
    """Bytes of the program and the gain of its workers at which memory ends; None if no limit is known."""
    is_dated: bool = True
    """Whether the time of that may be told."""


def with_workers(
    summary: dict[str, Any], workers: Sequence[Mapping[str, Any]], *, budget: int | None = None
) -> dict[str, Any]:
    """The summary of a program with the findings in its workers.

    Args:
        summary: summary of the program's own process.
        workers: summaries of its workers, with `ended_at`.
        budget: bytes that the user allows all processes together; None if each has measured the machine's limit itself.
    """
    read_workers = [worker for worker in workers if worker["readings"]]
    worker_fields = {"workers": [_worker_line(worker) for worker in read_workers]} if read_workers else {}
    groups = _group_findings(read_workers)
    if not groups:
        return summary | worker_fields
    summary = _in_worker_time(summary, read_workers)
    own_growth = max(0, summary["resident_growth_bytes"])
    total_growth = max(1, own_growth + sum(max(0, worker["resident_growth_bytes"]) for worker in read_workers))
    merged = {key: _merge_group(group, summary, total_growth, budget) for key, group in groups.items()}
    workers_share = sum(min(1.0, cause.evidence.share) for cause in merged.values())
    own_causes = _own_causes(summary, own_growth / total_growth)
    causes = [cause if (own := own_causes.get(key)) is None else _add_own(cause, own) for key, cause in merged.items()]
    explained_rate = sum(cause.evidence.drift.per_step for cause in causes)
    rest = [
        cause
        for key, cause in own_causes.items()
        if key not in merged
        and (
            cause.evidence.owner != WORKERS_OWNER
            or explained_rate < MEASURING.minimum_workers_explained_share * cause.evidence.drift.per_step
        )
    ]
    workers_rate = sum(cause.evidence.drift.per_step for cause in merged.values())
    findings = _judge_processes([*rest, *causes], workers_rate, summary, read_workers)
    share = summary["explained_share"] * own_growth / total_growth + workers_share
    return {
        **summary,
        **worker_fields,
        "held": _sum_owner_bytes(summary, read_workers, {cause.evidence.owner for cause in causes}),
        "findings": [finding.to_json() for finding in findings],
        "explained_share": round(min(1.0, share), 4),
        "resident_growth_bytes": total_growth,
        "outcome": summary["outcome"] | {"state": "grows"},
        "cost": _sum_costs([summary, *read_workers]),
        "processes": max(summary["processes"], 1 + len(read_workers)),
        "unseen": [f"in the program's own process: {sentence}" for sentence in summary["unseen"]],
    }


def _own_causes(summary: Mapping[str, Any], share: float) -> dict[str, _ProcessCause]:
    """The causes in the program's own process, by fingerprint.

    Args:
        summary: summary of this process.
        share: share of the growth of all processes that came in this one.
    """
    findings = [Finding.from_json(record) for record in summary["findings"]]
    return {
        finding.fingerprint: _ProcessCause(
            _evidence_of(finding, share=finding.share * share),
            finding.limit_bytes,
            is_dated=finding.limit_step is not None,
        )
        for finding in findings
    }


def _add_own(cause: _ProcessCause, own: _ProcessCause) -> _ProcessCause:
    """The same cause in workers and in the program's own process, as one."""
    of_workers, of_own = cause.evidence, own.evidence
    evidence = replace(
        of_workers,
        drift=Slope(*(ends[0] + ends[1] for ends in zip(of_workers.drift[:3], of_own.drift[:3], strict=True))),
        share=of_workers.share + of_own.share,
        what=f"in the program itself, and {of_workers.what}",
    )
    return cause._replace(evidence=evidence)


_EVIDENCE_FIELDS = (
    "verdict", "owner", "share", "what", "holders", "count", "plateau_bytes", "plateau_step", "advice", "redundancy",
    "outside", "parts", "made_at",
)  # fmt: skip
"""Fields of a finding that are evidence on all processes."""


def _evidence_of(finding: Finding, **facts: Any) -> Evidence:  # noqa: ANN401  (fields of `Evidence`)
    """The finding of one process, as evidence on all of them; `facts` are known better than there."""
    known = {name: getattr(finding, name) for name in _EVIDENCE_FIELDS}
    return Evidence(**{"drift": Slope(finding.bytes_per_step, *finding.interval), **known, **facts})


def _in_worker_time(summary: dict[str, Any], workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary by the clock of its workers if that runs longer: a program that only waits takes no reading."""
    end = max(worker["ended_at"] for worker in workers)
    seconds = end - min(worker["ended_at"] - worker["seconds"] for worker in workers)
    if summary["unit"] != "second":
        return summary
    if {worker["unit"] for worker in workers} == {REQUEST}:  # a server that only starts the processes that answer
        steps = sum(worker["steps"] for worker in workers)
        return summary | {"unit": REQUEST, "seconds": max(round(seconds, 3), summary["seconds"]), "steps": steps}
    return (
        summary if summary["seconds"] >= seconds else summary | {"seconds": round(seconds, 3), "steps": round(seconds)}
    )


def _seconds_per_unit(summary: Mapping[str, Any]) -> float:
    return 1.0 if summary["unit"] == "second" else summary["seconds"] / max(1, summary["steps"])


def _sum_owner_bytes(
    summary: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], owners: Collection[str]
) -> dict[str, int]:
    """Bytes by owner, in the program and, for owners that grew there, in its workers."""
    # Owners that did not grow in a worker are the program's, inherited by the fork: they would count twice.
    sizes = dict(summary["held"])
    for worker in workers:
        for owner in worker["held"].keys() & owners:
            sizes[owner] = sizes.get(owner, 0) + worker["held"][owner]
    return sizes


def _sum_costs(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The cost of all watches together; the CPU share is that of all their CPU seconds."""
    seconds = sum(summary["cost"]["cpu_seconds"] for summary in summaries)
    watch_seconds = sum(summary["cost"]["cpu_share"] * summary["cost"]["cpu_seconds"] for summary in summaries)
    return {
        "cpu_share": round(watch_seconds / seconds, 5) if seconds > 0 else 0.0,
        "cpu_seconds": round(seconds, 3),
        "bytes": sum(summary["cost"]["bytes"] for summary in summaries),
    }


def _worker_line(worker: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("unit", "steps", "seconds", "readings", "resident_bytes", "resident_growth_bytes")
    return {name: worker[name] for name in fields} | {"findings": len(worker["findings"])}


def _group_findings(workers: Iterable[Mapping[str, Any]]) -> dict[str, list[_WorkerFinding]]:
    """Findings of memory in workers, grouped by fingerprint, without slowdowns and without groups that rose little."""
    groups: dict[str, list[_WorkerFinding]] = {}
    for worker in workers:
        for finding in (Finding.from_json(record) for record in worker["findings"]):
            if VERDICTS[finding.verdict].is_of_bytes:
                groups.setdefault(finding.fingerprint, []).append(_WorkerFinding(worker, finding))
    least_bytes = 2 * DRIFT.least_bytes
    return {key: group for key, group in groups.items() if sum(member.bytes for member in group) >= least_bytes}


def _concurrent_count(group: Sequence[_WorkerFinding]) -> int:
    """Maximum workers of a group that lived at the same time: workers that follow each other are not summed."""
    # A sweep over starts and ends; an end sorts before a start at the same time.
    starts = [(member.worker["ended_at"] - member.worker["seconds"], 1) for member in group]
    ends = [(member.worker["ended_at"], -1) for member in group]
    maximum = running = 0
    for _, change in sorted(starts + ends):
        running += change
        maximum = max(maximum, running)
    return max(1, maximum)


def _merge_group(
    group: Sequence[_WorkerFinding], summary: Mapping[str, Any], total_growth: int, budget: int | None
) -> _ProcessCause:
    """One cause for a group, at the rate of all workers that live at once, per unit of the program.

    Args:
        group: findings of one fingerprint.
        summary: summary of the program's own process, by the clock of its workers.
        total_growth: bytes that the program and all workers have gained.
        budget: bytes that the user allows all processes together; None for the machine's limit.
    """
    main_member = max(group, key=lambda member: member.bytes)
    largest = main_member.finding
    simultaneous = _concurrent_count(group)
    if summary["unit"] == REQUEST:  # the steps of the program are those of its workers
        scales = [member.worker["steps"] / max(1, summary["steps"]) for member in group]
    else:
        scales = [simultaneous * _seconds_per_unit(summary) / len(group) * member.per_second for member in group]
    rate = sum(scale * member.finding.bytes_per_step for scale, member in zip(scales, group, strict=True))
    low, high = (
        sum(scale * member.finding.interval[end] for scale, member in zip(scales, group, strict=True)) for end in (0, 1)
    )
    plateau, full_step = largest.plateau_bytes, largest.plateau_step
    if full_step is not None:
        seconds_left = (full_step - main_member.worker["steps"]) / main_member.per_second
        full_step = summary["steps"] + round(seconds_left / _seconds_per_unit(summary))
    each = "in a worker process" if simultaneous == 1 else f"in each of {simultaneous} worker processes"
    holds = f", {format_bytes(rate / simultaneous)} each" if simultaneous > 1 and summary["unit"] != REQUEST else ""
    evidence = _evidence_of(
        largest,
        drift=Slope(rate, low, high),
        share=sum(member.bytes for member in group) / total_growth,
        what=f"{each}{holds}: {largest.what}",
        plateau_bytes=None if plateau is None else plateau * simultaneous,
        plateau_step=full_step,
    )
    return _ProcessCause(evidence, _joint_limit(main_member, summary, budget))


def _joint_limit(member: _WorkerFinding, summary: Mapping[str, Any], budget: int | None) -> int | None:
    """Bytes that the program holds, and its workers have gained, when memory ends; None if no limit is known."""
    limit = member.finding.limit_bytes
    if limit is None or budget is not None:
        return limit
    # The worker's limit is the sum of its bytes and the system's free bytes at its beginning. A spawned worker begins
    # with far fewer bytes than the program holds, so the limit is moved from the worker's beginning to the program's.
    return limit + _bytes_at_beginning(summary) - _bytes_at_beginning(member.worker)


def _bytes_at_beginning(summary: Mapping[str, Any]) -> int:
    return int(summary["resident_bytes"] - max(0, summary["resident_growth_bytes"]))


def _judge_processes(
    causes: Sequence[_ProcessCause],
    workers_rate: float,
    summary: Mapping[str, Any],
    workers: Sequence[Mapping[str, Any]],
) -> list[Finding]:
    """Make the findings, the fastest first, with the step at which all processes together reach the limit.

    Args:
        causes: causes in the program and in its workers.
        workers_rate: bytes by which the causes in workers grow per step of the program.
        summary: summary of the program's own process, by the clock of its workers.
        workers: summaries of the workers.
    """
    steps, grown = summary["steps"], max(0, summary["resident_growth_bytes"])
    # Only the gain of the workers is added: a forked worker shares the pages that it began with with the program.
    resident = summary["resident_bytes"] + sum(max(0, worker["resident_growth_bytes"]) for worker in workers)
    rate = grown / max(1, steps) + workers_rate
    pace = 1 / max(1e-9, _seconds_per_unit(summary))
    last_end = max(worker["ended_at"] for worker in workers)
    scale = Scale(summary["unit"], 1.0, steps, steps, steps_per_second=pace, now=last_end)
    findings = []
    for evidence, limit, is_dated in causes:
        growth = Growth(steps, resident, limit, Slope(rate, rate, rate), summary["unit"])
        has_date = is_dated and limit is not None and rate > 0
        full_step = steps + round(max(0.0, (limit or 0) - resident) / rate) if has_date else None
        findings += judge([evidence], growth, full_step, scale=scale)
    return sorted(findings, key=lambda finding: -finding.bytes_per_step)
