"""What was trained against random actions, and against a teacher, on episodes that nothing was learned from."""

from dataclasses import dataclass

import numpy as np

from flatwater.envs.split_seeds import HELD_OUT
from flatwater.trainers.blocks.round import BlocksTrainer
from flatwater.trainers.blocks.state import RANDOM, TEACHER


@dataclass(frozen=True)
class Score:
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


def score_policy(trainer: BlocksTrainer, first_seed: int) -> Score:
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
    return Score(first_seed, players)
