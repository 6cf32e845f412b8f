"""Memory that a run needs on each machine of a cluster, and whether it fits.

Each worker of a machine has private bytes; all of them share one mapped market file and one object store.
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
    """Memory and cores that workers need on a machine."""

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
    """The workers of a machine, and whether they fit."""

    machine: Machine
    wants: WorkerNeeds
    workers: int

    @property
    def needed_bytes(self) -> int:
        """Bytes of all workers and of the whole object store, which stays full of messages that were read."""
        return self.workers * self.wants.worker + self.wants.mapped + self.machine.store

    @property
    def available_bytes(self) -> int:
        """Bytes that the workers, their mapped file and the object store may take together."""
        # Mapped file and object store are shared memory, in addition to the memory that is set aside for workers.
        reserved_bytes = self.machine.memory + self.wants.mapped + self.machine.store
        return min(reserved_bytes, self.machine.limit)

    @property
    def worker_slots(self) -> int:
        """Number of workers that fit; 0 if the object store does not fit."""
        if not self.store_suffices:
            return 0
        worker_bytes = max(0, self.available_bytes - self.wants.mapped - self.machine.store)
        slots_by_cores = self.machine.cores // self.wants.threads
        slots_by_memory = worker_bytes // max(1, self.wants.worker)
        return min(slots_by_cores, slots_by_memory)

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
        return {**asdict(self), "needed": self.needed_bytes, "there": self.available_bytes, "fits": self.fits}

    def shortage(self) -> str:
        """Return a sentence that says what the machine lacks: a larger object store, or room for workers."""
        name, needs, machine = self.machine.name, self.wants, self.machine
        if not self.store_suffices:
            return (
                f"{name}: the object store has {format_bytes(machine.store)}, and messages need "
                f"{format_bytes(needs.store)}: start Ray there with --object-store-memory={needs.store}"
            )
        return (
            f"{name}: room for {self.worker_slots} of {self.workers}: {format_bytes(self.needed_bytes)} and "
            f"{self.workers * needs.threads} cores are needed, and workers "
            f"may take {format_bytes(self.available_bytes)} and {machine.cores} cores"
        )


def assign_workers(machines: Sequence[Machine], count: int, wants: WorkerNeeds) -> list[NodePlan]:
    """Assign `count` workers one by one to the machine with the most free slots, among equals the most free memory.

    Workers without a free slot are assigned, too; `refuse_nodes` reports them.
    """
    slots = [NodePlan(machine, wants, workers=0).worker_slots for machine in machines]
    counts = [0] * len(machines)

    def free_slots_and_memory(index: int) -> tuple[int, int]:
        """Return a machine's free slots, and its free memory in bytes, after the workers assigned so far."""
        return slots[index] - counts[index], machines[index].memory - counts[index] * wants.worker

    for _worker in range(count if machines else 0):  # without machines nobody can be assigned
        emptiest_index = max(range(len(machines)), key=free_slots_and_memory)
        counts[emptiest_index] += 1
    return [NodePlan(machine, wants, workers) for machine, workers in zip(machines, counts, strict=True)]


def worker_capacity(nodes: Sequence[NodePlan]) -> int:
    """Return the number of workers that the cluster has space for."""
    return sum(node.worker_slots for node in nodes)


def refuse_nodes(nodes: Sequence[NodePlan]) -> None:
    """Refuse a run whose workers do not fit on the machines.

    Raises:
        MemoryLimitError: the message names each machine that lacks something, and what to change.
    """
    if lacking := [node for node in nodes if not node.fits]:
        raise MemoryLimitError(shortages(nodes, lacking))


def shortages(nodes: Sequence[NodePlan], lacking: Sequence[NodePlan]) -> str:
    """Return the message about workers that do not fit: a summary with the remedy, and a line for each machine.

    Args:
        nodes: plans of all machines.
        lacking: plans of the machines on which workers do not fit.
    """
    needs = nodes[0].wants
    count = sum(node.workers for node in nodes)
    capacity = worker_capacity(nodes)
    summary = (
        f"the cluster has room for {capacity} workers of {format_bytes(needs.worker)} and {needs.threads} cores each, "
        f"and {count} are needed. Use --workers {max(1, capacity)}, add machines, or make the run smaller."
    )
    return "\n".join([summary, *(f"  {node.shortage()}" for node in lacking)])
