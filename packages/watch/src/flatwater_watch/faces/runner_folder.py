"""The folder in which a runner and the programs that it watches leave each other notes.

It lies in the temporary folder, and belongs to this user alone. A runner holds a lock on it as long as it lives; the
folder of a runner that was killed is removed by the program at its end (`start_in_process.py`), or by the next runner.

A note is read as a stranger's file: another user owns those of a process that root has entered.
"""

import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Any

from flatwater_watch.agent.spool import PROGRAM, WORKER, is_summary

PREFIX = "flatwater-watch-"
"""Beginning of the folders' names."""
STALE_SECONDS = 5.0
"""Minimum age of an unlocked folder before it is removed: a new one is locked right after it was made."""
NOTE_BYTES, MAXIMUM_NOTES = 16 << 20, 1000
"""Maximum bytes that are read of a note, and maximum notes of a folder; a summary has 100 kB."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def watch_folder() -> Iterator[Path]:
    """Make a folder for the block, and remove it at its end; folders of runners that were killed are removed before."""
    _remove_stale_folders()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, _FOLDER_FLAGS)
        try:
            # The lock lasts until the descriptor is closed, at the latest by the kernel when this process ends.
            with suppress(OSError):  # a file system without locks, where no folder counts as stale
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_stale_folders() -> None:
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False) and _is_stale(entry):
                rmtree(entry.path, ignore_errors=True)  # through descriptors: no link is followed


def _is_stale(entry: os.DirEntry[str]) -> bool:
    """Return whether a folder is this user's and old, and no runner holds its lock any more."""
    try:
        status = entry.stat(follow_symlinks=False)
        if status.st_uid != os.geteuid() or time.time() - status.st_mtime < STALE_SECONDS:
            return False
        descriptor = os.open(entry.path, _FOLDER_FLAGS)
    except OSError:  # the folder is gone
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its runner lives
        return False
    finally:
        os.close(descriptor)
    return True


def read_notes(folder: Path, kind: str) -> list[tuple[str, float]]:
    """Return the notes whose names end with `kind`, by name; those that cannot be read are left out.

    At most `MAXIMUM_NOTES` files are looked at, as another user may have put any number there.

    Returns:
        Text of each note, and the time at which it was written, in seconds since 1970.
    """
    notes = []
    with suppress(OSError):
        descriptor = os.open(folder, _FOLDER_FLAGS)
        try:
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in islice(entries, MAXIMUM_NOTES) if entry.name.endswith(kind))
            for name in names:
                with suppress(OSError):  # it was replaced meanwhile, or is not a note
                    notes.append(_read_note(descriptor, name))
        finally:
            os.close(descriptor)
    return notes


def _read_note(folder: int, name: str) -> tuple[str, float]:
    """Return the text of a note, and the time at which it was written; the text is empty if it is no regular file."""
    # Another user may have put anything there: no link is followed, and no pipe is waited for.
    descriptor = os.open(name, _NOTE_FLAGS, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as note:
        status = os.fstat(descriptor)
        content = note.read(NOTE_BYTES) if stat.S_ISREG(status.st_mode) else b""
    return content.decode("utf-8", "replace"), status.st_mtime


def read_sentences(folder: Path, kind: str) -> list[str]:
    """Return the sentences in notes of a kind, such as `fault`, each once."""
    lines = [line for text, _ in read_notes(folder, f".{kind}") for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.strip()))


def read_summaries(folder: Path, ending: str = PROGRAM) -> list[dict[str, Any]]:
    """Return the valid summaries that processes of one command left, that of the longest watch first.

    Args:
        folder: folder with their notes.
        ending: ending of the notes' names: `PROGRAM` for the command's own processes, `WORKER` for their workers.

    Returns:
        Summaries, each with `ended_at`, the time at which its file was written, in seconds since 1970.
    """
    summaries = []
    if ending == WORKER:
        notes = read_notes(folder, WORKER)
    else:
        # `.worker.json` ends in `.json` as well, so the workers' notes are taken out again.
        worker_texts = {text for text, _ in read_notes(folder, WORKER)}
        notes = [note for note in read_notes(folder, PROGRAM) if note[0] not in worker_texts]
    for text, write_time in notes:
        with suppress(ValueError, RecursionError):
            summary: Any = json.loads(text)
            if is_summary(summary):
                summaries.append({**summary, "ended_at": write_time})
    return sorted(summaries, key=lambda summary: -float(summary["seconds"]))
