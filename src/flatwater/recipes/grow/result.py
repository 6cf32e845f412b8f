"""What a finished run of growing networks leaves to look at: result.json, and each slot's life."""

import json
from typing import Any

import polars as pl

from flatwater.envs.split_seeds import FIRST_SEEDS, NOTES
from flatwater.metrics.figures import finite
from flatwater.recipes.grow.score import Score, score_policy
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.results import write_frame
from flatwater.runs.fingerprint import versions
from flatwater.storage.directory import write_object
from flatwater.trainers.grow.round import GrowTrainer


def write_result(trainer: GrowTrainer, folder: RunFolder, *, threads: int) -> None:
    """Play the held-out episodes and write the files. Each appears whole or not at all."""
    score = score_policy(trainer, FIRST_SEEDS["held-out"])
    write_frame(pl.DataFrame({name: _series(column) for name, column in score.lives.items()}), folder.lives)
    result = as_json(trainer, score, "held-out", threads=threads)
    write_object(folder.result, json.dumps(result, indent=1).encode() + b"\n")


def _series(column: Any) -> pl.Series:  # noqa: ANN401  (a numpy array of one or two axes)
    return pl.Series(column) if column.ndim == 1 else pl.Series(list(column))


def as_json(trainer: GrowTrainer, score: Score, split: str, *, threads: int) -> dict[str, Any]:
    """The score as plain values, with what is needed to judge it. None stands for what is no finite number."""
    config = trainer.setup.config
    return {
        "trainer": "grow",
        "split": split,
        "first_seed": score.first_seed,
        "episodes": score.episodes,
        "steps": config.env.steps,
        "slots": len(trainer.setup.net.seeds),
        "players": {name: {key: finite(value) for key, value in row.items()} for name, row in score.players.items()},
        "batches": trainer.progress.round,
        "envs": config.envs,
        "seed": config.seed,
        "threads": threads,
        "versions": versions(),
        "note": NOTES[split],
    }
