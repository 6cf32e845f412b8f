"""Copies of a run from a URL into a folder, to go on with the run or only to read it."""

import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from flatwater.checkpoints.remote import CHECKPOINT_FOLDER, fetch_newest, list_stored_files, read_with_retries
from flatwater.checkpoints.verification import DamagedError
from flatwater.mirror.opening import write_mirror_file
from flatwater.mirror.sender import CLAIM_FILE
from flatwater.rundir.layout import LEFTOVER_PREFIXES, RUNS_FOLDER, RunFolder, open_folder
from flatwater.storage.faults import OddNameError, OversizeError
from flatwater.storage.objects import ObjectEntry, StoredObjects, is_url, open_objects
from flatwater.storage.url_lock import LOCK_FILE, is_lock, take_lock
from flatwater_watch.errors import CheckpointError, RunError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.directory import expand_home, write_object
from flatwater_watch.files.json_values import convert_to_type, parse_json
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.phrases import count_phrase

# Names of files that a run may have at a store: nothing else is asked for, whatever lies there.
CONFIG_FILE = "config.toml"
JOURNAL_NAMES = ("metrics", "alarms", "ledger", "findings", "lineage", "episodes", "lessons", "holdout_looks")
RECORD_FILES = (
    *(f"{name}.jsonl" for name in JOURNAL_NAMES),
    *(
        CONFIG_FILE,
        "description.json",
        "sections.json",
        "origin.json",
        "plan.json",
        "result.json",
        "trades.parquet",
        "prices.parquet",
        "equity.parquet",
        "lives.npz",
    ),
)
"""Files that most runs have."""
# Plain names below the run's folder: a store cannot have a file written anywhere else.
_RECORD_NAME = re.compile(r"[a-z0-9_]+\.(toml|json|jsonl|parquet|npz)|tensorboard/events\.[A-Za-z0-9_.-]+")


def fetch_run(url: str, into: Path | None, say: ShowLine) -> RunFolder:
    """Copy a run's newest whole checkpoint and its records into a folder, to go on with the run there.

    config.toml is written last: a folder that has it has everything. A copy that was cut off is completed. Without
    `into` the folder is `runs/NAME`.

    Raises:
        RunError: there is no run at the URL, another process goes on with it now, or the folder holds something else.
        CheckpointError: no checkpoint at the URL is whole.
    """
    objects, entries = _list_run_objects(url, say)
    run_name = url.rstrip("/").rpartition("/")[2]
    folder = RunFolder(RUNS_FOLDER / run_name if into is None else expand_home(into))
    _require_free_folder(folder, entries)
    # Locked at the store: a process that still trains the run elsewhere would go on at the same time.
    lock, _previous_holder = take_lock(objects)
    try:
        # Before the checkpoint: a result that is newer than it counts as its own, and this may be an earlier one's.
        _fetch_files(objects, folder, entries)
        if fetch_newest(objects, folder.checkpoints, say=say) is None:
            raise CheckpointError(f"{url}: no checkpoint is complete, so the run cannot be resumed from this URL.")
        identity = _read_identity(objects) or secrets.token_hex(16)  # a new one if no run has claimed the URL
        write_mirror_file(folder, objects.url, identity)
        _fetch_file(objects, folder, entries[CONFIG_FILE])
    finally:
        lock.release_()
    return folder


def _require_free_folder(folder: RunFolder, entries: Mapping[str, ObjectEntry]) -> None:
    """Refuse a folder for a fetched run that holds a run, or files that no fetch of this run has put there.

    Raises:
        RunError: the folder has a run, or other files.
    """
    if folder.config.is_file():
        raise RunError(
            f"{folder.path}: the folder has a run already. Resume it with `flatwater resume {folder.path}`, or give "
            "another folder with --into."
        )
    # First parts of the names that a fetch of this run writes.
    brought_names = {PurePosixPath(name).parts[0] for name in entries} | {CHECKPOINT_FOLDER, CLAIM_FILE}
    existing_names = [] if not folder.path.is_dir() else [entry.name for entry in folder.path.iterdir()]
    # Files of an earlier fetch that was cut off are overwritten, and those that it had only begun do not count.
    foreign_names = [
        name for name in existing_names if name not in brought_names and not name.startswith(LEFTOVER_PREFIXES)
    ]
    if foreign_names:
        raise RunError(
            f"{folder.path}: the folder has other files ({foreign_names[0]}). Give another folder with --into."
        )


@contextmanager
def open_run_folder(place: str | Path, say: ShowLine, *, with_shards: bool) -> Iterator[RunFolder]:
    """Yield a run to look at: its own folder, or a temporary copy of the run at a URL.

    Args:
        place: a folder or a URL.
        say: gets lines about damaged checkpoints.
        with_shards: whether the newest checkpoint is copied whole; if not, the manifests of all checkpoints are.

    Raises:
        RunError: there is no run at `place`.
        CheckpointError: no checkpoint of the run is whole.
    """
    if not is_url(place):
        yield open_folder(Path(place))
        return
    objects, entries = _list_run_objects(str(place), say)
    with tempfile.TemporaryDirectory(prefix="flatwater-") as scratch:
        folder = RunFolder(Path(scratch) / objects.url.rpartition("/")[2])
        if with_shards and fetch_newest(objects, folder.checkpoints, say=say) is None:
            raise CheckpointError(f"{place}: no checkpoint is complete.")
        # A caller without shards reads no state, and shards may be gigabytes.
        if not with_shards:
            manifest_names, _shards = list_stored_files(objects)
            for name in manifest_names:
                write_object(folder.path / name, objects.read(name) or b"")
        _fetch_files(objects, folder, entries)
        _fetch_file(objects, folder, entries[CONFIG_FILE])
        yield folder


def _list_run_objects(url: str, say: ShowLine) -> tuple[StoredObjects, dict[str, ObjectEntry]]:
    """Return the objects of a run, and the entries of its small files by name; other objects are left out.

    Raises:
        RunError: there is no run at the URL.
    """
    objects = open_objects(url)
    entries = small_entries(objects, say)
    entries_by_name = {entry.name: entry for entry in entries if is_record(entry.name)}
    if CONFIG_FILE not in entries_by_name:
        raise no_run_error(objects)
    foreign_names = [
        entry.name
        for entry in entries
        if entry.name not in entries_by_name and entry.name != CLAIM_FILE and not is_lock(entry.name)
    ]
    if foreign_names:
        count = count_phrase(len(foreign_names), "object")
        say(f"{objects.url}: {count} of no run, left there: {', '.join(foreign_names[:5])}.")
    return objects, entries_by_name


def small_entries(objects: StoredObjects, say: ShowLine) -> list[ObjectEntry]:
    """Return the entries of a run's objects, without its checkpoints.

    If an odd name makes the list unreadable, only objects of known names are looked for.
    """
    try:
        return [entry for entry in objects.entries() if not entry.name.startswith(f"{CHECKPOINT_FOLDER}/")]
    except OddNameError as error:
        say(f"{error} The run is downloaded without this object and without TensorBoard's files.")
        return objects.find_entries((*RECORD_FILES, CLAIM_FILE, LOCK_FILE))


def is_record(name: str) -> bool:
    """Return whether a name is that of a run's record or settings: no checkpoint, claim or lock."""
    return _RECORD_NAME.fullmatch(name) is not None and name != CLAIM_FILE and not is_lock(name)


def no_run_error(objects: StoredObjects) -> RunError:
    """Return the error that there is no run at a URL."""
    return RunError(f"{objects.url}: no run has this URL. See `flatwater runs {objects.url.rpartition('/')[0]}`.")


def _read_identity(objects: StoredObjects) -> str:
    """Return the identity of the run that claimed the URL; empty if no run has claimed it.

    Raises:
        DamagedError: the object in which the claim stands holds something else.
    """

    def read(objects: StoredObjects) -> str:
        """Read the claim once; return the identity in it, empty if there is no claim.

        Raises:
            DamagedError: the claim at the store cannot be read.
        """
        raw = objects.read(CLAIM_FILE)
        try:
            return "" if raw is None else convert_to_type(parse_json(raw), dict[str, str]).get("run", "")
        except ValueError as error:
            raise DamagedError(
                f"{objects.url}/{CLAIM_FILE}: is damaged ({error}). Remove the object if no other run is mirrored "
                "there."
            ) from error

    return read_with_retries(objects, read)


def _fetch_files(objects: StoredObjects, folder: RunFolder, entries: Mapping[str, ObjectEntry]) -> None:
    """Copy the run's small files except config.toml, which the caller copies last."""
    for name, entry in entries.items():
        if name != CONFIG_FILE:
            _fetch_file(objects, folder, entry)


def _fetch_file(objects: StoredObjects, folder: RunFolder, entry: ObjectEntry) -> None:
    """Copy a file of the size that the store names; up to three times, as a run in training changes its records.

    Raises:
        DamagedError: the file came shorter three times.
        StoreError: the file came longer three times, or the store cannot be reached.
    """

    def read(objects: StoredObjects) -> None:
        """Copy the file once; if its size differs, ask the store for its size now, for the next try."""
        nonlocal entry
        try:
            write_object(folder.path / entry.name, _exact_pieces(objects, entry))
        except (DamagedError, OversizeError):
            entry = next(iter(objects.find_entries([entry.name])), entry)  # as before, if the object is gone
            raise

    read_with_retries(objects, read)


def _exact_pieces(objects: StoredObjects, entry: ObjectEntry) -> Iterator[bytes]:
    """Yield an object's content, of exactly the size that it was listed with.

    Raises:
        DamagedError: the object is missing, or is shorter.
        OversizeError: the object is longer.
    """
    received_bytes = 0
    try:
        for piece in objects.pieces(entry.name, entry.bytes):
            received_bytes += len(piece)
            yield piece
    except FileNotFoundError:
        raise DamagedError(f"{objects.url}/{entry.name}: the object is missing") from None
    if received_bytes != entry.bytes:
        raise DamagedError(f"{objects.url}/{entry.name}: {received_bytes} bytes arrived of {entry.bytes}")


def send_back(url: str, folder: RunFolder, path: Path) -> None:
    """Replace the file at the URL by the file of the same name in the copied folder."""
    name = path.relative_to(folder.path).as_posix()
    content = read_regular(path, RESULT_BYTES, follow_links=False)
    open_objects(url).put(name, content)
