"""Small runs of teaching: 4 environments of two agents, blocks of 4 steps."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from toy import CueTeacher, CueWorld
from watchers import Silent

from flatwater.config.mappings import from_mapping
from flatwater.envs.random_teacher import RandomTeacher
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.trainers.blocks.round import BlocksTrainer, build_trainer
from flatwater.trainers.blocks.state import RANDOM, TEACHER, BlocksSetup, build_blocks
from flatwater.trainers.loop import train_
from flatwater.trainers.world_trainer import Worlds

CPU = torch.device("cpu")
TINY: dict[str, Any] = {
    "envs": 4,
    "block": 4,
    "policy": {"rows": 64, "width": 8, "hidden": 8, "memory": 8},
    "learner": {"unroll": 2, "epochs": 2, "minibatches": 2, "lr": 0.01},
    "evaluation": {"envs": 3, "every": 2},
}


@pytest.fixture
def build_small() -> Callable[..., BlocksTrainer]:
    """A run that has not begun: `build_small({"envs": 2}, form="vector", agents=1)`."""

    def build(changes: Mapping[str, Any] | None = None, *, agents: int = 2, form: str = "tokens") -> BlocksTrainer:
        config = from_mapping(TeachRunConfig, merge_settings(TINY, changes or {}), "a test")
        world, held_out = CueWorld(config.envs, agents, form), CueWorld(config.evaluation.envs, agents, form)
        setup = BlocksSetup(config, CPU, world.spaces, held_out.spaces)
        run = build_blocks(setup)
        others = {TEACHER: CueTeacher(held_out), RANDOM: RandomTeacher(held_out, run.generators["random"])}
        return build_trainer(setup, run, Worlds(world, held_out), CueTeacher(world), others)

    return build


def merge_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of both; those of the second win."""
    found = dict(one)
    for name, value in other.items():
        found[name] = merge_settings(found[name], value) if isinstance(value, Mapping) and name in found else value
    return found


@pytest.fixture
def train_small(
    build_small: Callable[..., BlocksTrainer],
) -> Callable[..., tuple[BlocksTrainer, list[dict[str, float]]]]:
    """A run after some rounds, with the numbers of each: `train_small(3, {"envs": 2})`."""

    def train(rounds: int, changes: Mapping[str, Any] | None = None, **how: Any) -> Any:
        trainer, watcher = build_small(changes, **how), Silent(done=0)
        train_(trainer, rounds, watcher)
        return trainer, watcher.rounds

    return train
