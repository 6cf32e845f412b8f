"""Reads the plan, the ledger, the alarms and the findings in a run's folder, for pages and screens.

`ledger.jsonl` has a line for each round. The ledger of another version may lack a value, which is then 0 or empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flatwater.memory.ledger import SCALAR_BYTES, Effort
from flatwater.memory.planner import Plan, group_bytes
from flatwater.rundir.results import DAMAGE_FAULTS
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import parse_json
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.sanitize import short_repr

BASE, FILES, SLACK, REST = "interpreter and libraries", "mapped files", "allocator slack", "unaccounted"
OTHERS, SCALARS = "other owners", "single numbers"
MAXIMUM_NUMBER = 1 << 62
"""Bound of all numbers of a record: no machine has more bytes, and the sum of a few still fits into 64 bits."""
OWNER_DEPTH = 2
"""Number of names in an owner's path that are its group: `learner.actor_adam` of `learner.actor_adam.exp_avg`."""


@dataclass(frozen=True)
class WorkerLine:
    """The memory of a worker process after a round, in bytes."""

    machine: str
    planned: int
    """Planned private bytes between two steps."""
    private: int
    proportional: int
    """Private bytes and a fair part of the shared bytes."""
    owned_bytes: int
    """Bytes of its state."""
    unplanned: Mapping[str, int]
    """Planned minus held bytes of each leaf of the state that differs from the plan."""


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """The memory of a run after a round, in bytes: the process's resident memory by owner, and totals."""

    round: int
    resident: int
    private: int
    """Private bytes of the process and its workers, which would be free if all ended."""
    file_mapped: int
    """Resident bytes of mapped files, such as libraries and panels."""
    owned: Mapping[str, int]
    """Bytes by path in the state tree, without scalars."""
    owned_bytes: int
    """Bytes of all owners together, with scalars."""
    base: int
    """Resident bytes of the interpreter and the libraries, measured before the first round."""
    slack: int
    """Bytes that the program has freed and the C allocator keeps."""
    unaccounted: int
    """Resident bytes that no other part explains; must stay flat. A little below 0 if libraries gave memory back."""
    in_use: int | None
    """Bytes that the C allocator has handed out; None if the system does not tell."""
    cuda_allocated: int | None
    cuda_reserved: int | None
    processes: int
    envs: int
    threads: int
    files: int
    budget: int
    """Resident bytes that the run may take; 0 if the line has no budget."""
    phases: Mapping[str, Effort]
    workers: Sequence[WorkerLine] = ()
    stores: int | None = None
    """Bytes in the object stores of all machines of a cluster; None without a cluster."""


def parse_ledger_line(record: Mapping[str, Any], path: Path) -> LedgerLine:
    """Return a record of `ledger.jsonl` as a `LedgerLine`.

    Raises:
        RunError: a value has another type; the message names the file `path` and the round.
    """
    try:
        return _parse_line(record)
    except (TypeError, ValueError) as error:
        raise RunError(
            f"{path}: the line of round {record['round']} cannot be read: {error}. Restore the file, or delete that "
            "line."
        ) from error


def _parse_line(record: Mapping[str, Any]) -> LedgerLine:
    """Return a record of `ledger.jsonl` as a `LedgerLine`.

    Raises:
        TypeError: a part of the record is not an object.
        ValueError: a value is not a number.
    """
    allocator, cuda = _sub_record(record, "allocator"), _sub_record(record, "cuda")
    # `exchange` has the bytes of workers and of the stores through which they get large messages.
    phases, exchange = _sub_record(record, "phases"), _sub_record(record, "exchange")
    owned_bytes = _whole_numbers(record, "owned")
    return LedgerLine(
        round=record["round"],
        resident=_whole_number(record, "resident"),
        private=_whole_number(record, "private"),
        file_mapped=_whole_number(record, "file_mapped"),
        owned=owned_bytes,
        # The ledger of another version may lack the total.
        owned_bytes=_whole_number(record, "owned_bytes") or sum(owned_bytes.values()),
        base=_whole_number(record, "base"),
        slack=_whole_number(record, "slack"),
        unaccounted=_whole_number(record, "unaccounted"),
        in_use=_optional_whole(allocator, "in_use"),
        cuda_allocated=_optional_whole(cuda, "allocated"),
        cuda_reserved=_optional_whole(cuda, "reserved"),
        processes=_whole_number(record, "processes"),
        envs=_whole_number(record, "envs"),
        threads=_whole_number(record, "threads"),
        files=_whole_number(record, "files"),
        budget=_whole_number(record, "budget"),
        phases={name: _parse_effort(_sub_record(phases, name)) for name in phases},
        # Each worker is wrapped in a record, so that `_sub_record` checks that it is an object.
        workers=[_parse_worker(_sub_record({"worker": worker}, "worker")) for worker in exchange.get("workers") or ()],
        stores=_optional_whole(exchange, "stores"),
    )


def _parse_worker(record: Mapping[str, Any]) -> WorkerLine:
    """Return a worker's record in a ledger's record as a `WorkerLine`."""
    return WorkerLine(
        machine=str(record.get("machine", "")),
        planned=_whole_number(record, "planned"),
        private=_whole_number(record, "private"),
        proportional=_whole_number(record, "proportional"),
        owned_bytes=_whole_number(record, "owned_bytes"),
        unplanned=_whole_numbers(record, "unplanned"),
    )


def _parse_effort(record: Mapping[str, Any]) -> Effort:
    """Return a phase's record in a ledger's record as an `Effort`; its peak is None if none was measured."""
    return Effort(
        seconds=_number_or_zero(record, "seconds"),
        cpu_seconds=_number_or_zero(record, "cpu_seconds"),
        steps=_whole_number(record, "steps"),
        peak=_optional_whole(record, "peak"),
    )


def _number_or_zero(record: Mapping[str, Any], name: str) -> float:
    """Return a number of a record; 0 if it is absent or null.

    Raises:
        ValueError: the value is not a number, or is beyond `MAXIMUM_NUMBER`.
    """
    value = record.get(name) or 0.0  # a value that is absent, null or empty becomes 0
    # NaN fails both comparisons, so it is refused as well.
    if not isinstance(value, int | float) or not -MAXIMUM_NUMBER < value < MAXIMUM_NUMBER:
        raise ValueError(f"{short_repr(name)} = {short_repr(value)}: expected a number")
    return value


def _whole_number(record: Mapping[str, Any], name: str) -> int:
    return int(_number_or_zero(record, name))


def _optional_whole(record: Mapping[str, Any], name: str) -> int | None:
    return None if record.get(name) is None else _whole_number(record, name)


def _sub_record(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the JSON object under a name of a record; empty if it is absent or null.

    Raises:
        TypeError: the value is not an object.
    """
    value = record.get(name) or {}
    if not isinstance(value, dict):
        raise TypeError(f"{short_repr(name)} = {short_repr(value)}: expected keys and values")
    return value


def alarm_texts(record: Mapping[str, Any], path: Path) -> list[str]:
    """Return the messages in a record of `alarms.jsonl`, each with its kind: `not finite: losses/critic is ...`.

    Raises:
        RunError: the record's `alarms` is not a list of texts.
    """
    texts = record.get("alarms") or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RunError(
            f"{path}: the alarms of round {record['round']} are not text. Restore the file, or delete that line."
        )
    return texts


@dataclass(frozen=True)
class AlarmSummary:
    """All alarms of one kind in a run."""

    kind: str
    last_message: str
    count: int
    first_round: int
    last_round: int


def summarize_alarms(records: Iterable[Mapping[str, Any]], path: Path) -> list[AlarmSummary]:
    """Return a summary of each kind of alarm in the records, the most frequent kind first."""
    summaries: dict[str, AlarmSummary] = {}
    for record in records:
        for text in alarm_texts(record, path):
            kind, _, message = text.partition(": ")  # as `alarm_texts` has it
            round_ = record["round"]
            earlier = summaries.get(kind, AlarmSummary(kind, message, count=0, first_round=round_, last_round=round_))
            summaries[kind] = replace(earlier, last_message=message, count=earlier.count + 1, last_round=round_)
    return sorted(summaries.values(), key=lambda summary: -summary.count)


def steps_per_second(effort: Effort) -> float:
    """Return steps per second; 0 if no time was measured."""
    return effort.steps / effort.seconds if effort.seconds else 0.0


def read_plan(path: Path) -> Plan | None:
    """Return the plan in a `plan.json`; None if there is no such file.

    Raises:
        RunError: the file is not a plan.
    """
    try:
        content = parse_json(read_regular(path, follow_links=False))
        # Wrapped in a record, so that `_sub_record` checks that the content is an object.
        return _parse_plan(_sub_record({"plan": content}, "plan"))
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError) as error:
        raise RunError(f"{path}: cannot be read as a plan ({error}). Restore the file, or delete it.") from error


def _parse_plan(record: Mapping[str, Any]) -> Plan:
    """Return the plan of a plan.json of this or an earlier version.

    Raises:
        TypeError: a part of it has another type.
        ValueError: a part of it has a value that no plan can have.
    """
    # Plans of earlier versions have a single limit.
    limits = _whole_numbers(record, "limits") or {"limit": _whole_number(record, "limit_bytes")}
    suggestions, workers = record.get("suggestions") or [], record.get("workers") or []
    if min(limits.values()) <= 0 or not record.get("owners"):
        raise ValueError("expected owners and limits")
    if not isinstance(suggestions, list) or not all(isinstance(item, str) for item in suggestions):
        raise ValueError("suggestions: expected text")
    if not isinstance(workers, list):
        raise TypeError("workers: expected numbers")
    return Plan(
        owners=_whole_numbers(record, "owners"),
        transients=_whole_numbers(record, "transients"),
        base_bytes=_whole_number(record, "base_bytes"),
        limits=limits,
        budget=_optional_whole(record, "budget_bytes"),
        suggestions=tuple(suggestions),
        # Each number is wrapped in a record, so that `_whole_number` checks it.
        workers=[_whole_number({"workers": size}, "workers") for size in workers],
        apart=record.get("apart") is True,
        mapped=_whole_numbers(record, "mapped") if "mapped" in record else {},
    )


def _whole_numbers(record: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return the whole numbers under a name of a record, such as bytes by owner."""
    sizes = _sub_record(record, name)
    return {owner: _whole_number(sizes, owner) for owner in sizes}


def largest_groups(lines: Iterable[LedgerLine], maximum: int) -> list[str]:
    """Return the names of at most `maximum` groups of owners, those with the highest peaks first."""
    peaks: dict[str, int] = {}
    for line in lines:
        for name, size in group_bytes(line.owned, depth=OWNER_DEPTH).items():
            peaks[name] = max(peaks.get(name, 0), size)
    return sorted(peaks, key=lambda name: (-peaks[name], name))[:maximum]  # of equal peaks by name


def resident_parts(line: LedgerLine, groups: Iterable[str]) -> dict[str, int]:
    """Return the resident bytes in parts, by name; their sum is all. Owners in no group of `groups` are one part."""
    sizes = group_bytes(line.owned, depth=OWNER_DEPTH)
    group_sizes = {name: sizes.get(name, 0) for name in groups}
    return {
        BASE: line.base,
        FILES: line.file_mapped,
        **group_sizes,
        OTHERS: line.owned_bytes - sum(group_sizes.values()),
        SLACK: line.slack,
        REST: line.unaccounted,
    }


def listed_owners(plan: Plan) -> dict[str, int]:
    """Return the plan's bytes by owner, without scalars, which the ledger does not list."""
    return {path: size for path, size in plan.owners.items() if size > SCALAR_BYTES}


def planned_and_held_rows(plan: Plan, line: LedgerLine) -> list[tuple[str, int, int]]:
    """Return rows of owner, planned bytes and held bytes, most planned first; all scalars are one row.

    A larger owner of the plan that the ledger does not list holds 0 bytes.
    """
    rows = [(path, plan.owners.get(path, 0), size) for path, size in line.owned.items()]
    # The ledger lists no scalars, and no owner that held nothing.
    unlisted_owners = {path: size for path, size in plan.owners.items() if path not in line.owned}
    held_scalar_bytes = line.owned_bytes - sum(line.owned.values())
    if held_scalar_bytes or unlisted_owners:
        scalars = {path: size for path, size in unlisted_owners.items() if size <= SCALAR_BYTES}
        rows += [(path, size, 0) for path, size in unlisted_owners.items() if path not in scalars]
        rows.append((f"{SCALARS} ({len(scalars)})", sum(scalars.values()), held_scalar_bytes))
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))


def parse_finding(record: dict[str, Any], path: Path) -> tuple[int, Finding]:
    """Return the round and the finding in a record of `findings.jsonl`.

    Raises:
        RunError: the record was written by a version whose findings have other fields.
    """
    try:
        return record["round"], Finding.from_json({name: record[name] for name in record if name != "round"})
    except DAMAGE_FAULTS as error:
        raise RunError(
            f"{path}: the line of round {record.get('round')} cannot be read ({error!r}). "
            "Show the run with the version of Flatwater that trained it."
        ) from error


def latest_findings(findings: Iterable[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
    """Return the last report of each finding, with its round; reports of one finding have the same fingerprint."""
    return list({finding.fingerprint: (round_, finding) for round_, finding in findings}.values())
