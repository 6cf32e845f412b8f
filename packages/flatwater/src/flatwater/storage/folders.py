"""The objects of a `file://` URL, listed and read as regular files below a folder, never through a link.

They are written by the store's client, as at every other store, but not read by it: the client follows links, and a
single file whose name is not text makes its listing fail.
"""

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple


class FoundFile(NamedTuple):
    """One regular file below a folder."""

    name: str
    """Path relative to the folder, with slashes; bytes that are not text are surrogates."""
    bytes: int
    modified: datetime


def list_files(folder: Path) -> Iterator[FoundFile]:
    """Yield every regular file below a folder, without links; nothing if there is no such folder."""
    # A list rather than recursion, as folders may be nested deeper than Python's stack.
    folders_left = [""]
    while folders_left:
        prefix = folders_left.pop()
        for entry in _folder_entries(folder / prefix):
            if entry.is_dir(follow_symlinks=False):
                folders_left.append(f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False) and not is_unfinished(entry.name):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed since it was listed
                    continue
                yield FoundFile(f"{prefix}{entry.name}", status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def folder_names(folder: Path) -> list[str]:
    """Return the names of the folders directly in a folder; links are left out."""
    return [entry.name for entry in _folder_entries(folder) if entry.is_dir(follow_symlinks=False)]


def _folder_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries directly in a folder; empty if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def is_unfinished(name: str) -> bool:
    """Return whether a name has the form that the client gives to unfinished files: `NAME#1`."""
    return "#" in name and name.rpartition("#")[2].isdigit()


def open_listed_file(folder: Path, name: str) -> FileIO:
    """Open a regular file of a listing for reading, by its path relative to the folder.

    Raises:
        FileNotFoundError: there is no such file, or a link or something else stands in its way.
    """
    *parents, file_name = name.split("/")
    folder_handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Opened folder by folder through descriptors, so that a folder that becomes a link meanwhile is refused.
        for parent in parents:
            inner_handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_handle)
            os.close(folder_handle)
            folder_handle = inner_handle
        # O_NONBLOCK: opening a pipe of that name would wait for its writer forever.
        file = FileIO(os.open(file_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_handle))
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise FileNotFoundError(errno.ENOENT, "a link has this name", name) from error
        raise
    finally:
        os.close(folder_handle)
    if not S_ISREG(os.fstat(file.fileno()).st_mode):  # checked on the open file, as the name may change
        file.close()
        raise FileNotFoundError(errno.ENOENT, "not a regular file", name)
    return file
