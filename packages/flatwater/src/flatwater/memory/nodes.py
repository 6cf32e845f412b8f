"""Needs of a run on each machine of a cluster, and whether they fit there.

Private bytes of workers add up; the market's file and the object store are there once for all workers of a machine.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flatwater_watch.errors import MemoryLimitError
from flatwater_watch.units import format_bytes

STORE_SHARE = 2
"""Messages of the largest size fit into an object store at once. Ray itself takes more than its store holds."""


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster."""

    name: str
    identity: str
    """Name by which the cluster knows it."""
    cores: int
    memory: int
    """Bytes that may be set aside for workers."""
    store: int
    """Bytes of its object store, in which messages lie."""
    limit: int
    """Limit in bytes of a process there."""


@dataclass(frozen=True)
class WorkerNeeds:
    """The needs of workers on a machine."""

    worker: int
    """Private bytes of the largest worker."""
    threads: int
    """Cores of each worker."""
    mapped: int
    """Bytes of the file that all workers of a machine map."""
    store: int
    """Bytes that an object store must have."""


@dataclass(frozen=True)
class NodePlan:
    """The workers of a machine."""

    machine: Machine
    wants: WorkerNeeds
    workers: int

    @property
    def needed_bytes(self) -> int:
        """Bytes of all workers, with the object store whole: it stays full of messages that were read."""
        return self.workers * self.wants.worker + self.wants.mapped + self.machine.store

    @property
    def there(self) -> int:
        """Bytes that the workers may take."""
        # Mapped file and object store are shared memory, in addition to the memory that is set aside for workers.
        reserved = self.machine.memory + self.wants.mapped + self.machine.store
        return min(reserved, self.machine.limit)

    @property
    def worker_slots(self) -> int:
        """Number of workers that fit."""
        memory = max(0, self.there - self.wants.mapped - self.machine.store) // max(1, self.wants.worker)
        return min(self.machine.cores // self.wants.threads, memory) if self.store_suffices else 0

    @property
    def store_suffices(self) -> bool:
        """Whether the largest message and its answer lie in the object store together."""
        return self.machine.store >= self.wants.store

    @property
    def fits(self) -> bool:
        """Whether all workers fit; a machine without workers always does."""
        return self.workers <= self.worker_slots

    def to_json(self) -> dict[str, Any]:
        """Return the node's plan as in plan.json."""
        return {**asdict(self), "needed": self.needed_bytes, "there": self.there, "fits": self.fits}

    def shortage(self) -> str:
        """Return the machine that lacks something, with its need and its free memory."""
        name, needs, machine = self.machine.name, self.wants, self.machine
        if not self.store_suffices:
            return (
                f"{name}: the object store has {format_bytes(machine.store)}, and messages need "
                f"{format_bytes(needs.store)}: start Ray there with --object-store-memory={needs.store}"
            )
        return (
            f"{name}: room for {self.worker_slots} of {self.workers}: {format_bytes(self.needed_bytes)} and "
            f"{self.workers * needs.threads} cores are needed, and workers "
            f"may take {format_bytes(self.there)} and {machine.cores} cores"
        )


def assign_workers(machines: Sequence[Machine], count: int, wants: WorkerNeeds) -> list[NodePlan]:
    """Assign workers one by one to the machine with the most free slots, and then with the most memory."""
    slots = [NodePlan(machine, wants, 0).worker_slots for machine in machines]
    counts = [0] * len(machines)
    for _ in range(count if machines else 0):
        # Slots may be negative: workers without a slot are assigned as well, and `refuse_nodes` tells which.
        index = max(
            range(len(machines)), key=lambda n: (slots[n] - counts[n], machines[n].memory - counts[n] * wants.worker)
        )
        counts[index] += 1
    return [NodePlan(machine, wants, workers) for machine, workers in zip(machines, counts, strict=True)]


def worker_capacity(nodes: Sequence[NodePlan]) -> int:
    """Return the number of workers that the cluster has space for."""
    return sum(node.worker_slots for node in nodes)


def refuse_nodes(nodes: Sequence[NodePlan]) -> None:
    """Stop a run whose workers do not fit.

    Raises:
        MemoryLimitError: the message names each machine that lacks something, and what to change.
    """
    if lacking := [node for node in nodes if not node.fits]:
        raise MemoryLimitError(shortages(nodes, lacking))


def shortages(nodes: Sequence[NodePlan], lacking: Sequence[NodePlan]) -> str:
    """Return the machines that lack something, and the remedy."""
    needs = nodes[0].wants
    count = sum(node.workers for node in nodes)
    capacity = worker_capacity(nodes)
    summary = (
        f"the cluster has room for {capacity} workers of {format_bytes(needs.worker)} and {needs.threads} cores each, "
        f"and {count} are needed. Use --workers {max(1, capacity)}, add machines, or make the run smaller."
    )
    return "\n".join([summary, *(f"  {node.shortage()}" for node in lacking)])
