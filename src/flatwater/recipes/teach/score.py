"""The student against the teacher and random actions, on episodes that nothing was learned from."""

from dataclasses import dataclass

import numpy as np

from flatwater.envs.split_seeds import HELD_OUT
from flatwater.trainers.teach.round import TeachTrainer
from flatwater.trainers.teach.state import PLAYERS, RANDOM, STUDENT, TEACHER


@dataclass(frozen=True)
class Score:
    """What the players were paid, all on the same episodes."""

    first_seed: int
    players: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]
    """Player -> what each agent was paid."""

    def rows(self) -> dict[str, dict[str, float]]:
        """Player -> named numbers: of a result, and against the other two."""
        teacher, random = (float(self.players[name].mean()) for name in (TEACHER, RANDOM))
        rows = {}
        for name, paid in self.players.items():
            mean = float(paid.mean())
            row = {"return": mean, "deviation": float(paid.std())}
            row |= {"worst": float(paid.min()), "best": float(paid.max())}
            if name == STUDENT:
                row["of_teacher"] = mean / teacher if teacher else float("nan")
                row["times_random"] = mean / random if random else float("nan")
            rows[name] = row
        return rows


def score_student(trainer: TeachTrainer, first_seed: int) -> Score:
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
    for player in PLAYERS:
        for number in range(trainer.recipe.held_out.steps):
            stage.play_(player, number)
    stage.first_seed = HELD_OUT
    players = {name: run.held_out.scores[name].double().numpy().copy() for name in PLAYERS}
    for name, state in before.items():
        run.generators[name].set_state(state)
    for name, scored in scores.items():
        run.held_out.scores[name].copy_(scored)
    return Score(first_seed, players)
