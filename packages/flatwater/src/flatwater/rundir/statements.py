"""Plan, ledger, alarms and findings of a run, read back from its folder for pages and screens.

`ledger.jsonl` has a line a round. A value that a line lacks is 0 or empty: the ledger of another version may say less.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan, group_bytes
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.errors import RunError
from flatwater_watch.files.content import parse_json
from flatwater_watch.files.safe_read import read_regular
from flatwater_watch.sanitize import short_repr

BASE, FILES, SLACK, REST = "interpreter and libraries", "mapped files", "allocator slack", "unaccounted"
OTHERS, NUMBERS = "other owners", "single numbers"
MAXIMUM_BYTES = 1 << 62
"""Bound of numbers in bytes: no machine has more, and sums of a few still fit 64 bits."""
OWNER_DEPTH = 2
"""Parts of an owner's path that name its group: `learner.actor_adam` of `learner.actor_adam.exp_avg`."""


@dataclass(frozen=True)
class WorkerLine:
    """The memory of a process that computes for the run, in bytes."""

    machine: str
    planned: int
    """Private bytes between two steps."""
    private: int
    proportional: int
    """Private bytes and a fair part of the shared bytes."""
    owned_bytes: int
    """Bytes of its state."""
    unplanned: Mapping[str, int]
    """Planned minus held bytes of each leaf of the state that is not as planned."""


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """Bytes of the process by their owner after a round."""

    round: int
    resident: int
    private: int
    """Private bytes of this process and its workers: they would be free if the processes ended."""
    file_mapped: int
    owned: Mapping[str, int]
    """Bytes by path in the state tree, without those of single numbers."""
    owned_bytes: int
    """All owners together, single numbers too."""
    base: int
    slack: int
    unaccounted: int
    """Bytes that none of the others explains; it must stay flat. A little below 0 if libraries gave memory back."""
    in_use: int | None
    """Total of the C allocator; None if the system does not tell."""
    cuda_allocated: int | None
    cuda_reserved: int | None
    processes: int
    envs: int
    threads: int
    files: int
    budget: int
    """Resident bytes that the run may take; 0 if the line names none."""
    phases: Mapping[str, Effort]
    workers: Sequence[WorkerLine] = ()
    stores: int | None = None
    """Bytes in the object stores of a cluster, each machine's once; None without one."""


def parse_ledger_line(record: Mapping[str, Any], path: Path) -> LedgerLine:
    """Return a record of `ledger.jsonl` with its types.

    Raises:
        RunError: a value is of another kind.
    """
    try:
        return _parse_line(record)
    except (TypeError, ValueError) as error:
        raise RunError(
            f"{path}: the line of round {record['round']} cannot be read: {error}. Restore the file, or delete that "
            "line."
        ) from error


def _parse_line(record: Mapping[str, Any]) -> LedgerLine:
    """Return a ledger's record with its types, sizes in bytes. TypeError or ValueError where a value does not fit."""
    allocator, cuda = _sub_record(record, "allocator"), _sub_record(record, "cuda")
    owned = {name: _whole_number(_sub_record(record, "owned"), name) for name in _sub_record(record, "owned")}
    return LedgerLine(
        round=record["round"],
        resident=_whole_number(record, "resident"),
        private=_whole_number(record, "private"),
        file_mapped=_whole_number(record, "file_mapped"),
        owned=owned,
        # The ledger of another version may have no total.
        owned_bytes=_whole_number(record, "owned_bytes") or sum(owned.values()),
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
        phases={
            name: _parse_effort(_sub_record(_sub_record(record, "phases"), name))
            for name in _sub_record(record, "phases")
        },
        workers=[
            _parse_worker(_sub_record({"worker": worker}, "worker"))
            for worker in _sub_record(record, "exchange").get("workers") or ()
        ],
        stores=_optional_whole(_sub_record(record, "exchange"), "stores"),
    )


def _parse_worker(record: Mapping[str, Any]) -> WorkerLine:
    """Return a worker's part of a ledger's record, sizes in bytes."""
    return WorkerLine(
        machine=str(record.get("machine", "")),
        planned=_whole_number(record, "planned"),
        private=_whole_number(record, "private"),
        proportional=_whole_number(record, "proportional"),
        owned_bytes=_whole_number(record, "owned_bytes"),
        unplanned=_whole_numbers(record, "unplanned"),
    )


def _parse_effort(record: Mapping[str, Any]) -> Effort:
    """Return the effort of a phase by a ledger's record; its peak is None if none was measured."""
    seconds, cpu_seconds = _number_or_zero(record, "seconds"), _number_or_zero(record, "cpu_seconds")
    return Effort(seconds, cpu_seconds, _whole_number(record, "steps"), _optional_whole(record, "peak"))


def _number_or_zero(record: Mapping[str, Any], name: str) -> float:
    """Return a number of a record; 0 if it is absent or null.

    Raises:
        ValueError: the value is not a number, or larger than a size may be.
    """
    value = record.get(name) or 0.0  # absent, null and 0 are one thing here
    # NaN fails both comparisons, and so is refused as well.
    if not isinstance(value, int | float) or not -MAXIMUM_BYTES < value < MAXIMUM_BYTES:
        raise ValueError(f"{short_repr(name)} = {short_repr(value)}: expected a number")
    return value


def _whole_number(record: Mapping[str, Any], name: str) -> int:
    return int(_number_or_zero(record, name))


def _optional_whole(record: Mapping[str, Any], name: str) -> int | None:
    return None if record.get(name) is None else _whole_number(record, name)


def _sub_record(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object under a name of a record; empty if it is absent or null.

    Raises:
        TypeError: the value is something else.
    """
    value = record.get(name) or {}
    if not isinstance(value, dict):
        raise TypeError(f"{short_repr(name)} = {short_repr(value)}: expected keys and values")
    return value


def alarm_texts(record: Mapping[str, Any], path: Path) -> list[str]:
    """Return the texts of a line of `alarms.jsonl`.

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
class AlarmKind:
    """All alarms of one kind."""

    kind: str
    said: str
    """Text of the last of them."""
    times: int
    first: int
    """Round of the first; `last` is that of the last."""
    last: int


def kinds_of_alarms(records: Iterable[Mapping[str, Any]], path: Path) -> list[AlarmKind]:
    """Return the alarms of all rounds by kind, the most frequent first: a long run may have one in each round."""
    kinds: dict[str, AlarmKind] = {}
    for record in records:
        for text in alarm_texts(record, path):
            kind, _, message = text.partition(": ")
            earlier = kinds.get(kind, AlarmKind(kind, message, 0, record["round"], record["round"]))
            kinds[kind] = replace(earlier, said=message, times=earlier.times + 1, last=record["round"])
    return sorted(kinds.values(), key=lambda each: -each.times)


def steps_per_second(effort: Effort) -> float:
    """Return steps per second; 0 if no time was measured."""
    return effort.steps / effort.seconds if effort.seconds else 0.0


def read_plan(path: Path) -> Plan | None:
    """Return the plan of a run; None if it has none.

    Raises:
        RunError: the file is not a plan.
    """
    try:
        content = parse_json(read_regular(path, follow=False))
        return _parse_plan(_sub_record({"plan": content}, "plan"))
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError) as error:
        raise RunError(f"{path}: cannot be read as a plan ({error}). Restore the file, or delete it.") from error


def _parse_plan(record: Mapping[str, Any]) -> Plan:
    """Return the plan of a plan.json of this or an earlier version.

    Raises:
        TypeError: a part of it is of another type.
        ValueError: a part of it has a value that no plan has.
    """
    # Other versions had a single limit.
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
        workers=[_whole_number({"workers": item}, "workers") for item in workers],
        apart=record.get("apart") is True,
        mapped=_whole_numbers(record, "mapped") if "mapped" in record else {},
    )


def _whole_numbers(record: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return the whole numbers under a name of a record, such as bytes by owner."""
    sizes = _sub_record(record, name)
    return {owner: _whole_number(sizes, owner) for owner in sizes}


def largest_groups(lines: Iterable[LedgerLine], maximum: int) -> list[str]:
    """Return names of the groups that held most at any time, most first."""
    peaks: dict[str, int] = {}
    for line in lines:
        for name, size in group_bytes(line.owned, depth=OWNER_DEPTH).items():
            peaks[name] = max(peaks.get(name, 0), size)
    return sorted(peaks, key=lambda name: (-peaks[name], name))[:maximum]


def resident_parts(line: LedgerLine, groups: Iterable[str]) -> dict[str, int]:
    """Return the resident memory in parts that add up: base, files, these groups, other owners, slack, the rest."""
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
    """Return the planned owners that the ledger names one by one: all but single numbers."""
    return {path: size for path, size in plan.owners.items() if size > NUMBER_BYTES}


def held_against(plan: Plan, line: LedgerLine) -> list[tuple[str, int, int]]:
    """Return each owner with bytes planned and held, most planned first; single numbers are one owner together."""
    held_paths = set(line.owned)
    rows = [(path, plan.owners.get(path, 0), size) for path, size in line.owned.items()]
    planned_only = {path: size for path, size in plan.owners.items() if path not in held_paths}
    numbers = line.owned_bytes - sum(line.owned.values())
    if numbers or planned_only:
        small_owners = {path: size for path, size in planned_only.items() if size <= NUMBER_BYTES}
        rows += [(path, size, 0) for path, size in planned_only.items() if path not in small_owners]
        rows.append((f"{NUMBERS} ({len(small_owners)})", sum(small_owners.values()), numbers))
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))


NUMBER_BYTES = 8
"""Bytes up to which an owner is not listed in the ledger."""


def parse_finding(record: dict[str, Any], path: Path) -> tuple[int, Finding]:
    """Return the round and the finding of a line of `findings.jsonl`.

    Raises:
        RunError: the line was written by a version whose findings look different.
    """
    try:
        return record["round"], Finding.from_json({name: record[name] for name in record if name != "round"})
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(
            f"{path}: the line of round {record.get('round')} cannot be read ({error!r}). "
            "Show the run with the version of Flatwater that trained it."
        ) from error


def latest_findings(findings: Iterable[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
    """Return each finding once, with the numbers told last: a later line may have the same fingerprint."""
    return list({finding.fingerprint: (round_, finding) for round_, finding in findings}.values())
