"""The folder of a sweep: its files, and the result that is written there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatwater.config.mappings import with_settings
from flatwater.rundir.layout import Folder, FolderFile, RunFolder, write_config
from flatwater.runs.signals import StopRequest
from flatwater.runs.trust import remember_file
from flatwater.sweeps.space import TRIAL_SOURCE
from flatwater.sweeps.study import TrialLine
from flatwater_watch.events.background import say_nothing
from flatwater_watch.files.directory import write_object


class SweepFolder(Folder):
    """The files of one sweep. Its trials are run folders, so `flatwater runs SWEEP` lists them."""

    base = FolderFile("base.toml")
    """The configuration that all trials share, apart from the searched settings."""
    space = FolderFile("space.toml")
    """The settings that are searched, and their values."""
    study = FolderFile("study.db")
    """Optuna's database: each trial's settings, values by round, and state."""
    result = FolderFile("sweep.json")
    """All trials, and the number of the best."""
    best = FolderFile("best.toml")
    """The configuration of the best trial."""

    def trial(self, number: int) -> RunFolder:
        """Return the run of a trial."""
        return RunFolder(self.path / f"trial-{number:04}")

    def log(self, number: int) -> Path:
        """Return the file with the output of a trial's process."""
        return self.path / "logs" / f"trial-{number:04}.txt"


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """All trials of a sweep."""

    folder: SweepFolder
    trainer: str
    measured: str
    """Title of the curve that trials are judged by: `champion`."""
    wanted: int
    """Number of trials that the sweep was asked for."""
    lines: Sequence[TrialLine]
    stop: StopRequest
    """Request to stop, with the signal if one came."""

    @property
    def best_trial(self) -> TrialLine | None:
        """The finished trial with the highest value, the first of equals; None if none has finished."""
        finished_lines = [line for line in self.lines if line.state == "finished" and line.value is not None]
        if not finished_lines:
            return None
        # Compared by value, then by the negative number: of equal values the first trial has the largest tuple.
        _, _, best_line = max((line.value, -line.number, line) for line in finished_lines)
        return best_line

    def to_json(self) -> dict[str, Any]:
        """Return the content of sweep.json."""
        return {
            "trainer": self.trainer,
            "measured": self.measured,
            "wanted": self.wanted,
            "best": None if self.best_trial is None else self.best_trial.number,
            "trials": [line.to_json() for line in self.lines],
        }


def write_outcome(outcome: SweepOutcome, base: object) -> None:
    """Write sweep.json; if there is a best trial, also best.toml, recorded as this user's.

    Args:
        outcome: the trials so far.
        base: configuration that all trials share.
    """
    write_object(outcome.folder.result, json.dumps(outcome.to_json(), indent=1).encode() + b"\n")
    if outcome.best_trial is not None:
        write_config(with_settings(base, outcome.best_trial.settings, TRIAL_SOURCE), outcome.folder.best)
        remember_file(outcome.folder.best, say_nothing)  # each trial prints a fault of the record by itself
