"""Runs with users' code that this user has begun on this machine: a small file each, in the user's own folder.

Records lie in `$XDG_STATE_HOME/flatwater/begun`, `~/.local/state/flatwater/begun` without it. The name of a file is a
hash of what it stands for, so only its existence is asked; its content is for people.
"""

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RECORD_PATH = ("flatwater", "begun")
RECORD_PLACES = "$XDG_STATE_HOME/flatwater/begun, ~/.local/state without it"
"""Place of the records, for messages."""
MAXIMUM_RECORDS = 4096
"""Most runs that are remembered; above that the oldest quarter goes."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def was_begun(key: str) -> bool:
    """Return whether the user has begun the run of this hash; False if nothing can be read."""
    try:
        with _open_record_folder(make=False) as folder:
            record = os.stat(_record_name(key), dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    # A link, or a file that others may write or have written, is not this user's record.
    return stat.S_ISREG(record.st_mode) and record.st_uid == os.geteuid() and not record.st_mode & _WRITABLE_BY_OTHERS


def note_begun(key: str, about: Mapping[str, Any]) -> None:
    """Remember that the user has begun the run of this hash.

    Raises:
        OSError: there is no folder that is this user's alone, or the record cannot be written.
    """
    content = json.dumps({**about, "noted": datetime.now(UTC).isoformat(timespec="seconds")}, indent=1).encode()
    with _open_record_folder(make=True) as folder:
        # A name of its own and then the right name: two processes that note the same leave one of both, whole.
        temporary_name = f".{secrets.token_hex(8)}"
        handle = os.open(temporary_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content + b"\n")
            os.rename(temporary_name, _record_name(key), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary_name, dir_fd=folder)
            raise
        _remove_oldest(folder)  # last, so that the new record is among those that are counted


def state_folder() -> Path:
    """Return the folder of the records.

    Raises:
        OSError: nobody knows the user's home.
    """
    state_home = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(state_home) if Path(state_home).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise FileNotFoundError(2, "there is no home folder. Set XDG_STATE_HOME to another folder") from error
    return home.joinpath(*RECORD_PATH)


def _record_name(key: str) -> str:
    return f"{key}.json"


@contextmanager
def _open_record_folder(*, make: bool) -> Iterator[int]:
    """Yield a descriptor of the folder: work through it is done there, whoever puts a link in its place.

    Raises:
        PermissionError: other users own the folder or may write there.
    """
    records_folder = state_folder()
    if make:
        records_folder.parent.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(records_folder.parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # One name at a time, each below the descriptor before and never through a link.
        for name in RECORD_PATH:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=handle)
            inner_handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            os.close(handle)
            handle = inner_handle
            folder_stat = os.fstat(handle)
            # Asked of what is open, not of a name that may change.
            if folder_stat.st_uid != os.geteuid() or folder_stat.st_mode & _WRITABLE_BY_OTHERS:
                raise PermissionError(13, "other users own the folder or may write there", str(records_folder))
        yield handle
    finally:
        os.close(handle)


def _remove_oldest(folder: int) -> None:
    """Remove the oldest where there are too many; a file that another process removes meanwhile is gone as well."""
    names = os.listdir(folder)
    if len(names) <= MAXIMUM_RECORDS:
        return
    records = list[tuple[float, str]]()
    for name in names:
        with suppress(OSError):
            records.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))
    for _, name in sorted(records)[: len(records) - MAXIMUM_RECORDS * 3 // 4]:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
