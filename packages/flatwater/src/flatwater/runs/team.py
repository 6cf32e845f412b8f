"""Workers of a run, whatever they compute: started, asked, replaced, and compared with their plan.

The state tree in the run's own process is the run. A worker keeps copies, which are sent when they have changed, so it
may die at any moment and another continues in its place. Recipes say what workers are asked, and what a new worker has
to be told.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from flatwater.cluster.processes import Process
from flatwater.cluster.share import Span
from flatwater.cluster.worker_client import Worker
from flatwater.cluster.worker_client import WorkerConnection as Life
from flatwater.memory.ledger import SCALAR_BYTES
from flatwater.memory.nodes import STORE_SHARE, Machine, WorkerNeeds, assign_workers
from flatwater.memory.planner import Plan, group_bytes
from flatwater.runs.config import WorkersRunConfig
from flatwater.runs.fingerprint import ARITHMETIC, arithmetic_hash, changed_facts
from flatwater.runs.machine import release_freed_memory
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.meters import limit
from flatwater_watch.meters.mappings import CostlyMeter, family_memory

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Assignment:
    """Parameters from which a worker is made."""

    config: Any
    """Configuration of the run: a WorkersRunConfig, and the settings of its trainer."""
    share: Span
    """Members of the worker, or its environments."""
    fingerprint: str
    """Hash of the data."""
    versions: Mapping[str, str]
    """Versions that the numbers depend on besides the configuration."""
    mapped: Collection[str]
    """Leaves of the state that are a part of a file."""


METER_SHARE = 1 / 2000
"""Share of a worker's time that may go into reading its memory."""


class WorkerService:
    """A worker's side of the connection, for every recipe; it lives in the worker's process."""

    def __init__(self, assignment: Assignment) -> None:
        """Take the run's number of threads, and refuse to compute other numbers than the run.

        Raises:
            RunError: the versions or the arithmetic are others than the run's.
        """
        # Before anything is computed: the run's number, so that sums are taken in the run's order.
        torch.set_num_threads(assignment.config.threads)
        exempt_names = (ARITHMETIC,) if assignment.config.any_machine else ()
        if changed := changed_facts(
            assignment.versions, then="in the run", current_name=f"on {platform.node()}", exempt_names=exempt_names
        ):
            raise RunError(
                f"a worker would compute other numbers than the run: {'; '.join(changed)}. Use machines of one kind "
                "with the same versions, or give --any-machine, which changes the last bits of the numbers."
            )
        self._held: object = None
        self._mapped: Collection[str] = ()
        self._memory = CostlyMeter(self._read, METER_SHARE)

    def hold_(self, state: object, mapped: Collection[str] = ()) -> None:
        """Set the state that is measured; some of its leaves may be a part of a file."""
        self._held, self._mapped = state, mapped

    def _read(self) -> dict[str, Any]:
        """Return this worker's private and proportional bytes, and the bytes of each leaf that it holds."""
        release_freed_memory()  # so that pages of a step's temporaries do not count as the worker's
        memory = family_memory()
        leaf_bytes = {path: size for path, size in nbytes(self._held).items() if path not in self._mapped}
        return {"private": memory.private, "proportional": memory.proportional, "held": leaf_bytes}

    def memory(self) -> dict[str, Any]:
        """Return bytes of this process: its own, those with its part of shared pages, and each leaf of its state."""
        return self._memory.read_if_due_()

    def arithmetic(self) -> str:
        """Return the arithmetic of this machine."""
        return arithmetic_hash()


class WorkerPool(ABC):
    """The run's side of its workers, which are started when they are first needed; recipes define their tasks."""

    def __init__(self, config: WorkersRunConfig, plan: Plan, service: str, assignments: Sequence[Assignment]) -> None:
        """Keep the arguments of workers; none is started yet.

        Args:
            config: settings of the run.
            plan: number of workers, their machines, and the bytes that each holds and may have.
            service: `package.module:Class` of a worker's side, a `WorkerService`.
            assignments: the assignment of each.
        """
        self._config, self._plan, self._desk, self._given = config, plan, service, assignments
        self._budgets = plan.worker_budgets
        self._nodes = [node.machine.identity for node in plan.nodes for _ in range(node.workers)]
        self.workers: list[Worker] = []
        self._before = (0, 0)  # arrays and starts so far, when `exchange_` was last asked
        self.machines: set[str] = set()
        """Arithmetics of workers, where any is taken."""

    @abstractmethod
    def gather_(self) -> None:
        """Copy the workers' state into the state tree."""

    @abstractmethod
    def restore_worker_(self, worker: Worker) -> None:
        """Give a worker that replaces a dead worker the state of the dead worker."""

    @property
    def wire_bytes(self) -> int:
        """Bytes that went to the processes and came from them so far."""
        return sum(worker.wire for worker in self.workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers now, as far as they are on this machine."""
        return [pid for worker in self.workers if (pid := worker.pid) is not None]

    def exchange_(self) -> Mapping[str, Any]:
        """Return the ledger's record of the workers; see `runs.run.Run.exchange`."""
        if not self.workers:
            return {}
        workers = [self._worker_memory(*numbered) for numbered in enumerate(self.ask_all("memory"))]
        arrays, lives = (sum(getattr(worker, name) for worker in self.workers) for name in ("arrays", "times_started"))
        moved_arrays, lost_workers = arrays - self._before[0], lives - self._before[1]
        # In the first round every worker counts as started: none of them took a lost worker's place.
        is_first, self._before = not self._before[1], (arrays, lives)
        return {
            "private": sum(record["private"] for record in workers),
            "wire": self.wire_bytes,
            "arrays": arrays,
            "moved": moved_arrays,
            "workers": workers,
            **({} if is_first else {"lost": lost_workers}),
            **({"stores": import_ray_module().in_stores()} if self._config.cluster else {}),
        }

    def _worker_memory(self, number: int, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return a worker's planned memory, to compare with the memory that it reports."""
        planned_bytes, leaf_bytes = self._plan.worker_owners[number], report["held"]
        differences = {
            path: planned_bytes.get(path, 0) - leaf_bytes.get(path, 0) for path in planned_bytes | leaf_bytes
        }
        return {
            "machine": self.workers[number].machine,
            "private": report["private"],
            "proportional": report["proportional"],
            "planned": self._plan.workers[number] - self._plan.worker_transients,
            # Scalars would be most of the lines, and hardly a byte.
            "owned": group_bytes({path: size for path, size in leaf_bytes.items() if size > SCALAR_BYTES}, depth=1),
            "owned_bytes": sum(leaf_bytes.values()),
            "unplanned": {path: size for path, size in differences.items() if size},
        }

    def ready_(self) -> None:
        """Have every worker running; replace a worker that must leave, once its state is in the state tree."""
        if not self.workers:
            # All are started before the first answer is awaited: their imports take seconds, and go on side by side.
            self.workers = [self._worker(number) for number in range(len(self._plan.workers))]
            for worker in self.workers:
                worker.take_answer()
                self._note_(worker)
        if any(worker.is_leaving for worker in self.workers):
            # Before the old process ends: what it knows is nowhere else.
            self.gather_()
            for worker in self.workers:
                if worker.is_leaving:
                    worker.restart_process_()

    def ask_all(self, name: str, *arguments: object) -> list[Any]:
        """Return the answers of all workers to one question."""
        # All are asked before the first answer is awaited, so that they compute at the same time.
        for worker in self.workers:
            worker.post(name, *arguments)
        return [worker.take_answer() for worker in self.workers]

    def close(self) -> None:
        """End the processes."""
        for worker in self.workers:
            worker.close()
        self.workers.clear()

    def _worker(self, number: int) -> Worker:
        """Return the connection to a new worker, in a process here or, with a cluster, wherever Ray places it."""
        return Worker(
            number,
            self._desk,
            self._given[number],
            prepare=self._prepare_,
            open_desk=(lambda: self._actor_(number)) if self._config.cluster else Process,
            budget=self._budgets[number],
        )

    def _prepare_(self, worker: Worker) -> None:
        """Bring a new process to its worker's state: note its arithmetic, and send it the state."""
        self._note_(worker)
        self.restore_worker_(worker)

    def _actor_(self, number: int) -> Life:
        """Return an actor on the cluster: the first where the plan has it, any later one wherever there is space."""
        node, self._nodes[number] = self._nodes[number], ""  # the planned node may be the lost node
        actor: Life = import_ray_module().RayActor(self._config.threads, self._budgets[number], node)
        return actor

    def _note_(self, worker: Worker) -> None:
        """Ask a worker for its arithmetic, where machines may differ."""
        if self._config.any_machine:
            self.machines.add(worker.ask("arithmetic"))


def place_workers(plan: Plan, config: WorkersRunConfig) -> Plan:
    """Return the plan with its workers on the machines of the cluster."""
    wants = WorkerNeeds(
        worker=max(plan.workers),
        threads=max(1, config.threads),
        mapped=plan.mapped_bytes,
        store=STORE_SHARE * plan.largest_message,
    )
    return replace(plan, nodes=assign_workers(cluster_machines(config), len(plan.workers), wants))


def import_ray_module() -> ModuleType:
    """Return the module that uses Ray.

    Raises:
        ConfigError: Ray is not installed.
    """
    try:
        from flatwater.cluster import ray_workers  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ConfigError("cluster: needs Ray, which is not installed: pip install 'flatwater[ray]'") from error
    return ray_workers


def cluster_machines(config: WorkersRunConfig) -> list[Machine]:
    """Return the machines of the configuration's cluster."""
    assert config.cluster  # noqa: S101  (who asks has one)
    ray = import_ray_module()
    ray.connect(config.cluster)
    nodes = ray.nodes()
    node_limits = ray.ask_nodes(nodes, f"{limit.__name__}:{limit.memory_limits.__name__}")
    return [
        Machine(node.name, node.identity, int(node.cores), node.memory, node.store, min(limits.values()))
        for node, limits in zip(nodes, node_limits, strict=True)
    ]


def to_arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray | None]:
    """Return tensors as arrays, in the form in which they are sent; both share their memory."""
    return {name: None if tensor is None else tensor.numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Mapping[str, np.ndarray | None]) -> dict[str, Any]:
    """Return arrays as tensors, in the form in which they are received; both share their memory."""
    return {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
