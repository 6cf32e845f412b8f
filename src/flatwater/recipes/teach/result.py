"""The result of a run of teaching, as in result.json."""

from typing import Any

from flatwater.envs.split_seeds import NOTES
from flatwater.metrics.figures import finite
from flatwater.recipes.teach.score import Score
from flatwater.runs.facts import versions
from flatwater.trainers.teach.round import TeachTrainer


def as_json(trainer: TeachTrainer, score: Score, split: str, *, threads: int) -> dict[str, Any]:
    """The score as plain values, with what is needed to judge it. None stands for what is no finite number."""
    config, spaces = trainer.recipe.config, trainer.recipe.held_out
    rows = score.rows()
    return {
        "trainer": "teach",
        "split": split,
        "world": config.world,
        "teacher": config.teacher,
        "first_seed": score.first_seed,
        "episodes": spaces.envs,
        "agents": spaces.agents,
        "steps": spaces.steps,
        "players": {name: {key: finite(value) for key, value in row.items()} for name, row in rows.items()},
        "blocks": trainer.progress.round,
        "agent_steps": trainer.run.agent_steps,
        "seed": config.seed,
        "threads": threads,
        "versions": versions(),
        "note": NOTES[split],
    }
