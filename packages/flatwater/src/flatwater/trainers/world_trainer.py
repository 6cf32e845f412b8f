"""A trainer with two worlds: a training world and a held-out world."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from flatwater.envs.world import Array, Teacher, World
from flatwater.trainers.episodes import Episodes, ReportEnded
from flatwater.trainers.evaluator import EpisodeEvaluator
from flatwater.trainers.loop import RootState, T_co, Trainer
from flatwater.trainers.profile import Profile


@dataclass(frozen=True)
class Worlds:
    """Both worlds of a run, of the same kind."""

    training: World
    held_out: World


class Collector(Protocol):
    """Takes the steps of training, and writes them where they are learned from."""

    world: World
    teacher: Teacher | None
    """Teacher that is asked in each step; None without one."""
    reports: list[ReportEnded]
    """Each is called with the episodes that have ended."""

    @property
    def has_begun(self) -> bool:
        """Whether any step was ever taken."""

    @property
    def current_obs(self) -> Array:
        """The next step's observations, [E, A, *obs]."""

    def step_(self, number: int) -> None:
        """Take a step of every environment, by its number in the phase."""

    def restart_episodes_(self) -> None:
        """Begin new episodes at the run's present step, because its world cannot be brought back there."""


class WorldState(RootState, Protocol):
    """The root of the state tree of a run in worlds."""

    @property
    def episodes(self) -> Episodes:
        """Running episodes of training."""

    @property
    def generators(self) -> Mapping[str, torch.Generator]:
        """Generators by consumer."""


W_co = TypeVar("W_co", bound=WorldState, covariant=True)


@dataclass(frozen=True)
class WorldTrainer(Trainer[T_co, W_co], Generic[T_co, W_co]):
    """A trainer whose episodes are played in worlds: by a collector in training, and by an evaluator."""

    collector: Collector
    evaluator: EpisodeEvaluator
    profile: Profile
