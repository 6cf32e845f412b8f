"""What a user might bring: trackers, of which one works and others do what trackers do on a bad day."""

import json
from pathlib import Path

import torch

from flatwater.metrics.sinks import Metrics, TrackedRun
from flatwater_trading.panel.mapped_tensors import map_tensors


class Kept:
    """Writes each round into its folder, and says where."""

    def __init__(self, run: TrackedRun) -> None:
        run.folder.mkdir(exist_ok=True)
        self.file = run.folder / f"after-{run.resume_at}.jsonl"
        self.seed = run.settings["seed"]
        run.say(f"keeps {run.name} in {self.file.name}")

    def write(self, round: int, metrics: Metrics) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"round": round, "seed": self.seed, **metrics}) + "\n")

    def close(self) -> None:
        self.file.with_suffix(".closed").touch()


class Stray(Kept):
    """Writes into memory that all runs on this market share."""

    def write(self, round: int, metrics: Metrics) -> None:  # noqa: ARG002
        tensors, _ = map_tensors(self.file.with_suffix(".map"), lambda: {"close": torch.ones(100)})
        tensors["close"][3] = 0.0


class Unwritable(Kept):
    """Raises with the first round."""

    def write(self, round: int, metrics: Metrics) -> None:  # noqa: ARG002
        raise KeyError("no such chart")


class Leaving(Kept):
    """Ends the process, as it thinks."""

    def __init__(self, run: TrackedRun) -> None:  # noqa: ARG002
        raise SystemExit("no licence")


class Silent:
    """Is no tracker: nothing can be written."""

    def __init__(self, run: TrackedRun) -> None:
        self.folder: Path = run.folder

    def close(self) -> None:
        """Nothing is held."""


class Curious(Kept):
    """Asks for more than it is given."""

    def __init__(self, run: TrackedRun, password: str) -> None:  # noqa: ARG002
        super().__init__(run)
