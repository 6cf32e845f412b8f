"""The runs that are mirrored below a URL, read from their small files; no checkpoint is read."""

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from flatwater.mirror.download import CONFIG_FILE
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.listing import RunLine, read_run_line, unreadable_line
from flatwater.rundir.results import MAXIMUM_RESULT
from flatwater.storage.faults import OddNameError, StoreError
from flatwater.storage.objects import StoredObjects, open_objects
from flatwater.storage.url_lock import LOCK_FILE, has_writer, is_lock
from flatwater_watch.errors import ConfigError, FlatwaterError, RunError
from flatwater_watch.files.directory import write_object
from flatwater_watch.units import format_bytes

FILES_READ = (CONFIG_FILE, "description.json", "metrics.jsonl", "result.json", "not_exact.json", "origin.json")
MAXIMUM_BYTES_BY_FILE = {"metrics.jsonl": 256 << 20, "result.json": MAXIMUM_RESULT}
"""Most bytes of a file that a listing reads; of other files a mebibyte."""


def list_mirrored_runs(url: str) -> list[RunLine]:
    """Return a line for every run directly below `url`, the latest change last; unreadable runs come first.

    Raises:
        ConfigError: no folder has this `file` URL.
    """
    objects = open_objects(url)
    if objects.folder is not None and not objects.folder.is_dir():
        raise ConfigError(f"{objects.url}: no folder has this URL. Give the URL of a folder of runs.")
    dated_lines = [line for name in objects.folders() for line in _list_mirrored_run(objects, name)]
    dated_lines.sort(key=lambda time_and_line: time_and_line[0])
    return [line for _time, line in dated_lines]


def _list_mirrored_run(objects: StoredObjects, name: str) -> Iterable[tuple[datetime, RunLine]]:
    """Return the time and the line of one run, as the only item; no item if `name` is no run.

    The line of an unreadable run says why.
    """
    try:
        return _read_run_line(objects.subfolder(name), name)
    except (FlatwaterError, OSError) as error:
        # Raises if the store itself has gone away, instead of a wait for every further run.
        if isinstance(error, StoreError):
            objects.folders()
        # The earliest time: a list has unreadable runs first.
        return [(datetime.min.replace(tzinfo=UTC), unreadable_line(name, "", str(error)))]


def _refuse_oversize(file: str, size: int) -> None:
    """Refuse a file that is too large to be read for a listing.

    Raises:
        RunError: the file is larger than a run's file of this name can be.
    """
    limit = MAXIMUM_BYTES_BY_FILE.get(file, 1 << 20)
    if size > limit:
        raise RunError(f"{file}: expected at most {format_bytes(limit)}, got {format_bytes(size)}")


def _read_run_line(objects: StoredObjects, name: str) -> Iterable[tuple[datetime, RunLine]]:
    """Return the time of a run's last change and its line, as the only item; empty if there is no run."""
    try:
        entries = objects.entries()
    except OddNameError:  # an object's name makes the list unreadable: only known names are asked for
        entries = objects.find_entries((*FILES_READ, LOCK_FILE))
    sizes = {entry.name: entry.bytes for entry in entries}
    names = sizes.keys()
    if CONFIG_FILE not in names:
        return []
    with tempfile.TemporaryDirectory(prefix="flatwater-") as scratch:
        # A copy of the small files, so that the same reader serves folders and URLs.
        folder = RunFolder(Path(scratch) / name)
        for file in sorted(names & {*FILES_READ}):
            _refuse_oversize(file, sizes[file])
            write_object(folder.path / file, objects.pieces(file, sizes[file]))
        line = read_run_line(folder)
    is_training = LOCK_FILE in names and has_writer(objects)
    # The lock does not count as a change: it is renewed each minute.
    last_change = max(entry.modified for entry in entries if not is_lock(entry.name))
    own_line = replace(
        line,
        state="training" if is_training else line.state,
        bytes=sum(entry.bytes for entry in entries),
        # The user knows the URL, and not the temporary copy.
        problem=line.problem.replace(str(folder.path), objects.url),
        changed=f"{last_change.astimezone():%Y-%m-%d %H:%M}",
    )
    return [(last_change, own_line)]
