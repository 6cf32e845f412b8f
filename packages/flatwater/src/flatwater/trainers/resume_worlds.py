"""Both worlds of a trainer, saved before a checkpoint and resumed from it: their running episodes are played again."""

from collections.abc import Mapping
from typing import Any

import torch

from flatwater.trainers.episodes import is_begun, replay_episodes_, restore_kept_state_, save_world_state_
from flatwater.trainers.world_trainer import WorldState, WorldTrainer


def save_worlds_(trainer: WorldTrainer[Any, WorldState]) -> str:
    """Write both worlds' states over episodes, before a checkpoint; return why that cannot be, or nothing."""
    evaluator = trainer.evaluator
    return save_world_state_(trainer.collector.world, trainer.run.episodes) or save_world_state_(
        evaluator.world, evaluator.played.episodes
    )


def resume_episodes_(trainer: WorldTrainer[Any, WorldState], *, exact: bool = True) -> str:
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
            restore_kept_state_(collector.world, run.episodes)
            collector.restart_episodes_()
    phase_name = trainer.phases[progress.phase].name if progress.phase < len(trainer.phases) else ""
    is_between = progress.step == 0 or phase_name not in {"baselines", "evaluate"}
    if is_between and not is_begun(held_out):
        return reason
    # One failure is enough: the run is not the same any more, so new episodes do.
    if exact and not reason:
        # The baselines play one after the other, after whoever is trained.
        player_index = 1 + progress.step // evaluator.steps if phase_name == "baselines" else 0
        players = [*evaluator.players.values()]
        teacher = None if is_between else players[min(player_index, len(players) - 1)].teacher
        reason = replay_episodes_(evaluator.world, teacher, held_out, evaluator.seen_now)
        _restore_(run, states)
    if reason or not exact:
        restore_kept_state_(evaluator.world, held_out)
        progress.step -= 0 if is_between else progress.step % evaluator.steps  # whoever plays begins again
    return reason


def _restore_(run: WorldState, states: Mapping[str, torch.Tensor]) -> None:
    for name, state in states.items():
        run.generators[name].set_state(state)
