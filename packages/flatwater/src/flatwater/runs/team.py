"""Worker processes of a run: starts them, sends them questions, replaces dead ones, and compares memory with the plan.

The state tree in the run's own process is the run. A worker keeps copies of parts of it, which are sent again when they
have changed. So a worker may die at any moment, and another continues in its place. A recipe defines the questions to
workers, and the state that a new worker gets.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch

from flatwater.cluster.processes import Process
from flatwater.cluster.work_division import Span
from flatwater.cluster.worker_client import Worker, WorkerConnection
from flatwater.memory.ledger import SCALAR_BYTES
from flatwater.memory.nodes import STORE_SHARE, Machine, WorkerNeeds, assign_workers
from flatwater.memory.planner import Plan, group_bytes
from flatwater.runs.config import WorkersRunConfig
from flatwater.runs.costly_meter import CostlyMeter
from flatwater.runs.fingerprint import ARITHMETIC, arithmetic_hash, describe_version_changes
from flatwater.runs.machine import release_freed_memory
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.meters import limit
from flatwater_watch.meters.mappings import family_memory

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Assignment:
    """The arguments of a new worker."""

    config: Any
    """Configuration of the run: a WorkersRunConfig, and the settings of its trainer."""
    share: Span
    """Members, or environments, that the worker computes."""
    fingerprint: str
    """Hash of the data."""
    versions: Mapping[str, str]
    """The run's `version_facts`, which the worker's must equal."""
    mapped: Collection[str]
    """Paths of leaves of the state that lie in memory-mapped files."""


METER_SHARE = 1 / 2000
"""Share of a worker's time that may go into reading its memory."""


class WorkerService:
    """The object in a worker's process that answers the run's questions; recipes add methods of their own."""

    def __init__(self, assignment: Assignment) -> None:
        """Set the number of threads, and refuse versions or arithmetic with which the worker's numbers would differ.

        Raises:
            RunError: the versions or the arithmetic differ from the run's.
        """
        # The run's number of threads, before anything is computed, so that sums are taken in the run's order.
        torch.set_num_threads(assignment.config.threads)
        exempt_names = (ARITHMETIC,) if assignment.config.any_machine else ()
        if differences := describe_version_changes(
            assignment.versions,
            save_phrase="in the run",
            current_name=f"on {platform.node()}",
            exempt_names=exempt_names,
        ):
            raise RunError(
                f"a worker would compute other numbers than the run: {'; '.join(differences)}. Use machines of one "
                "kind with the same versions, or give --any-machine, which changes the last bits of the numbers."
            )
        self._measured_state: object = None
        self._mapped_paths: Collection[str] = ()
        self._memory_meter = CostlyMeter(self._measure_memory, METER_SHARE)

    def set_measured_state_(self, state: object, mapped: Collection[str] = ()) -> None:
        """Set the state that `memory` measures, and the paths of its leaves that lie in memory-mapped files."""
        self._measured_state, self._mapped_paths = state, mapped

    def _measure_memory(self) -> dict[str, Any]:
        """Return this process's private and proportional bytes, and the bytes of each leaf outside of mapped files."""
        release_freed_memory()  # so that the freed temporaries of a step do not count as the worker's
        memory = family_memory()
        leaf_bytes = {
            path: size for path, size in nbytes(self._measured_state).items() if path not in self._mapped_paths
        }
        return {"private": memory.private, "proportional": memory.proportional, "held": leaf_bytes}

    def memory(self) -> dict[str, Any]:
        """Return the result of `_measure_memory`, or the last result where a new one would cost too much time."""
        return self._memory_meter.read_if_due_()

    def arithmetic(self) -> str:
        """Return the arithmetic of this machine."""
        return arithmetic_hash()


class WorkerPool(ABC):
    """The workers of a run, in the run's own process; they are started when they are first needed."""

    def __init__(self, config: WorkersRunConfig, plan: Plan, service: str, assignments: Sequence[Assignment]) -> None:
        """Keep the arguments of workers; no worker is started yet.

        Args:
            config: settings of the run.
            plan: plan of the run: number of workers, their machines, and the bytes of each.
            service: `package.module:Class` of the `WorkerService` in a worker's process.
            assignments: the assignment of each worker.
        """
        self._config, self._plan = config, plan
        self._service, self._assignments = service, assignments
        self._budgets = plan.worker_budgets
        # For each worker, the machine of its first actor; empty without a cluster.
        self._planned_nodes = [node.machine.identity for node in plan.nodes for _ in range(node.workers)]
        self.workers: list[Worker] = []
        self._totals_before = (0, 0)
        """Bytes of arrays sent and received, and starts of workers, in all, at the last call of `measure_exchange_`."""
        self.machines: set[str] = set()
        """Arithmetics of the workers; noted only with the setting `any_machine`, else all have that of the run."""

    @abstractmethod
    def gather_(self) -> None:
        """Copy the workers' state into the state tree."""

    @abstractmethod
    def restore_worker_(self, worker: Worker) -> None:
        """Send a worker that replaces a dead worker the state that the dead worker had."""

    @property
    def wire_bytes(self) -> int:
        """Bytes that were sent to the workers and received from them so far."""
        return sum(worker.wire for worker in self.workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers on this machine."""
        return [pid for worker in self.workers if (pid := worker.pid) is not None]

    def measure_exchange_(self) -> Mapping[str, Any]:
        """Ask the workers for their memory. Returns it with the bytes that were sent to them and received from them.

        The keys are those of `runs.run.Run.measure_exchange_`; empty if no worker runs.
        """
        if not self.workers:
            return {}
        records = [self._worker_record(number, report) for number, report in enumerate(self.ask_all("memory"))]
        arrays = sum(worker.arrays for worker in self.workers)
        starts = sum(worker.times_started for worker in self.workers)
        arrays_before, starts_before = self._totals_before
        self._totals_before = arrays, starts
        # Each start after the first of a worker replaces a lost one. In the first call all starts are first ones.
        lost_workers = {"lost": starts - starts_before} if starts_before else {}
        return {
            "private": sum(record["private"] for record in records),
            "wire": self.wire_bytes,
            "arrays": arrays,
            "moved": arrays - arrays_before,
            "workers": records,
            **lost_workers,
            **({"stores": _object_store_bytes()} if self._config.cluster else {}),
        }

    def _worker_record(self, number: int, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ledger's record of worker `number`: measured bytes, from its report, beside planned bytes."""
        planned_bytes = self._plan.worker_owners[number]
        leaf_bytes = report["held"]
        differences = {
            path: planned_bytes.get(path, 0) - leaf_bytes.get(path, 0) for path in planned_bytes | leaf_bytes
        }
        return {
            "machine": self.workers[number].machine,
            "private": report["private"],
            "proportional": report["proportional"],
            # Between two steps, when a worker is asked, it has no temporary tensors.
            "planned": self._plan.workers[number] - self._plan.worker_transients,
            # Without scalars, which would be most of the entries and hardly a byte.
            "owned": group_bytes({path: size for path, size in leaf_bytes.items() if size > SCALAR_BYTES}, depth=1),
            "owned_bytes": sum(leaf_bytes.values()),
            "unplanned": {path: size for path, size in differences.items() if size},
        }

    def ready_(self) -> None:
        """Start all workers if none runs, and move those whose machine is about to shut down to another process."""
        if not self.workers:
            # All are started before the first answer is awaited, so that their imports, of seconds, run in parallel.
            self.workers = [self._new_worker(number) for number in range(len(self._plan.workers))]
            for worker in self.workers:
                worker.take_answer()  # of the start: the worker is ready
                self._note_arithmetic_(worker)
        if any(worker.is_leaving for worker in self.workers):
            # State is collected before the old process ends, as it is nowhere else.
            self.gather_()
            for worker in self.workers:
                if worker.is_leaving:
                    worker.restart_process_()

    def ask_all(self, name: str, *arguments: object) -> list[Any]:
        """Call the method `name` of the service in every worker. Returns their answers, in the order of the workers."""
        # All are asked before the first answer is awaited, so that they compute at the same time.
        for worker in self.workers:
            worker.post(name, *arguments)
        return [worker.take_answer() for worker in self.workers]

    def close(self) -> None:
        """End the workers' processes."""
        for worker in self.workers:
            worker.close()
        self.workers.clear()

    def _new_worker(self, number: int) -> Worker:
        """Start a worker, in a process here or, with a cluster, in a Ray actor. Returns the run's side of it."""
        return Worker(
            number,
            self._service,
            self._assignments[number],
            prepare=self._prepare_,
            # `Process`, called without arguments, starts a process on this machine.
            connect=(lambda: self._open_actor_(number)) if self._config.cluster else Process,
            budget=self._budgets[number],
        )

    def _prepare_(self, worker: Worker) -> None:
        """Prepare the new process of a worker that was lost: note its arithmetic, and send it the worker's state."""
        self._note_arithmetic_(worker)
        self.restore_worker_(worker)

    def _open_actor_(self, number: int) -> WorkerConnection:
        """Return a new actor on the cluster for a worker: first on its planned node, later on any node with space."""
        node = self._planned_nodes[number]
        self._planned_nodes[number] = ""  # any node from the second actor on: the planned node may be the lost one
        require_ray()
        from flatwater.cluster.ray_workers import RayActor  # noqa: PLC0415  (an extra)

        actor: WorkerConnection = RayActor(self._config.threads, self._budgets[number], node)
        return actor

    def _note_arithmetic_(self, worker: Worker) -> None:
        """Add a worker's arithmetic to `machines`, if the settings allow machines that differ."""
        if self._config.any_machine:
            self.machines.add(worker.ask("arithmetic"))


def place_workers(plan: Plan, config: WorkersRunConfig) -> Plan:
    """Return the plan with each of its workers assigned to a machine of the cluster that has space for it."""
    needs = WorkerNeeds(
        worker=max(plan.workers),  # bytes: any worker must fit any assigned place
        threads=max(1, config.threads),
        mapped=plan.mapped_bytes,
        store=STORE_SHARE * plan.largest_message,
    )
    machines = list_cluster_machines(config)
    return replace(plan, nodes=assign_workers(machines, len(plan.workers), needs))


def require_ray() -> None:
    """Check that Ray, an extra, is installed; call it before an import from `flatwater.cluster.ray_workers`.

    Raises:
        ConfigError: it is not.
    """
    try:
        import_module("flatwater.cluster.ray_workers")
    except ImportError as error:
        raise ConfigError("cluster: needs Ray, which is not installed: pip install 'flatwater[ray]'") from error


def _object_store_bytes() -> int:
    """Return the bytes in the cluster's object stores; workers run there already, so Ray is installed."""
    from flatwater.cluster.ray_workers import object_store_bytes  # noqa: PLC0415  (an extra)

    return object_store_bytes()


def list_cluster_machines(config: WorkersRunConfig) -> list[Machine]:
    """Return the machines of the configuration's cluster, with their cores and memory, as Ray and they report."""
    assert config.cluster  # noqa: S101  (callers check it)
    require_ray()
    from flatwater.cluster import ray_workers  # noqa: PLC0415  (an extra)

    ray_workers.join_cluster(config.cluster)
    nodes = ray_workers.list_nodes()
    # Each node imports this function by its path, and returns its own limits, such as those of a container.
    node_limits = ray_workers.ask_nodes(nodes, f"{limit.__name__}:{limit.memory_limits.__name__}")
    return [
        Machine(
            name=node.name,
            identity=node.identity,
            cores=int(node.cores),
            memory=node.memory,
            store=node.store,
            limit=min(limits.values()),  # the tightest
        )
        for node, limits in zip(nodes, node_limits, strict=True)
    ]


def to_arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray | None]:
    """Return tensors as NumPy arrays, to be sent; an array shares its tensor's memory."""
    return {name: None if tensor is None else tensor.numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Mapping[str, np.ndarray | None]) -> dict[str, Any]:
    """Return received NumPy arrays as tensors; a tensor shares its array's memory."""
    return {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
