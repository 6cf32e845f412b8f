"""The folder of a study: its files, its runs and its searches."""

from pathlib import Path

from flatwater.rundir.layout import Folder, FolderFile, RunFolder


class StudyFolder(Folder):
    """The files of one study. Its runs are run folders, so `flatwater runs STUDY` lists them."""

    base = FolderFile("base.toml")
    """The configuration that all runs share, apart from fold and seed."""
    study = FolderFile("study.toml")
    """Folds, seeds, and what is in the panel."""
    space = FolderFile("space.toml")
    """Settings that are searched in each fold, and their values; only there if the study searches."""
    result = FolderFile("study.json")
    """The pooled result, and a row for each fold."""
    equity = FolderFile("equity.parquet")
    """Pooled equity of the champions and the traders that they are compared with."""
    picture = FolderFile("study.png")
    """Picture of the study."""
    report = FolderFile("report.html")
    """Page of the study."""

    def run(self, fold: int, seed: int) -> RunFolder:
        """Return the folder of the run of a fold and a seed."""
        return RunFolder(self.path / f"fold-{fold:02}-seed-{seed}")

    def search_folder(self, fold: int) -> Path:
        """Return the folder of the sweep that searches for the settings of a fold."""
        return self.path / f"fold-{fold:02}-search"

    def log(self, fold: int, seed: int) -> Path:
        """Return the file that the process of a run writes its output to."""
        return self.path / "logs" / f"fold-{fold:02}-seed-{seed}.txt"
