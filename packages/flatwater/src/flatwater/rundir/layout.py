"""The run folder: the names of its files, how it is made and opened, and the lock of the process that writes it."""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from itertools import count, pairwise
from pathlib import Path

from flatwater.config.toml import dumps_config
from flatwater.metrics.last_records import read_last
from flatwater.sources import current_folder
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.files.directory import (
    current_path,
    expand_home,
    explain_deleted_folder,
    explain_os_errors,
    is_same_folder,
    write_object,
)
from flatwater_watch.files.output import POLICY_OUTPUTS
from flatwater_watch.files.regular_files import append_regular

RUNS_FOLDER = Path("runs")
"""Folder of runs for which the user gives no other."""
LEFTOVER_PREFIXES = (".lock", ".config.toml.", "mirror.json", ".mirror.json.", "origin.json", ".origin.json.")
"""Prefixes of files that are left by a run which was killed or refused before it began; a folder with such files alone
counts as empty."""


@dataclass(frozen=True)
class Folder:
    """A folder whose files have fixed names."""

    path: Path
    """Path of the folder, as the user writes it."""
    held_path: Path | None = None
    """Path through the descriptor of `hold_lock`, which leads to the folder even if somebody renames it."""

    @property
    def root(self) -> Path:
        """Path below which the files are opened."""
        return self.held_path or self.path


class FolderFile:
    """A descriptor: as the attribute of a `Folder`, the path of the file with this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Folder, _kind: type[Folder]) -> Path:
        return folder.root / self._name


class RunFolder(Folder):
    """The files of one run."""

    config = FolderFile("config.toml")
    """The complete configuration of the run."""
    description = FolderFile("description.json")
    """How lists, pages and the live screen show the run, so that they need not import its recipe."""
    sections = FolderFile("sections.json")
    """Parts of the run's page, as data, from a recipe that does not ship with this package."""
    lock = FolderFile(".lock")
    """File that the process which trains the run locks."""
    metrics = FolderFile("metrics.jsonl")
    """One line of numbers for each round."""
    alarms = FolderFile("alarms.jsonl")
    """One line for each round with alarms."""
    doubts = FolderFile("not_exact.json")
    """Reasons why the run cannot be resumed bit for bit; missing where it can."""
    origin = FolderFile("origin.json")
    """Parent, round and changed settings of a fork; missing if the run is not a fork."""
    seeds = FolderFile("seeds.json")
    """Seeds of a group of runs, whose folders lie in this folder; missing in the folder of a single run."""
    checkpoints = FolderFile("checkpoints")
    """Manifests, and the shards that they name."""
    mirror = FolderFile("mirror.json")
    """URL at which the run is mirrored, and its identity there."""
    result = FolderFile("result.json")
    """Score of the trained policy against the baselines."""
    holdout = FolderFile("holdout.json")
    """Score of the trained policy against the baselines on the holdout."""
    picture = FolderFile("result.png")
    """The run in one picture."""
    looks = FolderFile("holdout_looks.jsonl")
    """One line for each use of the holdout."""
    plan = FolderFile("plan.json")
    """Planned memory of the run, by owner."""
    log = FolderFile("run.log")
    """One line with its time for each event of the run."""
    profile = FolderFile("profile")
    """Traces of rounds that were recorded with torch's profiler."""
    ledger = FolderFile("ledger.jsonl")
    """One line for each round: bytes by owner."""
    findings = FolderFile("findings.jsonl")
    """One line for each finding about memory that grows: its owner, its source line, when memory runs out."""
    report = FolderFile("report.html")
    """The run as one page, if `flatwater report` has written it."""

    @property
    def with_current_name(self) -> "RunFolder":
        """The folder under the path that it has now, for messages, and for use after the lock is released."""
        if self.held_path is None:
            return self
        path_now = current_path(self.held_path)
        # The user's spelling of the path if it still leads to the folder, else the system's.
        return RunFolder(self.path if is_same_folder(self.path, self.held_path) else path_now)

    def journal(self, name: str) -> Path:
        """Return the path of a recipe's own file with a line for each round, by its name, such as `lineage`."""
        return self.root / f"{name}.jsonl"

    def tracker(self, name: str) -> Path:
        """Return the folder of a tracker's files, such as TensorBoard's event files, by the tracker's name."""
        return self.root / name.replace(":", ".")


def new_run_path(run: Path | str | None) -> Path | None:
    """Return the folder that the user gives for a new run as a path; None if its name is left to us.

    Raises:
        ConfigError: `run` is neither a path nor text.
    """
    if not isinstance(run, Path | str | None):
        raise ConfigError(f"run: expected a folder for the new run, got a {type(run).__name__}")
    return None if run is None else Path(run)


def create_folder(
    path: Path | None, kind: str, taken_names: Collection[str] = (), home: Collection[str] = ()
) -> RunFolder:
    """Make the folder of a new run, or check that it is empty. Returns it.

    Args:
        path: the folder; None for `runs/<kind>-<date>-<number>`.
        kind: name of the recipe.
        taken_names: names of other runs at the URL where the run will be mirrored.
        home: `current_folder()` before code of the user's was called, which may have gone to another folder.

    Raises:
        RunError: the folder has files in it already, lies among another run's checkpoints, or cannot be written.
    """
    folder = RUNS_FOLDER if path is None else expand_home(path)
    if home and [*home] != current_folder():
        folder = Path(*home, folder)
    parents = folder.absolute().parents
    # Parents of each folder `checkpoints` that contains this folder; a run, if they have a config.toml.
    outer_folders = (RunFolder(parent) for child, parent in pairwise(parents) if child.name == "checkpoints")
    if any(outer.config.is_file() for outer in outer_folders):
        raise RunError(f"--run {folder}: lies among the checkpoints of another run. Choose another folder.")
    try:
        if path is None:
            return RunFolder(_make_numbered_folder(folder, kind, taken_names))
        folder.mkdir(parents=True, exist_ok=True)
        # Files of a run that never began do not count, so that the user can repeat the command.
        entries = [entry.name for entry in folder.iterdir() if not entry.name.startswith(LEFTOVER_PREFIXES)]
    except OSError as error:
        raise RunError(f"--run {folder}: cannot be made ({error.strerror}). Choose another folder.") from error
    if entries:
        is_run = (folder / "config.toml").is_file()
        remedy = (
            f"Resume the run with `flatwater resume {folder}`, or choose" if is_run else "It has other things: choose"
        )
        raise RunError(f"--run {folder}: this folder is not empty. {remedy} another folder for a new run.")
    return RunFolder(folder)


def _make_numbered_folder(runs: Path, kind: str, taken_names: Collection[str]) -> Path:
    """Make `KIND-DATE-N` in the folder `runs`, with the first number that is free here and at the mirror."""
    # The first folder that this process itself makes: another process may take a free name at the same moment.
    today = f"{datetime.now().astimezone():%Y-%m-%d}"
    paths = (runs / f"{kind}-{today}-{n}" for n in count(1))
    return next(path for path in paths if path.name not in taken_names and _make_folder(path))


def _make_folder(path: Path) -> bool:
    """Make a folder. Returns whether it was made; False if something of that name exists already."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def open_folder(path: Path) -> RunFolder:
    """Return the folder of an existing run.

    Raises:
        RunError: there is no run in the folder.
    """
    path = expand_home(path)
    folder = RunFolder(path)
    if not folder.config.is_file():
        reason = "It is not a folder." if path.exists() else "The folder does not exist."
        if path.is_file() and path.suffix == ".json":  # most likely a result of `flatwater watch`
            reason = "Compare two results of a watch with `flatwater watch --against FILE FILE`."
        elif path.is_file() and path.suffix in POLICY_OUTPUTS:
            player = ", or play it from Python by `flatwater.load`" if path.suffix == ".safetensors" else ""
            reason = f"It is an exported policy: give the folder of its run{player}."
        what_is_there = _inner_run_hint(path) if path.is_dir() else f"{reason}{_near_run_hint(path)}"
        raise RunError(f"{path}: not a run folder. {what_is_there} See `flatwater runs` for the runs in ./runs.")
    if folder.seeds.is_file():
        raise RunError(
            f"{path}: expected a run, got a group of runs with several seeds. {_inner_run_hint(path)} "
            "`flatwater resume` and `compare` take the group itself."
        )
    return folder


def _near_run_hint(path: Path) -> str:
    """Return ` Did you mean runs/first?` with the run of the nearest name beside the path or in ./runs, if there is."""
    places = (path.parent, RUNS_FOLDER)
    folders = {config.parent.name: config.parent for place in places for config in place.glob("*/config.toml")}
    near_names = get_close_matches(path.name, folders, n=1)
    return f" Did you mean {folders[near_names[0]]}?" if near_names else ""


def _inner_run_hint(path: Path) -> str:
    """Return a sentence about a folder that is not a run: the path of a run in it, or that it has no config.toml."""
    runs = sorted(config.parent for config in path.glob("*/config.toml"))
    return f"Give a run in it, such as {runs[-1]}." if runs else "It has no config.toml."


def recorded_rounds(folder: RunFolder) -> int:
    """Return the number of rounds in metrics.jsonl, as its last line says; 0 if there is no such file."""
    record, _round = read_last(folder.metrics, "round")
    return 0 if record is None else int(record["round"])


def write_config(config: object, path: Path) -> None:
    """Write a configuration as a TOML file with an explanation of each setting."""
    write_object(path, dumps_config(config).encode())


@contextmanager
def hold_lock(folder: RunFolder) -> Iterator[RunFolder]:
    """Lock a run, so that no other process writes it; the system frees the lock when this process ends.

    Yields the folder with a `held_path`: if somebody renames the folder, later files are written into the same folder.

    Raises:
        RunError: another process trains this run now.
    """
    with explain_os_errors(folder.path), ExitStack() as handles:
        # The folder is opened first and the lock file within it, so that both belong to the same folder.
        folder_handle = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
        handles.callback(os.close, folder_handle)
        with explain_os_errors(folder.lock):
            lock_file = handles.enter_context(append_regular(Path(folder.lock.name), folder_descriptor=folder_handle))
        # Both handles stay open while the lock is held; `explain_os_errors` ends here, as it is for opening alone.
        open_handles = handles.pop_all()
    with open_handles:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # without waiting, as a run takes hours
        except OSError as error:
            raise RunError(
                f"{folder.path}: another process is training this run. Wait for it, or stop it with SIGTERM."
            ) from error
        # With this process's id instead of "self", so that programs started by a tracker can use the path too.
        held_path = Path(f"/proc/{os.getpid()}/fd/{folder_handle}")
        if not held_path.exists():  # a system without /proc: files are opened by the folder's path
            yield folder
            return
        with explain_deleted_folder(held_path):
            yield replace(folder, held_path=held_path)
