"""Saving both worlds of a trainer before a checkpoint, and playing their running episodes again after it."""

from collections.abc import Mapping
from typing import Any

import torch

from flatwater.trainers.episodes import has_kept_state, replay_episodes_, restore_kept_state_, save_world_state_
from flatwater.trainers.evaluator import EpisodeEvaluator, Player
from flatwater.trainers.world_trainer import WorldState, WorldTrainer


def save_worlds_(trainer: WorldTrainer[Any, WorldState]) -> str:
    """Write the states that both worlds keep over episodes into the state tree, before a checkpoint.

    Returns:
        the reason why a state cannot be saved, as the end of a sentence; empty if all is written.
    """
    evaluator = trainer.evaluator
    fault = save_world_state_(trainer.collector.world, trainer.run.episodes)
    if fault:
        return fault
    return save_world_state_(evaluator.world, evaluator.played.episodes)


def resume_episodes_(trainer: WorldTrainer[Any, WorldState], *, exact: bool = True) -> str:
    """Bring both worlds of a restored trainer back to their running episodes, or begin new episodes.

    Args:
        trainer: a restored trainer with new worlds.
        exact: whether to play the running episodes again; if not, or if they come out differently, new episodes begin.

    Returns:
        the reason why the run does not go on bit for bit, as the end of a sentence; empty if it does.
    """
    # Replayed teachers draw again; the restored generators have made these draws already.
    generator_states = {name: rng.get_state() for name, rng in trainer.run.generators.items()}
    reason = _resume_training_(trainer, generator_states, exact=exact)
    # If the training world already came out differently, new held-out episodes will do, too.
    held_out_reason = _resume_held_out_(trainer, generator_states, exact=exact and not reason)
    return reason or held_out_reason


def _resume_training_(
    trainer: WorldTrainer[Any, WorldState], generator_states: Mapping[str, torch.Tensor], *, exact: bool
) -> str:
    """Bring the training world back to its running episodes, or begin new ones, as `resume_episodes_` says.

    The run's generators are set to `generator_states` after a replay.

    Returns:
        the reason why the world was not brought back; empty if it was, or if new episodes were asked for.
    """
    run, collector = trainer.run, trainer.collector
    if not collector.has_begun:
        return ""
    reason = ""
    if exact:
        reason = replay_episodes_(collector.world, collector.teacher, run.episodes, collector.current_obs)
        _restore_generators_(run, generator_states)
    if reason or not exact:  # new episodes begin
        restore_kept_state_(collector.world, run.episodes)
        collector.restart_episodes_()
    return reason


def _resume_held_out_(
    trainer: WorldTrainer[Any, WorldState], generator_states: Mapping[str, torch.Tensor], *, exact: bool
) -> str:
    """Bring the held-out world back to the running episodes of an evaluation, or begin them again.

    Between two evaluations nothing is brought back, unless the world keeps a state over episodes. The run's generators
    are set to `generator_states` after a replay.

    Returns:
        the reason why the world was not brought back; empty if it was, or if new episodes were asked for.
    """
    progress, evaluator = trainer.progress, trainer.evaluator
    held_out = evaluator.played.episodes
    # Empty if the run was saved between its last phase and the next round.
    phase = trainer.phases[progress.phase].name if progress.phase < len(trainer.phases) else ""
    is_evaluating = progress.step > 0 and phase in {"baselines", "evaluate"}
    if not is_evaluating and not has_kept_state(held_out):
        return ""
    reason = ""
    if exact:
        teacher = _present_player(evaluator, phase, progress.step).teacher if is_evaluating else None
        reason = replay_episodes_(evaluator.world, teacher, held_out, evaluator.current_obs)
        _restore_generators_(trainer.run, generator_states)
    if reason or not exact:
        restore_kept_state_(evaluator.world, held_out)
        if is_evaluating:
            progress.step -= progress.step % evaluator.steps  # the first step of the present player's episodes
    return reason


def _present_player(evaluator: EpisodeEvaluator, phase: str, step: int) -> Player:
    """Return the player at a step: in `evaluate` the trained player, in `baselines` one baseline after the other."""
    players = [*evaluator.players.values()]
    # The trained player is the first in the dict, the baselines follow.
    index = 1 + step // evaluator.steps if phase == "baselines" else 0
    return players[min(index, len(players) - 1)]  # at the end of the phase, the last player


def _restore_generators_(run: WorldState, states: Mapping[str, torch.Tensor]) -> None:
    """Set the run's generators to these states, by name."""
    for name, state in states.items():
        run.generators[name].set_state(state)
