"""The run folder: the places of its files, the lock of their writer, and the number of rounds in them."""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, pairwise
from pathlib import Path

from flatwater.config.toml import dumps_config
from flatwater.metrics.tail import read_last
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import (
    current_path,
    explain_deleted_folder,
    explain_os_errors,
    same_folder,
    write_object,
)
from flatwater_watch.files.safe_read import append_regular

RUNS_FOLDER = Path("runs")
"""Folder for runs that are not given another."""
BEGUN_MARKS = (".lock", ".config.toml.", "mirror.json", ".mirror.json.", "origin.json", ".origin.json.")
"""Beginnings of files that a run leaves which was killed or refused before it began: the folder is as good as
empty."""


@dataclass(frozen=True)
class Folder:
    """A folder whose files have fixed names."""

    path: Path
    """Path at which it was found, as the user writes it."""
    held: Path | None = None
    """The folder itself, whatever its name is by now: a path through a descriptor of `hold_lock`."""

    @property
    def root(self) -> Path:
        """Beginning of the paths of its files."""
        return self.held or self.path


class FolderFile:
    """A file of a folder, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Folder, _kind: type[Folder]) -> Path:
        return folder.root / self._name


class RunFolder(Folder):
    """The files of one run."""

    config = FolderFile("config.toml")
    """The configuration that the run was started with, complete."""
    description = FolderFile("description.json")
    """Form in which lists, pages and the live screen show the run, so that they import no recipe."""
    sections = FolderFile("sections.json")
    """Parts of the page from a recipe that does not ship with this package, as data."""
    lock = FolderFile(".lock")
    """File that is locked by the process that trains the run."""
    metrics = FolderFile("metrics.jsonl")
    """One line of numbers for each round."""
    alarms = FolderFile("alarms.jsonl")
    """One line for each round that had something to warn of."""
    doubts = FolderFile("not_exact.json")
    """Reasons why the run cannot be resumed bit for bit; missing where it can."""
    origin = FolderFile("origin.json")
    """Run, round and changed settings that a fork began with; missing if the run is not a fork."""
    seeds = FolderFile("seeds.json")
    """Seeds of a group of runs, in whose folder each has its own; missing in the folder of a run."""
    checkpoints = FolderFile("checkpoints")
    """Manifests, and the shards that they name."""
    mirror = FolderFile("mirror.json")
    """Place at which the run is mirrored, and its identity there."""
    result = FolderFile("result.json")
    """Score of the trained policy against the baselines."""
    holdout = FolderFile("holdout.json")
    """Score of the trained policy against the baselines on the holdout, which nothing was chosen on."""
    picture = FolderFile("result.png")
    """The run in one picture."""
    looks = FolderFile("holdout_looks.jsonl")
    """One line for each use of the holdout."""
    plan = FolderFile("plan.json")
    """Memory that the run planned to hold, by owner, before its first round."""
    log = FolderFile("run.log")
    """Lines that the run printed, one an event, with times."""
    profile = FolderFile("profile")
    """Traces of rounds that were recorded with torch's profiler."""
    ledger = FolderFile("ledger.jsonl")
    """One line for each round: bytes by owner."""
    findings = FolderFile("findings.jsonl")
    """One line for each thing that grew: its owner, where it was made, when memory runs out."""
    report = FolderFile("report.html")
    """The run as one page, where `flatwater report` was asked for it."""

    @property
    def with_current_name(self) -> "RunFolder":
        """Folder by the name that it has now, for messages, and for when it is no longer held."""
        if self.held is None:
            return self
        path_now = current_path(self.held)
        # The user's own spelling as long as it leads there; else the system's name for the descriptor.
        return RunFolder(self.path if same_folder(self.path, self.held) else path_now)

    def journal(self, name: str) -> Path:
        """Return the recipe's own file with a line for each round: `lineage`, `episodes`."""
        return self.root / f"{name}.jsonl"

    def tracker(self, name: str) -> Path:
        """Return the folder of a tracker: event files, the run's id at a service."""
        return self.root / name.replace(":", ".")


def create_folder(path: Path | None, kind: str, taken_names: Collection[str] = ()) -> RunFolder:
    """Return a new, empty run folder: `path`, or `runs/<kind>-<date>-<number>`.

    Args:
        path: the folder; None makes one under `runs`.
        kind: name of the recipe.
        taken_names: names that other runs have at the place where the run will be mirrored.

    Raises:
        RunError: the folder has files in it already, lies among another run's checkpoints, or cannot be written.
    """
    folder = path if path is not None else RUNS_FOLDER
    parents = folder.absolute().parents
    runs = (RunFolder(run) for below, run in pairwise(parents) if below.name == "checkpoints")
    if any(run.config.is_file() for run in runs):
        raise RunError(f"--run {folder}: lies among the checkpoints of another run. Choose another folder.")
    try:
        if path is None:
            return RunFolder(_make_numbered_folder(kind, taken_names))
        folder.mkdir(parents=True, exist_ok=True)
        # Files of a run that never began do not count: the same command can be given again.
        entries = [entry.name for entry in folder.iterdir() if not entry.name.startswith(BEGUN_MARKS)]
    except OSError as error:
        raise RunError(f"--run {folder}: cannot be made ({error.strerror}). Choose another folder.") from error
    if entries:
        run = (folder / "config.toml").is_file()
        remedy = f"Resume the run with `flatwater resume {folder}`, or choose" if run else "It has other things: choose"
        raise RunError(f"--run {folder}: this folder is not empty. {remedy} another folder for a new run.")
    return RunFolder(folder)


def _make_numbered_folder(kind: str, taken_names: Collection[str]) -> Path:
    """Make `runs/KIND-DATE-N` with the first number that is free here and at the mirror."""
    # Two runs that are started in the same moment find the same name free; only one of them can make the folder.
    today = f"{datetime.now().astimezone():%Y-%m-%d}"
    paths = (RUNS_FOLDER / f"{kind}-{today}-{n}" for n in count(1))
    return next(path for path in paths if path.name not in taken_names and _make_folder(path))


def _make_folder(path: Path) -> bool:
    """Make a folder; False if there is something of that name already."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def open_folder(path: Path) -> RunFolder:
    """Return the folder of a run that was started before.

    Raises:
        RunError: there is no run in the folder.
    """
    folder = RunFolder(path)
    if not folder.config.is_file():
        reason = "It is not a folder." if path.exists() else "The folder does not exist."
        if path.is_file() and path.suffix == ".json":
            reason = "Compare two results of a watch with `flatwater watch --against FILE FILE`."
        what_is_there = _without_settings(path) if path.is_dir() else reason
        raise RunError(f"{path}: not a run folder. {what_is_there} See `flatwater runs` for the runs in ./runs.")
    if folder.seeds.is_file():
        raise RunError(
            f"{path}: expected a run, got a group of runs with several seeds. {_without_settings(path)} "
            "`flatwater resume` and `compare` take the group itself."
        )
    return folder


def _without_settings(path: Path) -> str:
    """Return a sentence about a folder that is not a run: the folder of a study or a sweep has runs in it."""
    runs = sorted(config.parent for config in path.glob("*/config.toml"))
    return f"Give a run in it, such as {runs[-1]}." if runs else "It has no config.toml."


def recorded_rounds(folder: RunFolder) -> int:
    """Return the number of rounds in metrics.jsonl, as its last line says; 0 if there is no such file."""
    record, _ = read_last(folder.metrics, "round")
    return 0 if record is None else int(record["round"])


def write_config(config: object, path: Path) -> None:
    """Write a configuration as a TOML file with an explanation of each setting."""
    write_object(path, dumps_config(config).encode())


@contextmanager
def hold_lock(folder: RunFolder) -> Iterator[RunFolder]:
    """Keep other processes from writing the same run; the system frees the lock when this process ends.

    Yields the folder, held: whoever renames it or puts another in its place takes its files along, those to come as
    well.

    Raises:
        RunError: another process trains this run now.
    """
    with explain_os_errors(folder.path), ExitStack() as handles:
        # The folder before the lock: the lock file is opened within it, so both are of one folder.
        folder_handle = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
        handles.callback(os.close, folder_handle)
        with explain_os_errors(folder.lock):
            handle = handles.enter_context(append_regular(Path(folder.lock.name), folder_descriptor=folder_handle))
        open_handles = handles.pop_all()
    with open_handles:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not waiting: a run takes hours
        except OSError as error:
            raise RunError(
                f"{folder.path}: another process is training this run. Wait for it, or stop it with SIGTERM."
            ) from error
        # By this process's number, not as "self": the programs that a tracker starts find it too.
        held_path = Path(f"/proc/{os.getpid()}/fd/{folder_handle}")
        if not held_path.exists():  # a system without /proc: files go by their names
            yield folder
            return
        with explain_deleted_folder(held_path):
            yield replace(folder, held=held_path)
