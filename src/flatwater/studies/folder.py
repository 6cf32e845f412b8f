"""The folder of a study: where its settings, its runs and its result are."""

from dataclasses import dataclass
from pathlib import Path

from flatwater.rundir.layout import RunFolder


@dataclass(frozen=True)
class StudyFolder:
    """The files of one study. Its runs are run folders, so `flatwater runs STUDY` lists them."""

    path: Path

    @property
    def base(self) -> Path:
        """The configuration that all runs share, apart from fold and seed."""
        return self.path / "base.toml"

    @property
    def study(self) -> Path:
        """Folds, seeds, and what is in the panel."""
        return self.path / "study.toml"

    @property
    def result(self) -> Path:
        """The pooled result, and a row for each fold."""
        return self.path / "study.json"

    @property
    def equity(self) -> Path:
        """Pooled equity of the champions and the yardsticks."""
        return self.path / "equity.parquet"

    @property
    def picture(self) -> Path:
        """The study in one picture."""
        return self.path / "study.png"

    @property
    def report(self) -> Path:
        """The study as one page."""
        return self.path / "report.html"

    def run(self, fold: int, seed: int) -> RunFolder:
        """The run of one fold and seed."""
        return RunFolder(self.path / f"fold-{fold:02}-seed-{seed}")

    def log(self, fold: int, seed: int) -> Path:
        """What it said."""
        return self.path / "logs" / f"fold-{fold:02}-seed-{seed}.txt"
