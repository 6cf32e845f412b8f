"""Small runs of growing networks: 2 hosts, episodes of 3 steps, one update each."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from watchers import Silent

from flatwater.config.mappings import from_mapping
from flatwater.envs.growing.task import load_task
from flatwater.trainers.grow.config import GrowConfig
from flatwater.trainers.grow.round import GrowTrainer, build_trainer
from flatwater.trainers.grow.state import GrowSetup, build_grow
from flatwater.trainers.loop import train_

CPU = torch.device("cpu")
TINY: dict[str, Any] = {
    "envs": 2,
    "env.steps": 3,
    "env.host.channels": [2, 2, 4],
    "env.fit.updates": 1,
    "env.fit.batch_size": 4,
    "policy.hidden": 8,
    "policy.memory": 6,
    "learner.epochs": 2,
    "learner.minibatches": 2,
    "evaluation.episodes": 4,
    "evaluation.every": 2,
}
TASK = load_task("digits", CPU)
sys.path.append(str(Path(__file__).parents[5] / "examples" / "flatwater"))


def tiny(changes: Mapping[str, Any]) -> GrowConfig:
    """The small configuration with some fields, by dotted name, changed."""
    nested: dict[str, Any] = {}
    for name, value in (TINY | dict(changes)).items():
        *path, last = name.split(".")
        table = nested
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return from_mapping(GrowConfig, nested, "test")


@pytest.fixture
def build_small() -> Callable[..., GrowTrainer]:
    """Build a small run: `build_small({"learner.lr": 1e-3})`."""

    def build(changes: Mapping[str, Any] | None = None) -> GrowTrainer:
        setup = GrowSetup(tiny(changes or {}), CPU, TASK.image_shape)
        return build_trainer(setup, build_grow(setup, TASK))

    return build


@pytest.fixture
def train_small(build_small: Callable[..., GrowTrainer]) -> Callable[..., tuple[GrowTrainer, list[dict[str, float]]]]:
    """Build a small run and train it: the trainer, and each round's numbers."""

    def train(rounds: int, changes: Mapping[str, Any] | None = None) -> tuple[GrowTrainer, list[dict[str, float]]]:
        trainer, watcher = build_small(changes), Silent(done=0)
        assert train_(trainer, rounds, watcher)
        return trainer, watcher.rounds

    return train
