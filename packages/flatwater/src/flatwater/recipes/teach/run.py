"""A run of `teach`, composed from its configuration: the worlds, the teacher, the student, the phases.

A teacher is a search or a bot, random actions, a class of the user's, or the student of another run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.learner import build_learner, weight_views
from flatwater.checkpoints.reader import newest_intact, restore_state_
from flatwater.config.toml import load_config
from flatwater.envs.exactness import WorldPlayer
from flatwater.envs.world import Array, Teacher, World, describe_spaces
from flatwater.envs.worlds import build_teacher
from flatwater.memory.planner import Plan
from flatwater.recipes.ppo.run import BlocksRun, allocate, build_worlds, plan_blocks
from flatwater.recipes.ppo.setting_decisions import decide_settings
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.rundir.layout import open_folder
from flatwater.runs.machine import find_device
from flatwater.state.random import generator
from flatwater.trainers.blocks.round import build_trainer
from flatwater.trainers.blocks.state import RANDOM, TEACHER, build_actor_critic
from flatwater.trainers.world_trainer import Worlds
from flatwater_watch.errors import CheckpointError, ConfigError
from flatwater_watch.events.background import say_nothing


@dataclass(frozen=True)
class TeachRun(BlocksRun):
    """A world, a teacher and a student, ready to train or to be restored."""

    config: TeachRunConfig

    def describe(self) -> str:
        """Return the world, its agents, and the teacher in one line."""
        return f"{super().describe()}, taught by {self.config.teacher}"

    def about(self) -> Sequence[str]:
        """Return notes about the run, and a further note if PPO's weight is still 0 after the last step."""
        spaces, config = self.trainer.setup.spaces, self.config
        steps = config.rounds * config.block * spaces.envs * spaces.agents
        if config.learner.reinforcement.scheduled_value(steps):
            return super().about()
        no_ppo = f"PPO has weight 0 in all of the {steps:,} agent steps: the student learns from the teacher alone"
        return (*super().about(), f"{no_ppo}. Set learner.reinforcement.begins to change this.")

    def build_player(self, other_seed: int) -> tuple[World, WorldPlayer]:
        """Return a world of two environments and its player, for the test whether a resume will be exact."""
        world = self.build_world(2)
        name = self.config.teacher
        is_users_class = ":" in name and not name.startswith(OF_A_RUN)  # package.module:Class
        # Only a teacher of the user's plays in the test: those that ship keep nothing over episodes.
        if not is_users_class:
            return world, WorldPlayer(world, other_seed)
        unused_rng = generator(0, "unused", torch.device("cpu"))  # a class of the user's gets none
        teacher = build_teacher(name, world, unused_rng)
        return world, WorldPlayer(world, other_seed, teacher)

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the student's score against the teacher and random actions, with the teacher's name."""
        score = super().score(holdout=holdout) | {"teacher": self.config.teacher}
        if self.config.teacher == RANDOM:
            # The student's return as a share of the teacher's.
            score["players"]["student"].pop("of_teacher")
            score["note"] += "; the teacher acts by chance, so a share of its return has no meaning"
        return score


def compose(config: TeachRunConfig) -> TeachRun:
    """Build the worlds and allocate the run whole."""
    device = find_device(config.device)
    worlds = build_teach_worlds(config)
    config = decide_settings(config, worlds.training.spaces)
    plan, setup, run = allocate(config, worlds, device)
    generators = run.generators
    teacher = find_teacher(config.teacher, worlds.training, generators["teacher"], device)
    other_players = {
        TEACHER: find_teacher(config.teacher, worlds.held_out, generators["held out teacher"], device),
        RANDOM: find_teacher("random", worlds.held_out, generators["random"], device),
    }
    return TeachRun(config, plan, build_trainer(setup, run, worlds, teacher, other_players))


def plan(config: TeachRunConfig) -> Plan:
    """Return the plan of a run."""
    device = find_device(config.device)
    worlds = build_teach_worlds(config)
    # A teacher that cannot be used is refused by the plan already.
    find_teacher(config.teacher, worlds.training, generator(config.seed, "teacher", torch.device("cpu")), device)
    return plan_blocks(decide_settings(config, worlds.training.spaces), worlds, device)


def build_teach_worlds(config: TeachRunConfig) -> Worlds:
    """Return a world for training and one for held-out episodes.

    Raises:
        ConfigError: `config.world` names no world, or one where an action is more than a choice from a list.
    """
    worlds = build_worlds(config)
    if worlds.training.spaces.action_shape:  # empty where an action is one number: a choice
        raise ConfigError(
            f"world = {config.world!r}: has {describe_spaces(worlds.training.spaces)}; "
            "a student needs one list of actions. "
            "Train without a teacher: flatwater train ppo --env ..."
        )
    return worlds


OF_A_RUN = "run:"
"""Beginning of a teacher's name that is followed by the folder of a run."""


def find_teacher(name: str, world: World, rng: torch.Generator, device: torch.device) -> Teacher:
    """Return the teacher that the setting `teacher` names: a kind or class of teacher, or the student of a run.

    Args:
        name: value of `TeachRunConfig.teacher`; `run:FOLDER` names a run whose student is the teacher.
        world: the world that it will be asked in.
        rng: generator of the teacher's random numbers; the student of a run draws none.
        device: device of the network, if the teacher is the student of a run.
    """
    if not name.startswith(OF_A_RUN):
        return build_teacher(name, world, rng)
    return StudentTeacher(Path(name.removeprefix(OF_A_RUN)), world, device)


class StudentTeacher:
    """A teacher that takes the likeliest actions of a network: the student of another run at its last checkpoint."""

    def __init__(self, run: Path, world: World, device: torch.device) -> None:
        """Build the student's network, and read its weights from the newest intact checkpoint of the folder `run`.

        Raises:
            ConfigError: the folder has no run of teaching.
            CheckpointError: there is no intact checkpoint, or its world has other observations or actions.
        """
        folder = open_folder(run)
        config = load_config(TeachRunConfig, folder.config)
        self._agents = world.spaces.agents
        student = build_actor_critic(world.spaces, config.policy, device)
        # A learner for its storage alone: the checkpoint is read into it by the leaves' names.
        learner = build_learner(student, sequences=1, rng=generator(0, "unused", device), device=device)
        checkpoint = newest_intact(folder.checkpoints, say=say_nothing)  # says nothing of damaged ones
        if checkpoint is None:
            raise CheckpointError(f"teacher {OF_A_RUN}{run}: no checkpoint is intact in {folder.checkpoints}")
        restore_state_({"block": learner.block, "statistics": learner.statistics}, checkpoint, part="learner")
        self._student, self._weights = student, weight_views(student, learner)
        self._memory = torch.zeros(2, world.spaces.envs * self._agents, student.policy.cells, device=device)

    def begin_(self, env_mask: Array) -> None:
        """Zero the LSTM memory of all agents in the environments of `env_mask`, bool [E], which begin an episode."""
        self._memory[:, torch.from_numpy(env_mask.repeat(self._agents))] = 0

    def step_batch(self, obs: Array, actions_out: Array, legal: Array | None = None) -> None:
        """Write the likeliest action of each agent into `actions_out`, from observations [E, A, *obs]."""
        device, rows = self._memory.device, torch.from_numpy(obs.reshape(-1, *obs.shape[2:]))
        starts = torch.zeros(len(rows), dtype=torch.bool, device=device)  # `begin_` has cleared the memory
        with torch.no_grad():
            step = self._student.run_step(self._weights, rows.to(device), self._memory, starts)
        self._memory.copy_(step.memory)
        mask = None if legal is None else torch.from_numpy(legal.reshape(len(rows), -1)).to(device)
        actions = self._student.actions.distribution(step.logits, mask).mode()
        np.copyto(actions_out, actions.cpu().numpy().reshape(actions_out.shape))
