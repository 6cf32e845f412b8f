"""The trained policy against random actions, and a teacher, on episodes that were never trained on."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from flatwater.envs.split_seeds import HELD_OUT, NOTES
from flatwater.metrics.figures import finite_or_none
from flatwater.recipes.ppo.config import BlocksRunConfig
from flatwater.runs.fingerprint import version_facts
from flatwater.trainers.blocks.round import BlocksTrainer
from flatwater.trainers.blocks.state import RANDOM, TEACHER


@dataclass(frozen=True)
class PlayersScore:
    """Returns of the players, all on the same episodes."""

    first_seed: int
    players: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]
    """Return of each agent, by player."""

    def rows(self) -> dict[str, dict[str, float]]:
        """Return named numbers by player: its returns, and the trained policy's as shares of the others'."""
        learner, *_ = self.players
        rows = {}
        for name, returns in self.players.items():
            rows[name] = {"return": float(returns.mean()), "deviation": float(returns.std())}
            rows[name] |= {"worst": float(returns.min()), "best": float(returns.max())}
        for key, name in (("of_teacher", TEACHER), ("times_random", RANDOM)):
            if name in rows:
                reference = rows[name]["return"]
                rows[learner][key] = rows[learner]["return"] / reference if reference else float("nan")
        return rows


def score_policy(trainer: BlocksTrainer, first_seed: int) -> PlayersScore:
    """Let each player play the held-out world's episodes.

    Args:
        trainer: a trainer between two rounds: its generators and scores are put back; its held-out world and memory
            begin anew with each evaluation.
        first_seed: first of the episodes' seeds.
    """
    run, stage = trainer.run, trainer.stage
    # A score must not change the run: all draws are taken back below.
    generator_states = {name: rng.get_state() for name, rng in run.generators.items()}
    scores = {name: score.clone() for name, score in run.held_out.scores.items()}
    # Put back below: the run's own evaluations always play the held-out seeds.
    stage.first_seed = first_seed
    for player in trainer.setup.players:
        for number in range(trainer.setup.held_out.steps):
            stage.play_(player, number)
    stage.first_seed = HELD_OUT
    # Copies: the scores of the run are put back below.
    players = {name: run.held_out.scores[name].double().numpy().copy() for name in trainer.setup.players}
    for name, state in generator_states.items():
        run.generators[name].set_state(state)
    for name, score in scores.items():
        run.held_out.scores[name].copy_(score)
    return PlayersScore(first_seed, players)


def as_json(config: BlocksRunConfig, trainer: BlocksTrainer, score: PlayersScore, split: str) -> dict[str, Any]:
    """Return the score as plain values, with the facts to judge it. None stands for any number that is not finite.

    Args:
        config: settings of the run.
        trainer: the run as it was scored.
        score: returns of its players.
        split: `held-out` or `holdout`.
    """
    spaces = trainer.setup.held_out
    rows = score.rows()
    return {
        "trainer": config.trainer,
        "split": split,
        config.place: config.env_name,
        "first_seed": score.first_seed,
        "episodes": spaces.envs,
        "agents": spaces.agents,
        "steps": spaces.steps,
        "players": {name: {key: finite_or_none(value) for key, value in row.items()} for name, row in rows.items()},
        "blocks": trainer.progress.round,
        "agent_steps": trainer.run.agent_steps,
        "seed": config.seed,
        "threads": config.threads,
        "versions": version_facts(),
        "note": NOTES[split],
    }
