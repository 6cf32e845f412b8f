"""Who teaches: a search or a bot, random actions, a class of someone else's, or the student of another run."""

from pathlib import Path

import numpy as np
import torch

from flatwater.algorithms.ppo import bound_weights, build
from flatwater.checkpoints.reader import newest_intact, restore_
from flatwater.config.toml import load_config
from flatwater.envs.world import Array, Teacher, World
from flatwater.envs.worlds import build_teacher
from flatwater.errors import CheckpointError
from flatwater.recipes.ppo.policy import TrainedPolicy
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.rundir.layout import open_folder
from flatwater.state.random import generator
from flatwater.trainers.blocks.state import student_of

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
        student = student_of(world.spaces, config.student, device)
        learner = build(student, sequences=1, rng=generator(0, "unused", device), device=device)
        intact = newest_intact(folder.checkpoints, say=lambda _: None)
        if intact is None:
            raise CheckpointError(f"teacher {OF_A_RUN}{run}: there is no intact checkpoint in {folder.checkpoints}")
        restore_({"block": learner.block}, intact, below="learner")
        self._policy = TrainedPolicy(student, world.spaces, bound_weights(student, learner))

    def begin_(self, which: Array) -> None:
        """Forget what was seen in these environments."""
        self._policy.begin(which.repeat(self._agents))

    def step_batch(self, obs: Array, actions_out: Array, legal: Array | None = None) -> None:
        """Write the likeliest action of each agent."""
        may = None if legal is None else legal.reshape(-1, legal.shape[-1])
        chosen = self._policy.act(obs.reshape(-1, *obs.shape[2:]), may)
        np.copyto(actions_out, chosen.reshape(actions_out.shape))
