"""From a configuration to a trainer of students: the worlds, the teacher, the student, the phases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flatwater.envs.world import described
from flatwater.errors import ConfigError
from flatwater.memory.planner import Plan
from flatwater.recipes.ppo.plan import plan_blocks
from flatwater.recipes.ppo.run import BlocksRun, allocate, bind
from flatwater.recipes.ppo.worlds import Worlds, build_worlds
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.recipes.teach.teachers import find_teacher
from flatwater.runs.machine import find_device
from flatwater.state.random import generator
from flatwater.trainers.blocks.state import RANDOM, TEACHER


@dataclass(frozen=True)
class TeachRun(BlocksRun):
    """A world, a teacher and a student, ready to train or to be restored."""

    config: TeachRunConfig

    def describe(self) -> str:
        """The world, its agents, and who teaches."""
        return f"{super().describe()}, taught by {self.config.teacher}"

    def about(self) -> Sequence[str]:
        """That PPO has no weight in the whole run, where it is so."""
        spaces, config = self.trainer.setup.spaces, self.config
        steps = config.rounds * config.block * spaces.envs * spaces.agents
        if config.learner.reinforcement.at(steps):
            return ()
        alone = f"PPO has weight 0 in all of the {steps:,} agent steps: the student learns from the teacher alone"
        return (f"{alone}. learner.reinforcement.begins says when that ends.",)

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """The student against the teacher and random actions."""
        found = super().score(holdout=holdout) | {"teacher": self.config.teacher}
        if self.config.teacher == RANDOM:
            found["players"]["student"].pop("of_teacher")
            found["note"] += "; the teacher acts by chance, so a share of its return would say nothing"
        return found


def compose(config: TeachRunConfig) -> TeachRun:
    """Build the worlds and allocate the run whole."""
    device, worlds = find_device(config.device), worlds_of(config)
    plan, setup, run = allocate(config, worlds, device, taught=True)
    draws = run.generators
    teacher = find_teacher(config.teacher, worlds.training, draws["teacher"], device)
    others = {
        TEACHER: find_teacher(config.teacher, worlds.held_out, draws["held out teacher"], device),
        RANDOM: find_teacher("random", worlds.held_out, draws["random"], device),
    }
    return TeachRun(config, plan, bind(setup, run, worlds, teacher, others))


def plan(config: TeachRunConfig) -> Plan:
    """What a run would hold."""
    device, worlds = find_device(config.device), worlds_of(config)
    find_teacher(config.teacher, worlds.training, generator(config.seed, "teacher", torch.device("cpu")), device)
    return plan_blocks(config, worlds, device, taught=True)


def worlds_of(config: TeachRunConfig) -> Worlds:
    """The worlds to learn in and to be judged in.

    Raises:
        ConfigError: there is no such world, or an action is more than a choice from a list.
    """
    worlds = build_worlds(config)
    if worlds.training.spaces.action_shape:
        raise ConfigError(
            f"world = {config.world!r}: has {described(worlds.training.spaces)}; a student chooses from one list. "
            "Train without a teacher: flatwater train ppo --env ..."
        )
    return worlds
