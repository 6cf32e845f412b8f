"""A run of `grow`, composed from its configuration: the task, the pool, the policy, the phases."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from flatwater.envs.growing.simulator import live_pools
from flatwater.envs.growing.task import load_task
from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.memory.nodes import refuse_nodes
from flatwater.memory.planner import Plan, refuse
from flatwater.metrics.alarms import Alarm, learner_alarms
from flatwater.recipes.grow.config import GrowRunConfig, split_environments
from flatwater.recipes.grow.data import fingerprints
from flatwater.recipes.grow.exchange import measure_wire_bytes
from flatwater.recipes.grow.plan import plan_grow
from flatwater.recipes.grow.score import as_json, score_policy, write_result
from flatwater.recipes.grow.workers import GrowWorkers
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocate_planned
from flatwater.runs.run import CrewRun
from flatwater.trainers.grow.round import GrowTrainer, build_trainer, episodes_record
from flatwater.trainers.grow.state import build_grow, build_setup
from flatwater_watch.forms import count_phrase, noun_form


@dataclass(frozen=True)
class GrowRun(CrewRun):
    """A pool of growing networks and the policy that grows them, ready to train or to be restored."""

    config: GrowRunConfig
    plan: Plan
    trainer: GrowTrainer
    fingerprint: str
    """SHA-256 of the images and their order."""

    def describe(self) -> str:
        """Return hosts, their size, and their task in one line."""
        config, envs = self.config, self.trainer.run.envs
        weights = envs.host.weights.shape[1] + sum(seed.weights.shape[1] for seed in envs.seeds)
        images = envs.task.images
        size = f"images of {images.channels} x {images.height} x {images.width}"
        if images.channels == images.height == 1:
            size = f"vectors of {images.width}"
        task = f"{len(envs.task.train_labels):,} {size} in {images.classes} classes to learn"
        kind = config.host or config.env.host.kind
        workers = f", {count_phrase(len(self.plan.workers), 'worker')}" if self.plan.workers else ""
        hosts = f"{config.envs} {kind} {noun_form(config.envs, 'host')}"
        return f"{hosts} of up to {weights:,} weights, {task}, batches of one episode{workers}"

    def data(self) -> dict[str, Any]:
        """Return the fingerprint of the images."""
        return {"fingerprint": self.fingerprint}

    def weights(self) -> Collection[Tensor]:
        """Return policy and critic, and the statistics of observations."""
        return self.trainer.run.learner.weights

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about numbers and weights that are not finite, and about updates that were left out."""
        config, largest = self.config.learner, float(self.trainer.run.learner.block.abs().max())
        return learner_alarms(round_, "policy", largest, metrics, config.epochs * config.minibatches)

    def record(self) -> Mapping[str, Any]:
        """Return the numbers of each environment's episode."""
        return episodes_record(self.trainer.run)

    def live_envs(self) -> int:
        """Return the pools alive in this process, times the hosts of one."""
        return live_pools() * self.config.envs

    def too_early(self) -> str:
        """Return why a score would say nothing yet; empty once the policy has learned."""
        return "" if self.trainer.progress.round else "no batch has ended yet, so the policy has learned nothing"

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the policy's score against the baselines, on held-out or holdout episodes."""
        split = "holdout" if holdout else "held-out"
        return as_json(self.trainer, score_policy(self.trainer, FIRST_SEEDS[split]), split, threads=self.config.threads)

    def write_result(self, folder: RunFolder) -> None:
        """Play the held-out episodes; write result.json and the slots' lives."""
        write_result(self.trainer, folder, threads=self.config.threads)


def compose(config: GrowRunConfig) -> GrowRun:
    """Load the task and allocate the run whole."""
    device = find_device(config.device)
    plan = plan_grow(config, device)
    # A budget may be exceeded on purpose; machines without room for a worker may not.
    if config.start_over_budget:
        refuse_nodes(plan.nodes)
    else:
        refuse(plan)
    task = load_task(config.task, device)
    setup = build_setup(config, task.images, device)
    run = allocate_planned(lambda: build_grow(setup, task), plan)
    fingerprint, host = fingerprints(config, task)
    crew = None
    # Only bound here: its processes start with the first episode.
    if plan.workers:
        exchange = measure_wire_bytes(setup, run, split_environments(config, len(plan.workers)))
        crew = GrowWorkers(config, setup, run, plan=plan, exchange=exchange, fingerprint=f"{fingerprint}:{host}")
    return GrowRun(config, plan, build_trainer(setup, run, crew), fingerprint)


def plan(config: GrowRunConfig) -> Plan:
    """Return the plan of a run."""
    return plan_grow(config, find_device(config.device))
