"""The plan and the ledger of a run, read back from its folder for those who show them.

`ledger.jsonl` has a line a round. What a line does not say is 0 or empty: the ledger of another version may say less.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatwater.errors import RunError
from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan, grouped

BASE, FILES, SLACK, REST = "interpreter and libraries", "mapped files", "allocator slack", "unaccounted"
OTHERS, NUMBERS = "other owners", "single numbers"
DEPTH = 2
"""Parts of an owner's path that name its group: `learner.actor_adam` of `learner.actor_adam.exp_avg`."""


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """Where the bytes of the process were after a round."""

    round: int
    resident: int
    private: int
    """Of this process and its workers: what would be free if they ended."""
    file_mapped: int
    owned: Mapping[str, int]
    """Bytes by path in the state tree, without those of single numbers."""
    owned_bytes: int
    """All owners together, single numbers too."""
    base: int
    slack: int
    unaccounted: int
    """What none of the others explains; it must stay flat. A little below 0 where libraries gave memory back."""
    in_use: int | None
    """The C allocator's total; None where the system does not tell."""
    cuda_allocated: int | None
    cuda_reserved: int | None
    processes: int
    envs: int
    threads: int
    files: int
    budget: int
    """Resident bytes that the run may take; 0 where the line names none."""
    phases: Mapping[str, Effort]


def line_of(record: Mapping[str, Any]) -> LedgerLine:
    """A record of `ledger.jsonl` with its types."""
    allocator, cuda, owned = record.get("allocator") or {}, record.get("cuda") or {}, record.get("owned") or {}
    return LedgerLine(
        round=record["round"],
        resident=_whole(record, "resident"),
        private=_whole(record, "private"),
        file_mapped=_whole(record, "file_mapped"),
        owned=owned,
        owned_bytes=_whole(record, "owned_bytes") or sum(owned.values()),
        base=_whole(record, "base"),
        slack=_whole(record, "slack"),
        unaccounted=_whole(record, "unaccounted"),
        in_use=allocator.get("in_use"),
        cuda_allocated=cuda.get("allocated"),
        cuda_reserved=cuda.get("reserved"),
        processes=_whole(record, "processes"),
        envs=_whole(record, "envs"),
        threads=_whole(record, "threads"),
        files=_whole(record, "files"),
        budget=_whole(record, "budget"),
        phases={name: _effort(found) for name, found in (record.get("phases") or {}).items()},
    )


def _effort(record: Mapping[str, Any]) -> Effort:
    peak = record.get("peak")
    return Effort(record.get("seconds") or 0.0, record.get("cpu_seconds") or 0.0, _whole(record, "steps"), peak)


def _whole(record: Mapping[str, Any], name: str) -> int:
    return int(record.get(name) or 0)


def rate(effort: Effort) -> float:
    """Steps per second; 0 where no time was measured."""
    return effort.steps / effort.seconds if effort.seconds else 0.0


def read_plan(path: Path) -> Plan | None:
    """The plan of a run; None where it has none.

    Raises:
        RunError: the file is no plan.
    """
    try:
        found = json.loads(path.read_text())
        return Plan(
            owners=found["owners"],
            transients=found.get("transients") or {},
            base_bytes=found["base_bytes"],
            limits=found.get("limits") or {"limit": found["limit_bytes"]},
            budget=found.get("budget_bytes"),
            suggestions=tuple(found.get("suggestions") or ()),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise RunError(f"{path}: cannot be read as a plan ({fault!r}). Restore the file, or delete it.") from fault


def largest_groups(lines: Iterable[LedgerLine], most: int) -> list[str]:
    """Names of the groups that held most at any time, most first."""
    peaks: dict[str, int] = {}
    for line in lines:
        for name, size in grouped(line.owned, depth=DEPTH).items():
            peaks[name] = max(peaks.get(name, 0), size)
    return sorted(peaks, key=lambda name: (-peaks[name], name))[:most]


def parts(line: LedgerLine, groups: Iterable[str]) -> dict[str, int]:
    """The resident memory in parts that add up to it: base, files, these groups, other owners, slack, the rest."""
    sizes = grouped(line.owned, depth=DEPTH)
    shown = {name: sizes.get(name, 0) for name in groups}
    return {
        BASE: line.base,
        FILES: line.file_mapped,
        **shown,
        OTHERS: line.owned_bytes - sum(shown.values()),
        SLACK: line.slack,
        REST: line.unaccounted,
    }


def listed(plan: Plan) -> dict[str, int]:
    """The planned owners that the ledger names one by one: all but single numbers."""
    return {path: size for path, size in plan.owners.items() if size > NUMBER_BYTES}


def held_against(plan: Plan, line: LedgerLine) -> list[tuple[str, int, int]]:
    """Each owner with the bytes planned and held, most planned first; single numbers are one owner together."""
    listed = set(line.owned)
    rows = [(path, plan.owners.get(path, 0), size) for path, size in line.owned.items()]
    missing = {path: size for path, size in plan.owners.items() if path not in listed}
    numbers = line.owned_bytes - sum(line.owned.values())
    if numbers or missing:
        small = {path: size for path, size in missing.items() if size <= NUMBER_BYTES}
        rows += [(path, size, 0) for path, size in missing.items() if path not in small]
        rows.append((f"{NUMBERS} ({len(small)})", sum(small.values()), numbers))
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))


NUMBER_BYTES = 8
"""Owners of at most that many bytes are not listed in the ledger."""
