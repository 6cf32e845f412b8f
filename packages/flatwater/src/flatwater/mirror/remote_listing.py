"""The runs that are mirrored below a URL, read from their small files; no checkpoint is read."""

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from flatwater.mirror.download import CONFIG_FILE
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.listing import MAXIMUM_RESULT, RunLine, read_run_line, unreadable_line
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
    return [line for _, line in sorted(dated_lines, key=lambda dated: dated[0])]


def _list_mirrored_run(objects: StoredObjects, name: str) -> Iterable[tuple[datetime, RunLine]]:
    """Return time and line of one run: a line with the reason if it is unreadable, no line if there is no run."""
    try:
        return _read_run_line(objects.subfolder(name), name)
    except (FlatwaterError, OSError) as error:
        # Raises if the store itself has gone away, instead of a wait for every further run.
        if isinstance(error, StoreError):
            objects.folders()
        # The earliest time: a list has unreadable runs first.
        return [(datetime.min.replace(tzinfo=UTC), unreadable_line(name, "", str(error)))]


def _check_size(file: str, size: int) -> int:
    """Return the size of a file, after a check that a listing may read so much.

    Raises:
        RunError: the file is larger than a run's file of this name can be.
    """
    if size > (limit := MAXIMUM_BYTES_BY_FILE.get(file, 1 << 20)):
        raise RunError(f"{file}: expected at most {format_bytes(limit)}, got {format_bytes(size)}")
    return size


def _read_run_line(objects: StoredObjects, name: str) -> Iterable[tuple[datetime, RunLine]]:
    """Return the time of a run's last change and its line, as the only item; empty if there is no run."""
    try:
        entries = objects.entries()
    except OddNameError:
        entries = objects.find_entries((*FILES_READ, LOCK_FILE))
    sizes = {entry.name: entry.bytes for entry in entries}
    names = sizes.keys()
    if CONFIG_FILE not in names:
        return []
    with tempfile.TemporaryDirectory(prefix="flatwater-") as scratch:
        # A copy of the small files, so that the same reader serves folders and URLs.
        folder = RunFolder(Path(scratch) / name)
        for file in sorted(names & {*FILES_READ}):
            write_object(folder.path / file, objects.pieces(file, _check_size(file, sizes[file])))
        line = read_run_line(folder)
    training = LOCK_FILE in names and has_writer(objects)
    # The lock does not count as a change: it is renewed each minute.
    last_change = max(entry.modified for entry in entries if not is_lock(entry.name))
    return [
        (
            last_change,
            replace(
                line,
                state="training" if training else line.state,
                bytes=sum(entry.bytes for entry in entries),
                # The user knows the URL, and not the temporary copy.
                problem=line.problem.replace(str(folder.path), objects.url),
                changed=f"{last_change.astimezone():%Y-%m-%d %H:%M}",
            ),
        )
    ]
