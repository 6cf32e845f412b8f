"""A run of `grow`, composed from its configuration: the task, the pool, the policy, the phases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatwater.envs.growing.pool import live_pools
from flatwater.envs.growing.task import load_task
from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.memory.planner import Plan
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.grow.fingerprints import fingerprints
from flatwater.recipes.grow.lives import write_lives
from flatwater.recipes.grow.plan import plan_grow
from flatwater.recipes.grow.score import GrowScore, score_policy
from flatwater.recipes.grow.workers import GrowWorkers
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.results import write_json
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocate_planned_state, refuse_unfit
from flatwater.runs.run import OnPolicyRun, WorkersRun
from flatwater.runs.scores import episode_result
from flatwater.trainers.grow.round import GrowTrainer, build_trainer, episodes_record
from flatwater.trainers.grow.state import GrowSetup, build_grow
from flatwater_watch.phrases import count_phrase, noun_form


@dataclass(frozen=True)
class GrowRun(OnPolicyRun, WorkersRun):
    """A pool of growing networks and the policy that grows them, ready to train or to be restored."""

    config: GrowRunConfig
    trainer: GrowTrainer
    fingerprint: str
    """SHA-256 of the images and their order."""

    def describe(self) -> str:
        """Return the number and size of the hosts, their task, and the workers in one line."""
        config, envs = self.config, self.trainer.run.envs
        # Of a host that has grown in all its slots.
        weights = envs.host.weights.shape[1] + sum(seed.weights.shape[1] for seed in envs.seeds)
        shape = envs.task.image_shape
        size = f"images of {shape.channels} x {shape.height} x {shape.width}"
        if shape.channels == shape.height == 1:  # the form in which a task of vectors is kept
            size = f"vectors of {shape.width}"
        task = f"{len(envs.task.train_labels):,} {size} in {shape.classes} classes to learn"
        kind = config.host or config.env.host.kind
        workers = f", {count_phrase(len(self.plan.workers), 'worker')}" if self.plan.workers else ""
        hosts = f"{config.envs} {kind} {noun_form(config.envs, 'host')}"
        return f"{hosts} of up to {weights:,} weights, {task}, batches of one episode{workers}"

    def data(self) -> dict[str, Any]:
        """Return the fingerprint of the images."""
        return {"fingerprint": self.fingerprint}

    def record(self) -> Mapping[str, Any]:
        """Return the results of each environment's episode, for the journal."""
        return episodes_record(self.trainer.run)

    def live_envs(self) -> int:
        """Return the hosts alive in this process: those of every pool that was not freed."""
        return live_pools() * self.config.envs

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the policy's score against the baselines, on held-out or holdout episodes."""
        result, _score = self._score_split("holdout" if holdout else "held-out")
        return result

    def write_result(self, folder: RunFolder) -> None:
        """Play the held-out episodes; write result.json and lives.npz, each whole or not at all."""
        result, score = self._score_split("held-out")
        write_lives(folder.root, score.lives)
        write_json(self.with_round(result), folder.result)

    def _score_split(self, split: str) -> tuple[dict[str, Any], GrowScore]:
        """Play held-out or holdout episodes; return the result as plain values, and the score."""
        config, score = self.config, score_policy(self.trainer, FIRST_SEEDS[split])
        result_facts = {
            "first_seed": score.first_seed,
            "episodes": score.episodes,
            "steps": config.env.steps,
            "slots": len(self.trainer.setup.net.seeds),
            "batches": self.trainer.progress.round,
            "envs": config.envs,
            "seed": config.seed,
        }
        return episode_result(config, split, score.players, result_facts), score


def compose(config: GrowRunConfig) -> GrowRun:
    """Load the task and allocate the run whole."""
    device = find_device(config.device)
    plan = plan_grow(config, device)
    refuse_unfit(plan, config)
    task = load_task(config.task, device)
    setup = GrowSetup(config, device, task.image_shape)
    run = allocate_planned_state(lambda: build_grow(setup, task), plan)
    image_hash, host_hashes = fingerprints(config, task)
    workers = None
    # Workers' processes start with the first episode, not here.
    if plan.workers:
        workers = GrowWorkers(config, setup, run, plan=plan, fingerprint=f"{image_hash}:{host_hashes}")
    return GrowRun(config, plan, build_trainer(setup, run, workers), image_hash, workers=workers)


def plan(config: GrowRunConfig) -> Plan:
    """Return the plan of a run."""
    return plan_grow(config, find_device(config.device))
