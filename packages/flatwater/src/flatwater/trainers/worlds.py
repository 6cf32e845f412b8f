"""A trainer with two worlds: a training world and an evaluation world. Both are saved, and brought back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from flatwater.envs.world import Array, Teacher, World
from flatwater.trainers.episodes import Episodes, ReportEnded, give_back_, is_begun, replay_episodes_, save_world_state_
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
    def seen_now(self) -> Array:
        """The next step's observations, [E, A, *obs]."""

    def step_(self, number: int) -> None:
        """Take a step of every environment, by its number in the phase."""

    def restart_episodes_(self) -> None:
        """Begin new episodes where the run is, because its world cannot come back."""


class WorldState(RootState, Protocol):
    """The root of the state tree of such a run."""

    @property
    def episodes(self) -> Episodes:
        """Running episodes of training."""

    @property
    def generators(self) -> Mapping[str, torch.Generator]:
        """Generators by consumer."""


W_co = TypeVar("W_co", bound=WorldState, covariant=True)


@dataclass(frozen=True)
class WorldTrainer(Trainer[T_co, W_co], Generic[T_co, W_co]):
    """A trainer over a state, with the players in its worlds."""

    collector: Collector
    evaluator: EpisodeEvaluator
    profile: Profile


def keep_worlds_(trainer: WorldTrainer[Any, WorldState]) -> str:
    """Write both worlds' states over episodes, before a checkpoint; return why that cannot be, or nothing."""
    evaluator = trainer.evaluator
    return save_world_state_(trainer.collector.world, trainer.run.episodes) or save_world_state_(
        evaluator.world, evaluator.played.episodes
    )


def rebuild_(trainer: WorldTrainer[Any, WorldState], *, exact: bool = True) -> str:
    """Play the running episodes again, in worlds that were just built.

    Args:
        trainer: a restored trainer.
        exact: whether they can be; otherwise, and where it turns out that they cannot, new episodes begin.

    Returns:
        Why the run does not go on bit for bit, as the end of a sentence; empty if it does.
    """
    run, collector, evaluator, progress = trainer.run, trainer.collector, trainer.evaluator, trainer.progress
    held_out, reason = evaluator.played.episodes, ""
    # Teachers draw again what they drew: the saved generators have made these draws already.
    states = {name: rng.get_state() for name, rng in run.generators.items()}
    if collector.has_begun:
        if exact:
            reason = replay_episodes_(collector.world, collector.teacher, run.episodes, collector.seen_now)
            _restore_(run, states)
        # New episodes also where `exact` was wanted and a difference was found on the way.
        if reason or not exact:
            give_back_(collector.world, run.episodes)
            collector.restart_episodes_()
    phase_name = trainer.phases[progress.phase].name if progress.phase < len(trainer.phases) else ""
    is_between = progress.step == 0 or phase_name not in {"baselines", "evaluate"}
    if is_between and not is_begun(held_out):
        return reason
    # One failure is enough: the run is not the same any more, so new episodes do.
    if exact and not reason:
        # The baselines play one after the other, after whoever is trained.
        place = 1 + progress.step // evaluator.steps if phase_name == "baselines" else 0
        players = [*evaluator.players.values()]
        teacher = None if is_between else players[min(place, len(players) - 1)].teacher
        reason = replay_episodes_(evaluator.world, teacher, held_out, evaluator.seen_now)
        _restore_(run, states)
    if reason or not exact:
        give_back_(evaluator.world, held_out)
        progress.step -= 0 if is_between else progress.step % evaluator.steps  # whoever plays begins again
    return reason


def _restore_(run: WorldState, states: Mapping[str, torch.Tensor]) -> None:
    for name, state in states.items():
        run.generators[name].set_state(state)
