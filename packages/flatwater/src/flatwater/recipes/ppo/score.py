"""What was trained against random actions, and against a teacher, on episodes that nothing was learned from."""

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
    """What the players were paid, all on the same episodes."""

    first_seed: int
    players: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]
    """Player -> what each agent was paid."""

    def rows(self) -> dict[str, dict[str, float]]:
        """Player -> named numbers: of a result, and of what was trained against the others."""
        trained, *_ = self.players
        rows = {}
        for name, paid in self.players.items():
            rows[name] = {"return": float(paid.mean()), "deviation": float(paid.std())}
            rows[name] |= {"worst": float(paid.min()), "best": float(paid.max())}
        for key, name in (("of_teacher", TEACHER), ("times_random", RANDOM)):
            if name in rows:
                against = rows[name]["return"]
                rows[trained][key] = rows[trained]["return"] / against if against else float("nan")
        return rows


def score_policy(trainer: BlocksTrainer, first_seed: int) -> PlayersScore:
    """Let each player play the held-out world's episodes.

    Args:
        trainer: between two rounds: what its held-out world, memory and generators hold is put back, apart from the
            scores themselves.
        first_seed: the episodes' seeds begin here.
    """
    run, stage = trainer.run, trainer.stage
    before = {name: rng.get_state() for name, rng in run.generators.items()}
    scores = {name: scored.clone() for name, scored in run.held_out.scores.items()}
    stage.first_seed = first_seed
    for player in trainer.setup.players:
        for number in range(trainer.setup.held_out.steps):
            stage.play_(player, number)
    stage.first_seed = HELD_OUT
    players = {name: run.held_out.scores[name].double().numpy().copy() for name in trainer.setup.players}
    for name, state in before.items():
        run.generators[name].set_state(state)
    for name, scored in scores.items():
        run.held_out.scores[name].copy_(scored)
    return PlayersScore(first_seed, players)


def as_json(config: BlocksRunConfig, trainer: BlocksTrainer, score: PlayersScore, split: str) -> dict[str, Any]:
    """The score as plain values, with what is needed to judge it. None stands for what is no finite number."""
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
