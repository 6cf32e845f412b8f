"""The champion against random actions, on episodes that no member learned from and no champion was chosen on."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flatwater.envs.split_seeds import NOTES
from flatwater.envs.worlds import build_teacher
from flatwater.metrics.figures import finite_or_none
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.runs.fingerprint import version_facts
from flatwater.trainers.evolve.round import EvolveTrainer

RANDOM = "random"
Returns = np.ndarray[tuple[int], np.dtype[np.float64]]


def score_champion(trainer: EvolveTrainer, player: str, first_seed: int) -> dict[str, Returns]:
    """Return each player's return in each episode; the generators are put back as they were.

    Args:
        trainer: a trainer between two rounds.
        player: name of the trained policy: the champion, or the one agent.
        first_seed: first of the episodes' seeds.
    """
    run, stage, steps = trainer.run, trainer.stage, trainer.setup.trial.steps
    rng = run.generators["random"]
    # A score must not change the run: the draws of random actions are taken back below.
    before = rng.get_state()
    random = build_teacher("random", stage.world, rng)
    seeds = first_seed + np.arange(trainer.setup.trial.envs, dtype=np.int64)

    def play_steps(step_: Callable[[], None]) -> Returns:
        """Play the same episodes with this step; return each one's return."""
        stage.begin_(seeds)
        for _ in range(steps):
            step_()
        # A copy: the next player's episodes are written over it.
        return run.trial.paid.double().numpy().copy()

    players = {player: play_steps(stage.champion_step_), RANDOM: play_steps(lambda: stage.random_step_(random))}
    rng.set_state(before)
    return players


def as_json(
    config: MembersRunConfig, trainer: EvolveTrainer, players: Mapping[str, Returns], split: str
) -> dict[str, Any]:
    """Return the score as plain values, with the facts to judge it. None stands for any number that is not finite.

    Args:
        config: settings of the run.
        trainer: the run as it was scored.
        players: returns of the episodes by name.
        split: `held-out` or `holdout`.
    """
    run, spaces = trainer.run, trainer.setup.trial
    return {
        "trainer": config.trainer,
        "split": split,
        "env": config.env,
        "algorithm": config.learner.algorithm,
        "episodes": spaces.envs,
        "steps": spaces.steps,
        "players": {
            name: {
                "return": finite_or_none(float(paid.mean())),
                "deviation": finite_or_none(float(paid.std())),
                "worst": finite_or_none(float(paid.min())),
                "best": finite_or_none(float(paid.max())),
            }
            for name, paid in players.items()
        },
        **({"champion_born": int(run.lineage.born[-1])} if config.population.evolves else {}),
        "generations": trainer.progress.round,
        "population": config.population.size,
        "transitions": run.transitions,
        "updates": run.learner.tally.updates,
        "seed": config.seed,
        "threads": config.threads,
        "versions": version_facts(),
        "note": NOTES[split],
    }
