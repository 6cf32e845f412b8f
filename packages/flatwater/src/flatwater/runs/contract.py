"""The memory contract of a run: what is held is weighed after each round, explained when it grows, and bounded.

It knows the state tree and nothing of what is trained: every trainer gets the same contract.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from flatwater.memory.ledger import Effort, Statement, base_bytes, take_statement
from flatwater.memory.planner import Plan, group_bytes
from flatwater.runs.machine import release_freed_memory
from flatwater.state.tree import leaves, nbytes
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.mappings import (
    CostlyMeter,
    FamilyMemory,
    family_memory,
    footprint,
    open_files,
    threads,
    touched_bytes,
)
from flatwater_watch.series.readings import Reading
from flatwater_watch.units import format_bytes

STOP_SHARE = 0.95
"""Share of the budget at which a run stops while it still can save."""
_FAMILY_SHARE = 1 / 500
"""Of the run's time that may go into summing up the worker processes."""
_WEIGHED_PAGES = 1 << 20
"""Leaves of fewer bytes are taken as touched."""


@dataclass
class MemoryContract:
    """One for each process that trains a run; built when the state is complete."""

    root: object
    """The state tree."""
    plan: Plan
    device: torch.device
    beside: Callable[[], dict[str, int]] = dict
    """Bytes that the run's services hold outside of the state, by owner: what waits to be sent."""
    elsewhere: Callable[[], int] = lambda: 0
    """Bytes that processes which compute for the run have for themselves."""
    exchange: Callable[[], Mapping[str, Any]] = dict
    """What those processes, on other machines too, hold, and what was exchanged with them in the round."""
    base: int = 0
    monitor: Monitor = field(default_factory=lambda: Monitor(Roots(packages=("flatwater", "flatwater_trading"))))
    full: set[str] = field(default_factory=set)
    """Leaves whose pages were all found in RAM."""
    family: CostlyMeter[FamilyMemory] = field(default_factory=lambda: CostlyMeter(family_memory, _FAMILY_SHARE))
    """This process and its workers."""
    breach: int = 0
    """Bytes at which the budget was found exceeded; 0 while it is kept."""

    def __post_init__(self) -> None:
        """Weigh what is there before the first round; what building the run has freed is not the base."""
        release_freed_memory()
        self.base = base_bytes(self.measure_owned_())

    def measure_owned_(self) -> dict[str, int]:
        """Bytes of RAM that each leaf has now: what lies on another device has none."""
        held = {path: size for path, size in nbytes(self.root).items() if path not in self.plan.mapped}
        for leaf in leaves(self.root):
            if leaf.path in self.plan.mapped:
                continue
            if is_off_host(leaf.value):
                held[leaf.path] = 0
            elif held[leaf.path] >= _WEIGHED_PAGES and leaf.path not in self.full:
                touched = touched_bytes(leaf_address(leaf.value), held[leaf.path])
                if touched == held[leaf.path]:
                    self.full.add(leaf.path)
                held[leaf.path] = touched
        return held | self.beside()

    def over_budget_(self) -> bool:
        """Whether the run has come so near to its budget that it must stop; cheap enough for every step."""
        if self._used_bytes() >= STOP_SHARE * self.plan.budget_bytes:
            release_freed_memory()  # what a phase has freed may be kept for its next step, and is no need of the run
            used = self._used_bytes()
            self.breach = used if used >= STOP_SHARE * self.plan.budget_bytes else 0
        return self.breach != 0

    def _used_bytes(self) -> int:
        on_card = self.device.type == "cuda"
        return torch.cuda.memory_reserved(self.device) if on_card else footprint().resident + self.elsewhere()

    def settle_round_(self, round_: int, efforts: Mapping[str, Effort]) -> tuple[Statement, list[Finding]]:
        """Weigh everything after a round. Returns where it is, and what was newly found about its growth."""
        statement = take_statement(self.measure_owned_(), base=self.base)
        reading = Reading(
            step=round_,
            resident=statement.resident,
            file_mapped=statement.file_mapped,
            in_use=None if statement.heap is None else statement.heap.in_use,
            free=None if statement.heap is None else statement.heap.kept,
            owned=group_bytes(statement.owned, depth=2),
            planned=group_bytes(self.plan.owners, depth=2),
            limit=int(STOP_SHARE * self.plan.budget_bytes),
            # What workers compute is not in this process's CPU seconds: nothing is said of how fast a run with them is.
            rates={}
            if self.plan.workers
            else {name: e.steps / spent for name, e in efforts.items() if (spent := self._busy_seconds(e)) > 0},
        )
        return statement, self.monitor.observe(reading)

    def _busy_seconds(self, effort: Effort) -> float:
        """Seconds that do not depend on what else runs: of this process's CPU, or of the device that computes."""
        return effort.seconds if self.device.type == "cuda" else effort.cpu_seconds

    def record(self, statement: Statement, efforts: Mapping[str, Effort], *, envs: int, peak: int) -> dict[str, Any]:
        """The round's line in ledger.jsonl."""
        family = self.family.read_if_due_()
        return statement.to_json() | {
            "private": family.private,
            "proportional": family.proportional,
            "peak": peak,
            "processes": family.count,
            "workers": self.elsewhere(),
            "exchange": dict(self.exchange()),
            "mapped": self.plan.mapped_bytes,
            "cuda": device_totals(self.device),
            "envs": envs,
            "threads": threads(),
            "files": open_files(),
            "budget": self.plan.budget_bytes,
            "phases": {name: effort.to_json() for name, effort in efforts.items()},
        }


def is_off_host(value: object) -> bool:
    """Whether a leaf lies outside of this machine's RAM."""
    return isinstance(value, torch.Tensor | torch.Generator) and value.device.type != "cpu"


def leaf_address(value: object) -> int:
    """Where the memory of a leaf begins."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr()
    assert isinstance(value, np.ndarray)  # noqa: S101  (nothing else weighs that much)
    return int(value.ctypes.data)


def device_totals(device: torch.device) -> dict[str, int] | None:
    """What torch's CUDA allocator hands out, and what it keeps; None on a CPU."""
    if device.type != "cuda":
        return None
    return {"allocated": torch.cuda.memory_allocated(device), "reserved": torch.cuda.memory_reserved(device)}


def ledger_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The ledger's numbers as metrics: totals, and each owner by the first two names of its path.

    `system/*` are those that other tools show under these names, in 10^6 bytes.
    """
    numbers = {name: record[name] for name in ("resident", "private", "file_mapped", "slack", "unaccounted")}
    numbers |= {"owned": record["owned_bytes"], "envs": record["envs"], "threads": record["threads"]}
    owners = group_bytes(record["owned"], depth=2)
    if workers := record["exchange"].get("workers"):
        numbers["workers"] = sum(worker["private"] for worker in workers)
        numbers["workers_unplanned"] = sum(sum(map(abs, worker["unplanned"].values())) for worker in workers)
    card = record["cuda"] or {"allocated": 0, "reserved": 0}
    system = {f"system/gpu_memory_{name}_MB": card[name] / 1e6 for name in ("allocated", "reserved")}
    system["system/rss_MB"] = record["resident"] / 1e6
    return {f"memory/{name}": float(value) for name, value in (owners | numbers).items()} | system


def ledger_text(record: Mapping[str, Any]) -> str:
    """The ledger's line for the terminal."""
    parts = (
        ("files", record["file_mapped"]),
        ("base", record["base"]),
        ("owned", record["owned_bytes"]),
        ("slack", record["slack"]),
    )
    total, rest = f"{record['resident'] / 1e6:.0f} MB", record["unaccounted"] / 1e6
    # Pages that were counted and are not resident any more: what the system has taken back.
    last = f" + {rest:.1f} unaccounted" if rest >= 0 else f" - {-rest:.1f} that the system has back"
    return f"memory {total} = " + " + ".join(f"{size / 1e6:.1f} {name}" for name, size in parts) + last


def budget_stop_text(plan: Plan, used: int) -> str:
    """Why a run stops at its budget."""
    return (
        f"{format_bytes(used)} are resident, {STOP_SHARE:.0%} of the budget of {format_bytes(plan.budget_bytes)}: the "
        "step is finished and a checkpoint saved"
    )
