"""The folder of a sweep: where its study, its trials and its result are."""

from dataclasses import dataclass
from pathlib import Path

from flatwater.rundir.layout import RunFolder


@dataclass(frozen=True)
class SweepFolder:
    """The files of one sweep. Its trials are run folders, so `flatwater runs SWEEP` lists them."""

    path: Path

    @property
    def base(self) -> Path:
        """The configuration that all trials share, apart from what is searched."""
        return self.path / "base.toml"

    @property
    def space(self) -> Path:
        """What is searched."""
        return self.path / "space.toml"

    @property
    def study(self) -> Path:
        """Optuna's database: each trial's settings, values by round, and state."""
        return self.path / "study.db"

    @property
    def result(self) -> Path:
        """All trials, and which is the best."""
        return self.path / "sweep.json"

    @property
    def best(self) -> Path:
        """The configuration of the best trial."""
        return self.path / "best.toml"

    def trial(self, number: int) -> RunFolder:
        """A trial's run."""
        return RunFolder(self.path / f"trial-{number:04}")

    def log(self, number: int) -> Path:
        """What a trial said."""
        return self.path / "logs" / f"trial-{number:04}.txt"
