"""The memory contract of a run: memory is measured after each round, explained when it grows, and bounded.

It knows the state tree and nothing of what is trained: every trainer gets the same contract.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.graph import compiler_bytes
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

STOP_BUDGET_SHARE = 0.95
"""Share of the budget at which a run stops while it still can save."""
_FAMILY_TIME_SHARE = 1 / 500
"""Share of the run's time that may go into summing up the worker processes."""
CENSUS_SHARE = 1 / 400
"""Share of this process's CPU seconds that readings and their censuses may take, where they are paced by time."""
# 1 MiB. To ask the kernel which pages were touched costs a system call per leaf, and small leaves hardly matter.
_WEIGHED_PAGES = 1 << 20
"""Bytes from which a leaf is asked which of its pages were touched; smaller leaves count as touched."""


@dataclass
class MemoryContract:
    """Measures a run's memory against its plan; one for each training process, built when the state is complete."""

    root: object
    """The state tree."""
    plan: Plan
    device: torch.device
    extra_bytes: Callable[[], dict[str, int]] = dict
    """Bytes that the run's services hold outside of the state, by owner: data that wait to be sent."""
    elsewhere: Callable[[], int] = lambda: 0
    """Bytes of RAM that processes which compute for the run have for themselves."""
    exchange: Callable[[], Mapping[str, Any]] = dict
    """The ledger's record of those processes, on other machines too, and of the round's exchange with them."""
    paced: bool = False
    """Whether a census waits until it is a small share of the run's time, and is taken in slices."""
    base: int = 0
    monitor: Monitor = field(default_factory=lambda: Monitor(Roots(packages=("flatwater", "flatwater_trading"))))
    full: set[str] = field(default_factory=set)
    """Leaves whose pages were all found in RAM; they stay there, so they are not asked again."""
    family: CostlyMeter[FamilyMemory] = field(default_factory=lambda: CostlyMeter(family_memory, _FAMILY_TIME_SHARE))
    """Memory of this process and its workers together."""
    breach: int = 0
    """Bytes that were in use when the budget was found exceeded; 0 while it is kept."""

    def __post_init__(self) -> None:
        """Measure memory before the first round; memory that building the run has freed is not part of the base."""
        release_freed_memory()
        # The compiler is a part of the base, as in the plan, and is loaded while the run computes. What an earlier run
        # of this process has compiled is taken off, as it is added to each statement.
        self.base = base_bytes(self.measure_owned_()) - compiler_bytes()

    def measure_owned_(self) -> dict[str, int]:
        """Return the bytes of RAM that each leaf has now; a leaf on another device has none."""
        leaf_bytes = {path: size for path, size in nbytes(self.root).items() if path not in self.plan.mapped}
        for leaf in leaves(self.root):
            if leaf.path in self.plan.mapped:
                continue
            if is_off_host(leaf.value):
                leaf_bytes[leaf.path] = 0
            elif leaf_bytes[leaf.path] >= _WEIGHED_PAGES and leaf.path not in self.full:
                # Zeroed pages that nothing has written to are not in RAM yet,
                # such as the rest of a ring that is being filled.
                resident = touched_bytes(leaf_address(leaf.value), leaf_bytes[leaf.path])
                if resident == leaf_bytes[leaf.path]:
                    self.full.add(leaf.path)
                leaf_bytes[leaf.path] = resident
        return leaf_bytes | self.extra_bytes()

    def over_budget_(self) -> bool:
        """Return whether the run is so near to its budget that it must stop; cheap enough for every step."""
        if self._used_bytes() >= STOP_BUDGET_SHARE * self.plan.budget_bytes:
            release_freed_memory()  # freed memory may be kept for the next step; the run does not need it
            used_bytes = self._used_bytes()
            self.breach = used_bytes if used_bytes >= STOP_BUDGET_SHARE * self.plan.budget_bytes else 0
        return self.breach != 0

    def _used_bytes(self) -> int:
        """Return the bytes that count against the budget: resident here and elsewhere, or reserved on the card."""
        # On a card the allocator's reservation counts, not what it hands out: other programs cannot have the rest.
        on_card = self.device.type == "cuda"
        return torch.cuda.memory_reserved(self.device) if on_card else footprint().resident + self.elsewhere()

    def settle_round_(self, round_: int, efforts: Mapping[str, Effort]) -> tuple[Statement, list[Finding]]:
        """Measure everything after a round. Returns where memory is, and new findings about its growth."""
        statement = take_statement(self.measure_owned_(), base=self.base + compiler_bytes())
        reading = Reading(
            step=round_,
            resident=statement.resident,
            file_mapped=statement.file_mapped,
            in_use=None if statement.heap is None else statement.heap.in_use,
            free=None if statement.heap is None else statement.heap.kept,
            owned=group_bytes(statement.owned, depth=2),
            planned=group_bytes(self.plan.owners, depth=2),
            # Growth is told against the share at which the run would stop, not against the whole budget.
            limit=int(STOP_BUDGET_SHARE * self.plan.budget_bytes),
            # What workers compute is not in this process's CPU seconds: nothing is said of how fast a run with them is.
            rates={}
            if self.plan.workers
            else {
                name: e.steps / work_seconds
                for name, e in efforts.items()
                if (work_seconds := self._busy_seconds(e)) > 0
            },
        )
        # What is left of the share; near the budget the monitor takes a census whole all the same.
        seconds = max(0.0, CENSUS_SHARE * time.process_time() - self.monitor.cost_seconds) if self.paced else inf
        return statement, self.monitor.observe(reading, seconds=seconds)

    def _busy_seconds(self, effort: Effort) -> float:
        """Return seconds that other programs do not change: of this process's CPU, or of the device that computes."""
        return effort.seconds if self.device.type == "cuda" else effort.cpu_seconds

    def record(self, statement: Statement, efforts: Mapping[str, Effort], *, envs: int, peak: int) -> dict[str, Any]:
        """Return the round's line in ledger.jsonl, in bytes.

        Args:
            statement: the settled memory of the round.
            efforts: effort of each phase.
            envs: environments alive in this process.
            peak: highest resident bytes of the round; 0 if peaks are not counted.
        """
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
    """Return the address at which the memory of a leaf begins."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr()
    assert isinstance(value, np.ndarray)  # noqa: S101  (nothing else weighs that much)
    return int(value.ctypes.data)


def device_totals(device: torch.device) -> dict[str, int] | None:
    """Return the bytes that torch's CUDA allocator hands out, and those that it keeps; None on a CPU."""
    if device.type != "cuda":
        return None
    return {"allocated": torch.cuda.memory_allocated(device), "reserved": torch.cuda.memory_reserved(device)}


def ledger_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the ledger's numbers as metrics in bytes: totals, and each owner by the first two names of its path.

    The `system/*` metrics are those that other tools show under these names, in 10^6 bytes.
    """
    numbers = {name: record[name] for name in ("resident", "private", "file_mapped", "slack", "unaccounted")}
    numbers |= {"owned": record["owned_bytes"], "envs": record["envs"], "threads": record["threads"]}
    owners = group_bytes(record["owned"], depth=2)
    if workers := record["exchange"].get("workers"):
        numbers["workers"] = sum(worker["private"] for worker in workers)
        # Each leaf counts by its size, so that a leaf above its plan does not hide a leaf below.
        numbers["workers_unplanned"] = sum(sum(map(abs, worker["unplanned"].values())) for worker in workers)
    card = record["cuda"] or {"allocated": 0, "reserved": 0}
    system = {f"system/gpu_memory_{name}_MB": card[name] / 1e6 for name in ("allocated", "reserved")}
    system["system/rss_MB"] = record["resident"] / 1e6
    return {f"memory/{name}": float(value) for name, value in (owners | numbers).items()} | system


def ledger_text(record: Mapping[str, Any]) -> str:
    """Return the ledger's line for the terminal, in MB: resident memory as the sum of its parts."""
    parts = (
        ("files", record["file_mapped"]),
        ("base", record["base"]),
        ("owned", record["owned_bytes"]),
        ("slack", record["slack"]),
    )
    total, unaccounted = f"{record['resident'] / 1e6:.0f} MB", record["unaccounted"] / 1e6
    # Pages that were counted and are not resident any more: what the system has taken back.
    last_term = (
        f" + {unaccounted:.1f} unaccounted" if unaccounted >= 0 else f" - {-unaccounted:.1f} returned to the system"
    )
    return f"memory {total} = " + " + ".join(f"{size / 1e6:.1f} {name}" for name, size in parts) + last_term


def budget_stop_text(plan: Plan, used: int) -> str:
    """Return why a run stops at its budget, as a sentence."""
    return (
        f"{format_bytes(used)} are resident, {STOP_BUDGET_SHARE:.0%} of the budget of "
        f"{format_bytes(plan.budget_bytes)}. The "
        "run finishes this step and saves a checkpoint"
    )
