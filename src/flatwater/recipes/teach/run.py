"""From a configuration to a trainer of students: the worlds, the teacher, the student, the phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.envs.world import described
from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan, refuse
from flatwater.metrics.alarms import Alarm, of_learner
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.recipes.teach.plan import plan_teach
from flatwater.recipes.teach.result import as_json
from flatwater.recipes.teach.score import score_student
from flatwater.recipes.teach.teachers import find_teacher
from flatwater.recipes.teach.worlds import build_worlds
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocated
from flatwater.runs.run import Run
from flatwater.state.random import generator
from flatwater.trainers.teach.collect import Collector
from flatwater.trainers.teach.held_out import Stage
from flatwater.trainers.teach.numbers import PARTS
from flatwater.trainers.teach.profile import Profile
from flatwater.trainers.teach.rebuild import rebuild_
from flatwater.trainers.teach.round import TeachTrainer, build_trainer
from flatwater.trainers.teach.state import RANDOM, TEACHER, build_recipe, build_teach


@dataclass(frozen=True)
class TeachRun(Run):
    """A world, a teacher and a student, ready to train or to be restored."""

    config: TeachRunConfig
    plan: Plan
    trainer: TeachTrainer

    def describe(self) -> str:
        """The world, its agents, and who teaches."""
        return f"{self.config.world}: {described(self.trainer.recipe.spaces)}, taught by {self.config.teacher}"

    def data(self) -> dict[str, Any]:
        """What agents see and do: a world of another version may differ."""
        spaces = self.trainer.recipe.spaces
        return {"agents": spaces.agents, "obs": list(spaces.obs), "actions": list(spaces.actions)}

    def rebuild_(self) -> None:
        """Bring worlds and teachers to where they were: their episodes are played again.

        Raises:
            CheckpointError: an episode comes out otherwise.
        """
        rebuild_(self.trainer)

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Numbers and weights that are not finite, and updates that were not taken."""
        config, largest = self.config.learner, float(self.trainer.run.learner.block.abs().max())
        numbers = {name: value for name, value in metrics.items() if not name.startswith("evaluation/")}
        return of_learner(round_, "student", largest, numbers, config.epochs * config.minibatches)

    def parts(self) -> Mapping[str, Effort]:
        """What the parts of a step took in this round, in agent steps, so that one that becomes slower is named."""
        profile = self.trainer.profile
        return {
            f"{part} (a part of each step)": Effort(profile.wall[part], profile.cpu[part], profile.steps, None)
            for part in profile.parts
            if profile.steps
        }

    def record(self) -> Mapping[str, Any]:
        """Where each environment is: episode's seed and steps, and what its agents were paid so far."""
        episodes = self.trainer.run.episodes
        return {
            "seed": episodes.seeds.tolist(),
            "steps": episodes.steps.tolist(),
            "return": episodes.returns.mean(1).tolist(),
        }

    def live_envs(self) -> int:
        """Environments of both worlds."""
        recipe = self.trainer.recipe
        return recipe.spaces.envs + recipe.held_out.envs

    def too_early(self) -> str:
        """An untrained student can be scored as well, but its score says nothing."""
        return "" if self.trainer.progress.round else "no block has ended yet, so the student has learned nothing"

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """The student against the teacher and random actions on held-out or holdout episodes."""
        split = "holdout" if holdout else "held-out"
        score = score_student(self.trainer, FIRST_SEEDS[split])
        return as_json(self.trainer, score, split, threads=self.config.threads)


def compose(config: TeachRunConfig) -> TeachRun:
    """Build the worlds and allocate the run whole.

    Raises:
        ConfigError: the configuration does not fit the machine, or there is no such world or teacher.
        CheckpointError: the teacher is a run without an intact checkpoint.
        MemoryLimitError: the run would hold more than there is; names its largest owners.
    """
    device, worlds = find_device(config.device), build_worlds(config)
    plan = plan_teach(config, worlds, device)
    if not config.start_over_budget:
        refuse(plan)
    recipe = build_recipe(config, worlds.training.spaces, worlds.held_out.spaces, device)
    run = allocated(lambda: build_teach(recipe), plan)
    draws = run.generators
    teacher = find_teacher(config.teacher, worlds.training, draws["teacher"], device)
    others = {
        TEACHER: find_teacher(config.teacher, worlds.held_out, draws["held out teacher"], device),
        RANDOM: find_teacher("random", worlds.held_out, draws["random"], device),
    }
    profile = Profile(PARTS)
    collector = Collector(recipe, run, worlds.training, teacher, profile)
    trainer = build_trainer(recipe, run, collector, Stage(recipe, run, worlds.held_out, others), profile)
    return TeachRun(config, plan, trainer)


def plan(config: TeachRunConfig) -> Plan:
    """What a run would hold.

    Raises:
        ConfigError: the configuration does not fit the machine, or there is no such world or teacher.
        CheckpointError: the teacher is a run without an intact checkpoint.
    """
    device, worlds = find_device(config.device), build_worlds(config)
    find_teacher(config.teacher, worlds.training, generator(config.seed, "teacher", torch.device("cpu")), device)
    return plan_teach(config, worlds, device)
