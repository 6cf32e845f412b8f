"""Findings in the workers that a program starts, summed by owner and merged with those of the program itself."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flatwater_watch.agent.boundaries import REQUEST
from flatwater_watch.agent.outcome import WORKERS_OWNER
from flatwater_watch.diagnose.finding import Finding
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
    merged = [_merge_group(group, summary, total_growth, budget) for group in groups]
    merged = _with_joint_date(merged, summary, read_workers)
    workers_share = sum(finding.share for finding in merged)
    own_findings = [Finding.from_json(finding) for finding in summary["findings"]]
    own_findings = [replace(finding, share=finding.share * own_growth / total_growth) for finding in own_findings]
    merged, own_findings = _merge_own_findings(merged, own_findings)
    explained_rate = sum(finding.bytes_per_step for finding in merged)
    own_findings = [
        finding
        for finding in own_findings
        if finding.owner != WORKERS_OWNER
        or explained_rate < MEASURING.minimum_workers_explained_share * finding.bytes_per_step
    ]
    findings = sorted([*own_findings, *merged], key=lambda finding: -finding.bytes_per_step)
    share = summary["explained_share"] * own_growth / total_growth + workers_share
    return {
        **summary,
        **worker_fields,
        "held": _sum_owner_bytes(summary, read_workers, {finding.owner for finding in merged}),
        "findings": [finding.to_json() for finding in findings],
        "explained_share": round(min(1.0, share), 4),
        "resident_growth_bytes": total_growth,
        "outcome": summary["outcome"] | {"state": "grows"},
        "cost": _sum_costs([summary, *read_workers]),
        "processes": max(summary["processes"], 1 + len(read_workers)),
        "unseen": [f"in the program's own process: {sentence}" for sentence in summary["unseen"]],
    }


def _merge_own_findings(
    merged: Sequence[Finding], own_findings: Sequence[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """Findings of workers, each merged with the same one of the program's own process; and the rest of its own."""
    own_by_fingerprint = {finding.fingerprint: finding for finding in own_findings}
    combined = []
    for finding in merged:
        own_finding = own_by_fingerprint.pop(finding.fingerprint, None)
        if own_finding is None:
            combined.append(finding)
            continue
        low, high = (sum(ends) for ends in zip(finding.interval, own_finding.interval, strict=True))
        combined.append(
            replace(
                finding,
                bytes_per_step=finding.bytes_per_step + own_finding.bytes_per_step,
                interval=(low, high),
                share=min(1.0, finding.share + own_finding.share),
                what=f"in the program itself, and {finding.what}",
            )
        )
    return combined, list(own_by_fingerprint.values())


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


def _group_findings(workers: Iterable[Mapping[str, Any]]) -> list[list[_WorkerFinding]]:
    """Findings of memory in workers, grouped by fingerprint, without slowdowns and without groups that rose little."""
    groups: dict[str, list[_WorkerFinding]] = {}
    for worker in workers:
        for finding in (Finding.from_json(record) for record in worker["findings"]):
            if finding.verdict != "slowdown":
                groups.setdefault(finding.fingerprint, []).append(_WorkerFinding(worker, finding))
    return [group for group in groups.values() if sum(member.bytes for member in group) >= 2 * DRIFT.least_bytes]


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
) -> Finding:
    """One finding for a group, at the rate of all workers that live at once, per unit of the program.

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
    plateau = largest.plateau_bytes
    each = "in a worker process" if simultaneous == 1 else f"in each of {simultaneous} worker processes"
    holds = f", {format_bytes(rate / simultaneous)} each" if simultaneous > 1 and summary["unit"] != REQUEST else ""
    return replace(
        largest,
        unit=summary["unit"],
        bytes_per_step=rate,
        interval=(low, high),
        share=min(1.0, sum(member.bytes for member in group) / total_growth),
        what=f"{each}{holds}: {largest.what}",
        plateau_bytes=None if plateau is None else plateau * simultaneous,
        plateau_step=None,
        limit_bytes=_joint_limit(main_member, summary, budget),
        limit_step=None,
        limit_time=None,
    )


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


def _with_joint_date(
    merged: Sequence[Finding], summary: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """The findings with the step at which the program and its workers reach the limit together, at their rates."""
    grown = max(0, summary["resident_growth_bytes"])
    # Only the gain of the workers is added: a forked worker shares the pages that it began with with the program.
    resident = summary["resident_bytes"] + sum(max(0, worker["resident_growth_bytes"]) for worker in workers)
    rate = grown / max(1, summary["steps"]) + sum(finding.bytes_per_step for finding in merged)
    last_end = max(worker["ended_at"] for worker in workers)
    dated_findings = []
    for finding in merged:
        if finding.limit_bytes is not None and rate > 0:
            units_left = max(0.0, finding.limit_bytes - resident) / rate
            when = last_end + units_left * _seconds_per_unit(summary)
            finding = replace(finding, limit_step=summary["steps"] + round(units_left), limit_time=when)  # noqa: PLW2901  (with its date)
        dated_findings.append(finding)
    return dated_findings
