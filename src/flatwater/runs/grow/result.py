"""What a finished run of growing networks leaves to look at: result.json, and each slot's life."""

import json
from typing import Any

import polars as pl

from flatwater.metrics.figures import finite
from flatwater.runs.facts import versions
from flatwater.runs.folder import RunFolder
from flatwater.runs.grow.score import Score, score_policy
from flatwater.runs.tables import write_frame
from flatwater.storage.directory import write_object
from flatwater.trainers.grow.collect import HELD_OUT
from flatwater.trainers.grow.round import GrowTrainer

HOLDOUT = HELD_OUT + (1 << 24)
"""First env seed of the episodes that not even a person has looked at while the run went on."""
FIRST_SEEDS = {"held-out": HELD_OUT, "holdout": HOLDOUT}
NOTES = {
    "held-out": "no weight was fitted to these episodes, but whoever tuned settings has seen their returns "
    "(flatwater evaluate --holdout plays others)",
    "holdout": "nothing was chosen on these episodes; each look makes them a little less so (holdout_looks.jsonl)",
}
"""How far a result on these episodes can be trusted."""


def write_result(trainer: GrowTrainer, folder: RunFolder, *, threads: int) -> None:
    """Play the held-out episodes and write the files. Each appears whole or not at all.

    Args:
        trainer: whose policy plays.
        folder: of the run.
        threads: of torch; recorded, as the last bits of the numbers depend on them.

    Raises:
        RunError: the disk is full or the folder read-only; the run itself is safe in its checkpoints.
    """
    score = score_policy(trainer, FIRST_SEEDS["held-out"])
    write_frame(pl.DataFrame({name: _series(column) for name, column in score.lives.items()}), folder.lives)
    result = as_json(trainer, score, "held-out", threads=threads)
    write_object(folder.result, json.dumps(result, indent=1).encode() + b"\n")


def _series(column: Any) -> pl.Series:  # noqa: ANN401  (a numpy array of one or two axes)
    return pl.Series(column) if column.ndim == 1 else pl.Series(list(column))


def as_json(trainer: GrowTrainer, score: Score, split: str, *, threads: int) -> dict[str, Any]:
    """The score as plain values, with what is needed to judge it. None stands for what is no finite number."""
    config = trainer.recipe.config
    return {
        "trainer": "grow",
        "split": split,
        "first_seed": score.first_seed,
        "episodes": score.episodes,
        "steps": config.env.steps,
        "slots": config.env.slots,
        "players": {name: {key: finite(value) for key, value in row.items()} for name, row in score.players.items()},
        "batches": trainer.progress.round,
        "envs": config.envs,
        "seed": config.seed,
        "threads": threads,
        "versions": versions(),
        "note": NOTES[split],
    }
