"""Scores of a run in worlds: the returns of each player in held-out episodes, as a result for JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from flatwater.envs.kinds import agent_rows
from flatwater.envs.split_seeds import NOTES
from flatwater.metrics.short_numbers import finite_or_none
from flatwater.runs.fingerprint import version_facts
from flatwater.trainers.world_trainer import WorldTrainer

Returns = np.ndarray[tuple[int], np.dtype[np.float64]]


def score_players(trainer: WorldTrainer[Any, Any], rows: Mapping[str, str], first_seed: int) -> dict[str, Returns]:
    """Play the same episodes with each player. Returns the return of each agent, by player.

    Where agents have different spaces, each kind of agents has a row besides, such as `policy/adversary`, and so has
    each agent of a kind of several.

    Args:
        trainer: a trainer between two rounds; its generators and scores are the same afterwards.
        rows: from each player's name in the result to its name in the evaluator.
        first_seed: seed of the first episode; the others count up from it.
    """
    run, evaluator = trainer.run, trainer.evaluator
    returns_by_row = dict[str, Returns]()
    rows_of_agents = dict[str, Returns]()
    # A score must not change the run: generators and scores are restored below.
    generator_states = {name: rng.get_state() for name, rng in run.generators.items()}
    saved_scores = {name: returns.clone() for name, returns in evaluator.scores.items()}
    seeds = first_seed + np.arange(evaluator.world.spaces.envs, dtype=np.int64)
    for row, player in rows.items():
        for step in range(evaluator.steps):
            evaluator.play_(player, step, seeds)
            if evaluator.is_over:
                break
        # A copy, as the next player's returns may overwrite it.
        returns = evaluator.scores[player].double().numpy().copy()
        returns_by_row[row] = returns
        by_agent = returns.reshape(evaluator.world.spaces.envs, -1)
        # After the players, so that these come first in the result.
        rows_of_agents |= {
            f"{row}/{name}": by_agent[:, places].ravel() for name, places in agent_rows(evaluator.world.spaces)
        }
    for name, state in generator_states.items():
        run.generators[name].set_state(state)
    for name, score in saved_scores.items():
        evaluator.scores[name].copy_(score)
    return returns_by_row | rows_of_agents


def return_rows(players: Mapping[str, Returns]) -> dict[str, dict[str, float]]:
    """Return the mean, deviation, minimum and maximum of each player's returns, as a row of a result."""
    # Infinite returns, which `--allow-nan` permits, have no deviation: NaN without a warning.
    with np.errstate(invalid="ignore"):
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
    """Return the result of the episodes that a run's players were scored on, for JSON; None for a number not finite.

    Args:
        config: settings of the run.
        split: `held-out`, on seeds never trained on; `holdout`, on seeds that nothing was tuned on either.
        players: the row of each player, as `return_rows` returns it.
        facts: further facts about the result, such as the number of episodes.
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
