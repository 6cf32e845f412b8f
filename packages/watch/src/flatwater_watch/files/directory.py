"""Whole-object writes to a directory: after a crash a file is there complete, or it is not there.

An object is written to a temporary file in the same folder, flushed to the disk, and renamed to its name; then the
folder is flushed. The writer holds a lock on its temporary file while it lives. The kernel drops the lock when the
process dies, so that `remove_strays` can tell the stray file of a dead writer from a file that is being written.
"""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from stat import S_ISREG

from flatwater_watch.errors import RunError
from flatwater_watch.units import format_bytes

FilePiece = bytes | bytearray | memoryview
"""Bytes, or a view of bytes with another owner."""

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of files that are being written; their names begin with a dot."""

PIECE_BYTES = 4 << 20
"""Bytes written, read or hashed at a time."""

_HELD_FOLDER = re.compile(r"/proc/\d+/fd/\d+")
"""The path of a folder that a process holds open (proc(5)), which stays the same when the folder is renamed."""
_DELETED_SUFFIX = " (deleted)"
"""Suffix that Linux adds to the name of a folder that is gone (proc(5), /proc/PID/fd)."""
_NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)


def expand_home(path: Path | str) -> Path:
    """Return a path that the user gave, with a leading `~` or `~name` as the home folder, as a shell has it.

    The home of an unknown user stays as it is written.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111  (the method of `Path` raises an error for an unknown user)


def write_object(path: Path, content: FilePiece | Iterable[FilePiece]) -> None:
    """Write `content` to the file `path`, whole or not at all, and wait until the disk has it.

    Args:
        path: path of the file. Its folder is created; an existing file is replaced in one step.
        content: bytes, or pieces of them, which are written without being joined.

    Raises:
        RunError: the disk is full, or the folder cannot be written. The temporary file is removed, and an existing
            file at `path` is unchanged.
    """
    pieces = (content,) if isinstance(content, FilePiece) else content
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, pieces)


def replace_whole(path: Path, pieces: Iterable[FilePiece]) -> None:
    """Write the pieces to the file `path` of an existing folder in one step, and wait until the disk has them.

    Raises:
        OSError: the file cannot be written. The temporary file is removed.
    """
    temporary = path.parent / f".{path.name}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
    try:
        # The content first, as the disk may else have the new name before it.
        _write_synced_file(temporary, pieces)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)  # else a crash could undo the rename


def open_at_once(path: Path) -> FileIO:
    """Open a file for reading, without waiting if it is a pipe; the caller checks the kind of file."""
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def read_whole(path: Path, maximum: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: the file cannot be opened or read.
        ValueError: the path is not a regular file, or the file is larger than `maximum` bytes.
    """
    with open_at_once(path) as file:
        status = os.fstat(file.fileno())
        if not S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > maximum:
            raise ValueError(f"it is larger than {format_bytes(maximum)}")
        return file.read(maximum)  # no more, as the file may have grown since its size was read


def _write_synced_file(temporary: Path, pieces: Iterable[FilePiece]) -> None:
    """Write pieces to a new file, under a lock that shows that the writer lives, and wait until the disk has them."""
    with temporary.open("xb") as file:
        # Some network disks have no locks: stray files then stay, which only costs space on the disk.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for piece in pieces:
            # The view is released also if the write fails: the error holds this frame, and Python 3.12.1 crashes where
            # its collector meets a view of a BytesIO in a cycle (gh-111049).
            with memoryview(piece) as view:
                for start in range(0, len(view), PIECE_BYTES):
                    file.write(view[start : start + PIECE_BYTES])
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names of the files in `folder`, so that a crash undoes no rename or removal."""
    _sync_path(folder)


def _sync_path(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until the disk has a file that another process wrote, with its name; or its removal, if it is missing.

    Raises:
        RunError: the folder does not exist, or the disk fails.
    """
    with explain_os_errors(path):
        with suppress(FileNotFoundError):
            _sync_path(path)
        _sync_path(path.parent)


def stray_files(folder: Path, file_name: str = "") -> list[Path]:
    """Return the temporary files that dead writers left in a folder; only those for `file_name` if it is given."""
    if not folder.is_dir():
        return []
    expression = r"\..*\.tmp"
    if file_name:  # as `replace_whole` names them, such as `.run.toml.0f9a1c2e.tmp` for `run.toml`
        expression = rf"\.{re.escape(file_name)}\.[0-9a-f]{{8}}\.tmp"
    pattern = re.compile(expression, re.DOTALL)
    return [path for path in sorted(folder.iterdir()) if pattern.fullmatch(path.name) and _is_abandoned(path)]


def remove_strays(folder: Path, file_name: str = "") -> int:
    """Remove the stray files of a folder (see `stray_files`); return their number."""
    strays = stray_files(folder, file_name)
    with explain_os_errors(folder):
        for path in strays:
            path.unlink(missing_ok=True)
    return len(strays)


def _is_abandoned(path: Path) -> bool:
    """Return whether a temporary file has no living writer that holds its lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back when the file is closed
    except OSError:  # a living writer holds the lock or has just renamed the file, or the disk has no locks
        return False
    return True


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into a `RunError` that names `path` and the remedy.

    Raises:
        RunError: the body has raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise RunError(_write_error_reason(path, error)) from error


@contextmanager
def explain_deleted_folder(held_folder: Path) -> Iterator[None]:
    """Turn a `FileNotFoundError` of the body into a `RunError`, if a folder that is held open was deleted.

    Raises:
        RunError: the folder was deleted, and the body has not found a file.
    """
    try:
        yield
    except FileNotFoundError as error:
        if is_folder_deleted(held_folder):
            raise RunError(_write_error_reason(held_folder, error)) from error
        raise


def current_path(path: Path) -> Path:
    """Return a path by the present name of its folder: `/data/run/log` for `/proc/7/fd/3/log`; else unchanged."""
    match = _HELD_FOLDER.match(str(path))
    if match is None:
        return path
    return Path(match[0]).readlink() / path.relative_to(match[0])


def is_same_folder(path: Path, held_folder: Path) -> bool:
    """Return whether `path` still leads to the folder that is held open."""
    try:
        return path.samefile(held_folder)
    except OSError:  # the path does not exist, or may not be read
        return False


def is_folder_deleted(held_folder: Path) -> bool:
    """Return whether a folder that is held open has no name any more."""
    name = str(held_folder.readlink())
    # The name of an existing folder may end like this as well.
    return name.endswith(_DELETED_SUFFIX) and not is_same_folder(Path(name), held_folder)


def _write_error_reason(path: Path, error: OSError) -> str:
    """Return the reason why a path cannot be written, and what the user can do."""
    held_match = _HELD_FOLDER.match(str(path))  # `/proc/7/fd/3`, a folder that this process holds open
    path = current_path(path)
    if held_match and is_folder_deleted(Path(held_match[0])):
        folder = str(Path(held_match[0]).readlink()).removesuffix(_DELETED_SUFFIX)
        return (
            f"{folder}: this folder was deleted, or moved to another disk, while it was written to, so nothing more "
            "can be saved there. Go on from a copy of it, if there is one."
        )
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE_ERRORS:
        free = format_bytes(shutil.disk_usage(_nearest_existing(path)).free)
        return (
            f"{path}: cannot be written: {reason} ({free} free). What was saved before is untouched. "
            "Free some space, or give a run folder on another disk with --run."
        )
    if error.errno in _READ_ONLY_ERRORS:
        return f"{path}: cannot be written: {reason}. Make the folder writable, or give another one with --run."
    return f"{path}: cannot be written: {reason}. Give another run folder with --run."


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())
