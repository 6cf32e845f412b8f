"""A run that lies at a URL, brought into a folder: to go on with it, or only to look at it."""

import json
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from flatwater.checkpoints.remote import FOLDER, fetch_newest, stored
from flatwater.errors import CheckpointError, RunError
from flatwater.runs.folder import BEGINNINGS, RUNS, RunFolder
from flatwater.runs.mirror_sender import CLAIM
from flatwater.runs.mirroring import write_place
from flatwater.storage.claims import is_lock, take
from flatwater.storage.directory import write_object
from flatwater.storage.objects import Objects, is_url, open_objects

CONFIG = "config.toml"
Say = Callable[[str], None]


def fetch_run(url: str, into: Path | None, say: Say) -> RunFolder:
    """Bring a run to this machine, to go on with it: its newest whole checkpoint, and its history.

    config.toml is written last: a folder that has it has everything. A fetch that was cut off goes on.

    Args:
        url: of the run.
        into: the folder; None takes `runs/NAME`.
        say: told of damaged checkpoints.

    Raises:
        RunError: there is no run, another process goes on with it now, or the folder holds something else.
        CheckpointError: no checkpoint there is whole.
        ConfigError: the store refuses.
        StoreError: it cannot be reached.
    """
    objects, names = _run_at(url)
    folder = RunFolder(into if into is not None else RUNS / url.rstrip("/").rpartition("/")[2])
    _require_room(folder, names)
    lock, _ = take(objects)
    try:
        if fetch_newest(objects, folder.checkpoints, say=say, mend=True) is None:
            raise CheckpointError(f"{url}: there is no whole checkpoint, so the run cannot go on from there.")
        _fetch_files(objects, folder, names)
        claim = json.loads(objects.read(CLAIM) or b"{}")
        write_place(folder, objects.url, claim.get("run") or secrets.token_hex(16))
        _fetch(objects, folder, CONFIG)
    finally:
        lock.release_()
    return folder


def _require_room(folder: RunFolder, names: list[str]) -> None:
    if folder.config.is_file():
        raise RunError(
            f"{folder.path}: there is a run here already. Go on with it by `flatwater resume {folder.path}`, or give "
            "another folder with --into."
        )
    brought = {PurePosixPath(name).parts[0] for name in names} | {FOLDER, CLAIM}
    found = [] if not folder.path.is_dir() else [entry.name for entry in folder.path.iterdir()]
    if strange := [name for name in found if name not in brought and not name.startswith(BEGINNINGS)]:
        raise RunError(f"{folder.path}: it holds other things ({strange[0]}). Give another folder with --into.")


@contextmanager
def at_hand(place: str | Path, say: Say, *, shards: bool) -> Iterator[RunFolder]:
    """A run to look at: its own folder, or a temporary copy of what lies at a URL.

    Args:
        place: a folder or a URL.
        say: told of damaged checkpoints.
        shards: bring the newest checkpoint whole; else the manifests alone.

    Raises:
        RunError: there is no run at the URL.
        CheckpointError: no checkpoint there is whole.
        ConfigError: the store refuses.
        StoreError: it cannot be reached.
    """
    if not is_url(place):
        yield RunFolder(Path(place))
        return
    objects, names = _run_at(str(place))
    with tempfile.TemporaryDirectory(prefix="flatwater-") as scratch:
        folder = RunFolder(Path(scratch) / objects.url.rpartition("/")[2])
        if shards and fetch_newest(objects, folder.checkpoints, say=say) is None:
            raise CheckpointError(f"{place}: there is no whole checkpoint.")
        if not shards:
            for name in stored(objects)[0]:
                write_object(folder.path / name, objects.read(name) or b"")
        _fetch_files(objects, folder, names)
        _fetch(objects, folder, CONFIG)
        yield folder


def _run_at(url: str) -> tuple[Objects, list[str]]:
    """The objects of a run, and the names of its small files."""
    objects = open_objects(url)
    names = [entry.name for entry in objects.entries() if not entry.name.startswith(f"{FOLDER}/")]
    if CONFIG not in names:
        raise no_run(objects)
    return objects, names


def no_run(objects: Objects) -> RunError:
    """What is said where nothing of a run lies at a URL."""
    return RunError(f"{objects.url}: there is no run here. See `flatwater runs {objects.url.rpartition('/')[0]}`.")


def _fetch_files(objects: Objects, folder: RunFolder, names: list[str]) -> None:
    for name in names:
        if not is_lock(name) and name not in {CLAIM, CONFIG}:
            _fetch(objects, folder, name)


def _fetch(objects: Objects, folder: RunFolder, name: str) -> None:
    if ".." in PurePosixPath(name).parts:
        raise RunError(f"{objects.url}: an object is called {name!r}, which would leave the folder. Remove it.")
    write_object(folder.path / name, objects.pieces(name))


def send_back(url: str, folder: RunFolder, path: Path) -> None:
    """Replace a file at the URL by the copy that was changed here.

    Raises:
        ConfigError: the store refuses.
        StoreError: it cannot be reached.
    """
    open_objects(url).put(path.relative_to(folder.path).as_posix(), path.read_bytes())
