"""The objects of a `file://` URL, read as regular files below a folder, by names, never through a link.

Writing goes through the client, as at every other store. Reading does not: the client follows links, and one file whose
name is not text ends its list.
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
    """Name with slashes, from the folder on; bytes that are not text stand in it as surrogates."""
    bytes: int
    modified: datetime


def list_files(folder: Path) -> Iterator[FoundFile]:
    """Yield every regular file below a folder; none where there is no such folder. Links are left out."""
    # A list rather than recursion: how deep folders lie is not ours to say.
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
    """Whether a file has a name that the client gives to unfinished files."""
    return "#" in name and name.rpartition("#")[2].isdigit()


def open_listed(folder: Path, name: str) -> FileIO:
    """Return a regular file that is open to be read.

    Raises:
        FileNotFoundError: there is no such file, or a link or something else stands in its way.
    """
    *parents, file_name = name.split("/")
    folder_handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Name by name through descriptors: a folder that becomes a link meanwhile leads nowhere else.
        for parent in parents:
            inner_handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_handle)
            os.close(folder_handle)
            folder_handle = inner_handle
        # Not blocking, as a pipe of that name would wait for its writer forever.
        file = FileIO(os.open(file_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_handle))
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise FileNotFoundError(errno.ENOENT, "a link has this name", name) from error
        raise
    finally:
        os.close(folder_handle)
    if not S_ISREG(os.fstat(file.fileno()).st_mode):  # asked of what is open
        file.close()
        raise FileNotFoundError(errno.ENOENT, "not a regular file", name)
    return file
