"""The memory contract of a run: memory is measured after each round, its growth is explained, and a budget bounds it.

The contract knows the run's state tree and its plan, and nothing of what is trained: it is the same for every trainer.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.compilation import compiler_bytes
from flatwater.memory.ledger import Effort, Statement, base_bytes, take_statement
from flatwater.memory.planner import Plan, group_bytes
from flatwater.metrics.short_numbers import MIB, whole_mebibytes
from flatwater.runs.costly_meter import CostlyMeter
from flatwater.runs.machine import release_freed_memory
from flatwater.state.tree import leaves, nbytes
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.mappings import (
    FamilyMemory,
    family_memory,
    footprint,
    open_file_count,
    touched_bytes,
)
from flatwater_watch.meters.proc import thread_count
from flatwater_watch.series.readings import Reading
from flatwater_watch.units import format_bytes

STOP_BUDGET_SHARE = 0.95
"""Share of the budget at which a run stops, while it still has room to save a checkpoint."""
_FAMILY_TIME_SHARE = 1 / 500
"""Share of the run's time that may go into summing up the memory of worker processes."""
CENSUS_SHARE = 1 / 400
"""Share of this process's CPU seconds that readings and their censuses may take, where they are paced by time."""
SLICE_SECONDS = 0.05
"""Least CPU seconds of a slice of a paced census: to begin one takes nearly as long. A short run takes none."""
_WEIGHED_BYTES = MIB
"""Size from which the kernel is asked how many bytes of a leaf are in RAM. That is a system call per leaf, so
smaller leaves count as if all of them were."""


@dataclass
class MemoryContract:
    """Measures a run's memory against its plan; one for each training process, built when the state is complete."""

    root: object
    """The state tree."""
    plan: Plan
    device: torch.device
    extra_bytes: Callable[[], dict[str, int]] = dict
    """Returns the bytes by owner that trackers and mirror hold outside of the state: data that wait to be sent."""
    worker_bytes: Callable[[], int] = lambda: 0
    """Returns the private bytes of the run's worker processes on this machine; see `Run.worker_bytes`."""
    measure_exchange_: Callable[[], Mapping[str, Any]] = dict
    """Returns the ledger's record of all worker processes, on other machines too; see `Run.measure_exchange_`."""
    paced: bool = False
    """Whether a census waits until it costs a small share of the run's time, and is taken in slices."""
    base_bytes: int = 0
    """Resident bytes before the first round that are neither state nor compiled code: interpreter and libraries."""
    monitor: Monitor = field(default_factory=lambda: Monitor(Roots(packages=("flatwater", "flatwater_trading"))))
    fully_resident: set[str] = field(default_factory=set)
    """Paths of leaves whose pages were all found in RAM: the pages stay there, so they are not counted again."""
    family: CostlyMeter[FamilyMemory] = field(default_factory=lambda: CostlyMeter(family_memory, _FAMILY_TIME_SHARE))
    """Memory of this process and its workers together."""
    breach: int = 0
    """Bytes that were in use when the run came to its budget; 0 before."""

    def __post_init__(self) -> None:
        """Measure `base_bytes`, the memory before the first round."""
        release_freed_memory()  # memory that building the run has freed must not count to the base
        # Without the compiler's bytes, those of an earlier run too: each round's measurement adds all of them again.
        self.base_bytes = base_bytes(self.measure_owned_bytes_()) - compiler_bytes()

    def measure_owned_bytes_(self) -> dict[str, int]:
        """Return the bytes of RAM of each leaf now, by path, and those of `extra_bytes`; a leaf on a GPU has 0.

        Memory-mapped leaves are left out: their pages belong to files that processes share.
        """
        leaf_bytes = {path: size for path, size in nbytes(self.root).items() if path not in self.plan.mapped}
        for leaf in leaves(self.root):
            if leaf.path in self.plan.mapped:
                continue
            if is_off_host(leaf.value):
                leaf_bytes[leaf.path] = 0
            elif leaf_bytes[leaf.path] >= _WEIGHED_BYTES and leaf.path not in self.fully_resident:
                # Pages that nobody has written to yet are not in RAM, such as the end of a replay that still fills.
                resident = touched_bytes(leaf_address(leaf.value), leaf_bytes[leaf.path])
                if resident == leaf_bytes[leaf.path]:
                    self.fully_resident.add(leaf.path)  # not asked for again
                leaf_bytes[leaf.path] = resident
        return leaf_bytes | self.extra_bytes()

    def is_over_budget_(self) -> bool:
        """Return whether the run has come to its budget and must stop; sets `breach`. Cheap enough for every step."""
        if self._used_bytes() >= STOP_BUDGET_SHARE * self.plan.budget_bytes:
            # Measured again without memory that is freed already and only kept by the allocator.
            release_freed_memory()
            used_bytes = self._used_bytes()
            self.breach = used_bytes if used_bytes >= STOP_BUDGET_SHARE * self.plan.budget_bytes else 0
        return self.breach != 0

    def _used_bytes(self) -> int:
        """Return the bytes that count against the budget: resident here and elsewhere, or reserved on the card."""
        # On a card the allocator's reservation counts, not what it hands out: other programs cannot have the rest.
        is_cuda = self.device.type == "cuda"
        return torch.cuda.memory_reserved(self.device) if is_cuda else footprint().resident + self.worker_bytes()

    def settle_round_(self, round_: int, efforts: Mapping[str, Effort]) -> tuple[Statement, list[Finding]]:
        """Measure memory after a round. Returns what was measured, and new findings about growth.

        Args:
            round_: number of the round.
            efforts: efforts since the last measurement, by phase and by part of a step.
        """
        statement = take_statement(self.measure_owned_bytes_(), base=self.base_bytes + compiler_bytes())
        reading = Reading(
            step=round_,
            resident=statement.resident,
            file_mapped=statement.file_mapped,
            in_use=None if statement.heap is None else statement.heap.in_use,
            free=None if statement.heap is None else statement.heap.kept,
            owned=group_bytes(statement.owned, depth=2),
            planned=group_bytes(self.plan.owners, depth=2),
            # The limit that growth is compared with is where the run would stop, below the whole budget.
            limit=int(STOP_BUDGET_SHARE * self.plan.budget_bytes),
            rates=self._step_rates(efforts),
        )
        return statement, self.monitor.observe(reading, seconds=self._census_seconds())

    def _census_seconds(self) -> float:
        """Return the CPU seconds that a census may take now; near the budget the monitor ignores them."""
        if not self.paced:
            return inf
        left_seconds = CENSUS_SHARE * time.process_time() - self.monitor.cost_seconds
        return left_seconds if left_seconds >= SLICE_SECONDS else 0.0

    def _step_rates(self, efforts: Mapping[str, Effort]) -> dict[str, float]:
        """Return steps per second of work by phase or part; empty if workers compute, whose CPU seconds are unknown."""
        if self.plan.workers:
            return {}
        seconds = {name: self._work_seconds(effort) for name, effort in efforts.items()}
        return {name: efforts[name].steps / seconds[name] for name in efforts if seconds[name] > 0}

    def _work_seconds(self, effort: Effort) -> float:
        """Return the effort's CPU seconds, or seconds of the GPU that computes: other programs do not change these."""
        return effort.seconds if self.device.type == "cuda" else effort.cpu_seconds

    def record(self, statement: Statement, efforts: Mapping[str, Effort], *, envs: int, peak: int) -> dict[str, Any]:
        """Return the round's line in ledger.jsonl, in bytes.

        Args:
            statement: memory at the end of the round.
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
            "workers": self.worker_bytes(),
            "exchange": dict(self.measure_exchange_()),
            "mapped": self.plan.mapped_bytes,
            "cuda": device_totals(self.device),
            "envs": envs,
            "threads": thread_count(),
            "files": open_file_count(),
            "budget": self.plan.budget_bytes,
            "phases": {name: effort.to_json() for name, effort in efforts.items()},
        }


def is_off_host(value: object) -> bool:
    """Return whether a leaf lies outside of this machine's RAM, on a GPU."""
    return isinstance(value, torch.Tensor | torch.Generator) and value.device.type != "cpu"


def leaf_address(value: object) -> int:
    """Return the address at which the memory of a leaf, a tensor or an array, begins."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr()
    assert isinstance(value, np.ndarray)  # noqa: S101  (all other leaves are smaller than `_WEIGHED_BYTES`)
    return int(value.ctypes.data)


def device_totals(device: torch.device) -> dict[str, int] | None:
    """Return the bytes that torch's CUDA allocator hands out, and those that it keeps; None on a CPU."""
    if device.type != "cuda":
        return None
    return {"allocated": torch.cuda.memory_allocated(device), "reserved": torch.cuda.memory_reserved(device)}


def ledger_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """Return a ledger record as metrics: totals and owners as `memory/*` in bytes, RSS and GPU as `system/*` in MB.

    Owners are grouped by the first two names of their paths. Other tools use the same `system/*` names.
    """
    numbers = {name: record[name] for name in ("resident", "private", "file_mapped", "slack", "unaccounted")}
    numbers |= {"owned": record["owned_bytes"], "envs": record["envs"], "threads": record["threads"]}
    owners = group_bytes(record["owned"], depth=2)
    if workers := record["exchange"].get("workers"):
        numbers["workers"] = sum(worker["private"] for worker in workers)
        # Absolute differences, so that a leaf above its plan does not cancel a leaf below its plan.
        numbers["workers_unplanned"] = sum(sum(map(abs, worker["unplanned"].values())) for worker in workers)
    card = record["cuda"] or {"allocated": 0, "reserved": 0}  # None on a CPU
    system = {f"system/gpu_memory_{name}_MB": card[name] / 1e6 for name in ("allocated", "reserved")}
    system["system/rss_MB"] = record["resident"] / 1e6
    return {f"memory/{name}": float(value) for name, value in (owners | numbers).items()} | system


def ledger_text(record: Mapping[str, Any]) -> str:
    """Return the ledger's line for the terminal, in MiB: resident memory as the sum of its parts."""
    terms = (
        ("files", record["file_mapped"]),
        ("base", record["base"]),
        ("owned", record["owned_bytes"]),
        ("slack", record["slack"]),
    )
    total = f"{whole_mebibytes(record['resident'])} MiB"
    unaccounted = record["unaccounted"] / MIB
    # Below 0, counted pages are no longer resident: the system has taken them back.
    last_term = (
        f" + {unaccounted:.1f} unaccounted" if unaccounted >= 0 else f" - {-unaccounted:.1f} returned to the system"
    )
    return f"memory {total} = " + " + ".join(f"{size / MIB:.1f} {name}" for name, size in terms) + last_term


def budget_stop_text(plan: Plan, used_bytes: int) -> str:
    """Return the sentence that says why a run stops at its budget; `used_bytes` is the bytes in use."""
    return (
        f"{format_bytes(used_bytes)} are resident, {STOP_BUDGET_SHARE:.0%} of the budget of "
        f"{format_bytes(plan.budget_bytes)}. The "
        "run finishes this step and saves a checkpoint"
    )
