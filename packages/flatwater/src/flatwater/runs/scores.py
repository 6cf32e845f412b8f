"""Results of episodes that nobody learned from: returns by player, as plain values with the facts to judge them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from flatwater.envs.split_seeds import NOTES
from flatwater.metrics.figures import finite_or_none
from flatwater.runs.fingerprint import version_facts
from flatwater.trainers.world_trainer import WorldTrainer

Returns = np.ndarray[tuple[int], np.dtype[np.float64]]


def score_players(trainer: WorldTrainer[Any, Any], rows: Mapping[str, str], first_seed: int) -> dict[str, Returns]:
    """Return the return of each agent in the same episodes, by player.

    Args:
        trainer: a trainer between two rounds: its generators and scores are put back; the evaluator's world and memory
            start over with each evaluation.
        rows: name of each player in the result, and name that the evaluator has for it.
        first_seed: first of the episodes' seeds.
    """
    run, evaluator, players = trainer.run, trainer.evaluator, {}
    # A score must not change the run: draws and scores are taken back below.
    states = {name: rng.get_state() for name, rng in run.generators.items()}
    scores = {name: returns.clone() for name, returns in evaluator.scores.items()}
    seeds = first_seed + np.arange(evaluator.world.spaces.envs, dtype=np.int64)
    for row, player in rows.items():
        for number in range(evaluator.steps):
            evaluator.play_(player, number, seeds)
            # Later steps are not counted, and change no other player: each draws from a generator of its own.
            if bool(evaluator.played.done.all()):
                break
        # A copy: the next player's returns may be written over it.
        players[row] = evaluator.scores[player].double().numpy().copy()
    for name, state in states.items():
        run.generators[name].set_state(state)
    for name, score in scores.items():
        evaluator.scores[name].copy_(score)
    return players


def return_rows(players: Mapping[str, Returns]) -> dict[str, dict[str, float]]:
    """Return named numbers of each player's returns."""
    with np.errstate(invalid="ignore"):  # infinite returns, which `--allow-nan` lets through, have no deviation
        return {
            name: {
                "return": float(returns.mean()),
                "deviation": float(returns.std()),
                "worst": float(returns.min()),
                "best": float(returns.max()),
            }
            for name, returns in players.items()
        }


def episode_result(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    split: str,
    players: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a result as plain values. None stands for any number that is not finite.

    Args:
        config: settings of the run.
        split: `held-out` or `holdout`.
        players: named numbers by player.
        facts: other facts by which a result is judged.
    """
    return {
        "trainer": config.trainer,
        "split": split,
        **facts,
        "players": {name: {key: finite_or_none(value) for key, value in row.items()} for name, row in players.items()},
        "threads": config.threads,
        "versions": version_facts(),
        "note": NOTES[split],
    }
