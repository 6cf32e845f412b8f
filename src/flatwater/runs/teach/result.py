"""What a finished run of teaching leaves to look at: result.json."""

import json
from typing import Any

from flatwater.envs.split_seeds import FIRST_SEEDS, NOTES
from flatwater.metrics.figures import finite
from flatwater.runs.facts import versions
from flatwater.runs.folder import RunFolder
from flatwater.runs.teach.score import Score, score_student
from flatwater.storage.directory import write_object
from flatwater.trainers.teach.round import TeachTrainer


def write_result(trainer: TeachTrainer, folder: RunFolder, *, threads: int) -> None:
    """Play the held-out episodes and write the file, whole or not at all.

    Args:
        trainer: whose student plays.
        folder: of the run.
        threads: of torch; recorded, as the last bits of the numbers depend on them.

    Raises:
        RunError: the disk is full or the folder read-only; the run itself is safe in its checkpoints.
    """
    score = score_student(trainer, FIRST_SEEDS["held-out"])
    result = as_json(trainer, score, "held-out", threads=threads)
    write_object(folder.result, json.dumps(result, indent=1).encode() + b"\n")


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
