"""From a configuration to a trainer of students: the worlds, the teacher, the student, the phases.

A teacher is a search or a bot, random actions, a class of the user's, or the student of another run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.ppo import bound_weights, build
from flatwater.checkpoints.reader import newest_intact, restore_state_
from flatwater.config.toml import load_config
from flatwater.envs.exact import WorldPlayer
from flatwater.envs.world import Array, Teacher, World, describe_spaces
from flatwater.envs.worlds import build_teacher
from flatwater.memory.planner import Plan
from flatwater.recipes.ppo.plan import BlocksWorlds, build_worlds, plan_blocks
from flatwater.recipes.ppo.policy import TrainedPolicy
from flatwater.recipes.ppo.run import BlocksRun, allocate, bind
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.rundir.layout import open_folder
from flatwater.runs.machine import find_device
from flatwater.state.random import generator
from flatwater.trainers.blocks.state import RANDOM, TEACHER, build_student
from flatwater_watch.errors import CheckpointError, ConfigError


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
        if config.learner.reinforcement.value_at(steps):
            return super().about()
        alone = f"PPO has weight 0 in all of the {steps:,} agent steps: the student learns from the teacher alone"
        return (*super().about(), f"{alone}. learner.reinforcement.begins says when that ends.")

    def build_player(self, beside: int) -> tuple[World, WorldPlayer]:
        """With the teacher, where it is the user's: what ships forgets an episode, and draws what is saved."""
        world, name = self.build_world(2), self.config.teacher
        if ":" not in name or name.startswith(OF_A_RUN):
            return world, WorldPlayer(world, beside)
        return world, WorldPlayer(
            world, beside, build_teacher(name, world, generator(0, "unused", torch.device("cpu")))
        )

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """The student against the teacher and random actions."""
        found = super().score(holdout=holdout) | {"teacher": self.config.teacher}
        if self.config.teacher == RANDOM:
            found["players"]["student"].pop("of_teacher")
            found["note"] += "; the teacher acts by chance, so a share of its return would say nothing"
        return found


def compose(config: TeachRunConfig) -> TeachRun:
    """Build the worlds and allocate the run whole."""
    device, worlds = find_device(config.device), build_teach_worlds(config)
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
    device, worlds = find_device(config.device), build_teach_worlds(config)
    find_teacher(config.teacher, worlds.training, generator(config.seed, "teacher", torch.device("cpu")), device)
    return plan_blocks(config, worlds, device, taught=True)


def build_teach_worlds(config: TeachRunConfig) -> BlocksWorlds:
    """The worlds to learn in and to be judged in.

    Raises:
        ConfigError: there is no such world, or an action is more than a choice from a list.
    """
    worlds = build_worlds(config)
    if worlds.training.spaces.action_shape:
        raise ConfigError(
            f"world = {config.world!r}: has {describe_spaces(worlds.training.spaces)}; "
            "a student chooses from one list. "
            "Train without a teacher: flatwater train ppo --env ..."
        )
    return worlds


OF_A_RUN = "run:"


def find_teacher(name: str, world: World, rng: torch.Generator, device: torch.device) -> Teacher:
    """The teacher of a name, as in `TeachRunConfig.teacher`."""
    if not name.startswith(OF_A_RUN):
        return build_teacher(name, world, rng)
    return StudentTeacher(Path(name.removeprefix(OF_A_RUN)), world, device)


class StudentTeacher:
    """A network of our own: the student of a run of teaching, as it was at its last checkpoint, without gradient.

    It shows the action that it thinks likeliest.
    """

    def __init__(self, run: Path, world: World, device: torch.device) -> None:
        """Read the checkpoint.

        Raises:
            ConfigError: the folder is none of a run of teaching.
            CheckpointError: there is no intact checkpoint, or it is of a world with others to see or to do.
        """
        folder = open_folder(run)
        config = load_config(TeachRunConfig, folder.config)
        self._agents = world.spaces.agents
        student = build_student(world.spaces, config.student, device)
        learner = build(student, sequences=1, rng=generator(0, "unused", device), device=device)
        intact = newest_intact(folder.checkpoints, say=lambda _: None)
        if intact is None:
            raise CheckpointError(f"teacher {OF_A_RUN}{run}: there is no intact checkpoint in {folder.checkpoints}")
        restore_state_({"block": learner.block, "statistics": learner.statistics}, intact, below="learner")
        self._policy = TrainedPolicy(student, world.spaces, bound_weights(student, learner))

    def begin_(self, which: Array) -> None:
        """Forget what was seen in these environments."""
        self._policy.begin(which.repeat(self._agents))

    def step_batch(self, obs: Array, actions_out: Array, legal: Array | None = None) -> None:
        """Write the likeliest action of each agent."""
        may = None if legal is None else legal.reshape(-1, legal.shape[-1])
        chosen = self._policy.act(obs.reshape(-1, *obs.shape[2:]), may)
        np.copyto(actions_out, chosen.reshape(actions_out.shape))
