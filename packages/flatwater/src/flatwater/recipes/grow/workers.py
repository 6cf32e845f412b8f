"""Processes for growing networks: each plays the episodes of a share of the environments.

An episode begins with the policy and the seeds, which are sent to the workers, goes on step by step, and ends when
their rows of the pool are copied back. If a worker dies in between, its replacement plays the episode again from the
beginning: the run draws all random numbers, and keeps them until then.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.cluster.work_division import split_spans
from flatwater.cluster.worker_client import Worker
from flatwater.envs.growing.task import load_task
from flatwater.memory.planner import Plan
from flatwater.recipes.grow.config import GrowRunConfig, split_environments
from flatwater.recipes.grow.fingerprints import fingerprints
from flatwater.runs.fingerprint import version_facts
from flatwater.runs.team import Arrays, Assignment, WorkerPool, WorkerService, to_tensors
from flatwater.trainers.grow.executor import Columns, LocalGroupExecutor
from flatwater.trainers.grow.state import GrowSetup, GrowState, build_share, env_rows
from flatwater_watch.errors import RunError

SERVICE_CLASS = "flatwater.recipes.grow.workers:GrowService"
"""Import path of the worker's class, for a new process."""


class GrowService(WorkerService):
    """A worker's side, in its own process: a share of the environments, and the calls that the run sends for it."""

    def __init__(self, assignment: Assignment) -> None:
        """Load the task and allocate the share.

        Raises:
            RunError: the task, the host or the arithmetic differs from the run's.
        """
        super().__init__(assignment)
        config, cpu = assignment.config, torch.device("cpu")
        task = load_task(config.task, cpu)
        if ":".join(fingerprints(config, task)) != assignment.fingerprint:
            raise RunError(f"the task {config.task} or the host has changed since the run began")
        setup = GrowSetup(config, cpu, task.image_shape)
        low, high = assignment.share
        env_count = high - low
        self._share = share = build_share(setup, task, env_count)
        # A share has whole groups of the run, so splitting it from its own first environment gives the same groups.
        self._executor = LocalGroupExecutor(
            setup, share.policy, share.envs, share.memory, split_spans(env_count, config.group)
        )
        self.set_measured_state_(share)  # whose bytes the run's ledger has

    def begin(self, policy: Arrays, ungrown: Arrays, seeds: np.ndarray) -> None:
        """Begin an episode of this policy in every environment of the share, with these env seeds."""
        self._receive_policy_(policy, ungrown)
        self._executor.begin_(torch.from_numpy(seeds))

    def load(self, policy: Arrays, ungrown: Arrays, rows: Arrays) -> None:
        """Go on within an episode: copy the run's policy and the environments' rows into the share."""
        self._receive_policy_(policy, ungrown)
        for name, leaf in env_rows(self._share.envs, self._share.memory):
            leaf.copy_(torch.from_numpy(rows[name]))

    def step(self, player: str, noise: np.ndarray | None) -> Arrays:
        """Take a player's next step in every environment of the share, and return its results."""
        columns = self._executor.step_(player, None if noise is None else torch.from_numpy(noise))
        # Views: the answer is sent before the next step writes over them.
        return {name: column.numpy() for name, column in columns.items()}

    def rows(self) -> Arrays:
        """Return the rows of the share's environments, by the name of the leaf."""
        return {name: leaf.numpy() for name, leaf in env_rows(self._share.envs, self._share.memory)}

    def _receive_policy_(self, policy: Arrays, ungrown: Arrays) -> None:
        """Copy the run's policy, and its record of hosts without growth, into the share."""
        own_policy, own_record = self._share.policy, self._share.envs.alone
        own_policy.block.copy_(torch.from_numpy(policy["block"]))
        for name, statistic in own_policy.statistics.items():
            statistic.copy_(torch.from_numpy(policy[name]))
        own_record.accuracy.copy_(torch.from_numpy(ungrown["accuracy"]))
        own_record.hosts.copy_(torch.from_numpy(ungrown["hosts"]))


class GrowWorkers(WorkerPool):
    """The run's side: a `trainers.grow.executor.GroupExecutor` whose processes start when they are first needed."""

    def __init__(
        self,
        config: GrowRunConfig,
        setup: GrowSetup,
        run: GrowState,
        *,
        plan: Plan,
        fingerprint: str,
    ) -> None:
        """Bind the run; no process is started yet.

        Args:
            config: configuration of the run.
            setup: constants of all environments.
            run: state of the run.
            plan: number of workers, their machines, their needs and budgets.
            fingerprint: fingerprint of the task and the host.
        """
        self._setup, self._run = setup, run
        self.shares = split_environments(config, len(plan.workers))
        super().__init__(
            config,
            plan,
            SERVICE_CLASS,
            [Assignment(config, share, fingerprint, version_facts(), mapped=()) for share in self.shares],
        )
        # Env seeds of the episode, and each step that was played since: player and noise. A replaced worker needs them.
        self._seeds: Tensor | None = None
        self._played_steps: list[tuple[str, Tensor | None]] = []
        # Whether the workers must get the rows of a running episode before they can play its next step.
        self._needs_rows = True

    def begin_(self, seeds: Int[Tensor, "E"]) -> None:
        """Begin an episode in every environment, in all workers at once."""
        self.ready_()  # starts the workers, if none runs
        # A copy: the run draws its next seeds into the same tensor.
        self._seeds, self._played_steps, self._needs_rows = seeds.clone(), [], False
        # All workers are asked before any answer is awaited, so that they compute side by side.
        for worker in self.workers:
            worker.post("begin", *self._policy_and_ungrown(), self._worker_rows(worker, seeds))
        for worker in self.workers:
            worker.take_answer()  # empty: waits until the worker has begun

    def step_(self, player: str, noise: Float[Tensor, "E N"] | None) -> Columns:
        """Step all environments, in all workers at once; after an episode's last step, copy their rows back."""
        self.ready_()
        if self._needs_rows:  # the run was resumed within an episode
            for worker in self.workers:
                self._load_(worker)
            self._needs_rows = False
        for worker in self.workers:
            worker.post("step", player, self._worker_rows(worker, noise))
        answers = [to_tensors(worker.take_answer()) for worker in self.workers]
        # Noted after all answers: a worker that is replaced within this step plays only earlier steps again.
        self._played_steps.append((player, noise))
        if self._is_last_step():
            self.gather_()
        return {name: torch.cat([answer[name] for answer in answers]) for name in answers[0]}

    def gather_(self) -> None:
        """Copy the workers' environments into the state tree, if the workers have played since the last copy."""
        if self._seeds is None and not self._played_steps:  # neither begun nor stepped since the last copy
            return
        answers = self.ask_all("rows")
        for span, rows in zip(self.shares, answers, strict=True):
            for name, leaf in env_rows(self._run.envs, self._run.memory):
                leaf[slice(*span)] = torch.from_numpy(rows[name])
        # The state tree is up to date: a replaced worker gets its rows, and plays no step again.
        self._seeds, self._played_steps = None, []

    def close(self) -> None:
        """End the processes."""
        super().close()
        self._needs_rows = True  # new processes, if the run goes on, have no rows

    def _is_last_step(self) -> bool:
        """Return whether the current step is the episode's last one; the run counts it afterwards."""
        return (self._run.progress.step + 1) % self._setup.config.env.steps == 0

    def _worker_rows(self, worker: Worker, values: Tensor | None) -> np.ndarray | None:
        """Return a worker's share of values that have a row for each environment; None stays None."""
        return None if values is None else values[slice(*self.shares[worker.number])].numpy()

    def _policy_and_ungrown(self) -> tuple[Arrays, Arrays]:
        """Return the weights of the policy, and the record of hosts without growth, each as arrays by name."""
        learner, ungrown = self._run.learner, self._run.envs.alone
        policy = {"block": learner.block, **learner.statistics}
        return (
            {name: tensor.numpy() for name, tensor in policy.items()},
            {"accuracy": ungrown.accuracy.numpy(), "hosts": ungrown.hosts.numpy()},
        )

    def _load_(self, worker: Worker) -> None:
        """Send a worker the policy and its share of a running episode, as the state tree has it."""
        low, high = self.shares[worker.number]
        rows = {name: leaf[low:high].numpy() for name, leaf in env_rows(self._run.envs, self._run.memory)}
        worker.ask("load", *self._policy_and_ungrown(), rows)

    def restore_worker_(self, worker: Worker) -> None:
        """Let a new process, which the pool has started for a dead worker, play the worker's episode again."""
        # Without seeds the state tree has the rows: after `gather_`, or when a run is resumed within an episode.
        if self._seeds is None:
            self._load_(worker)
        else:  # the episode has begun in this process, and the state tree has none of its steps
            worker.ask("begin", *self._policy_and_ungrown(), self._worker_rows(worker, self._seeds))
        for player, noise in self._played_steps:
            worker.ask("step", player, self._worker_rows(worker, noise))
