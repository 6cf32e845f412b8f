"""Records of the runs with users' code that this user has begun on this machine: a small file for each run.

Records lie in `$XDG_STATE_HOME/flatwater/begun`, or without that variable in `~/.local/state/flatwater/begun`. The name
of a file is the hash of a run (`trust.trust_key`), and only its existence matters; its content is for people.
"""

import errno
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
"""Most records; above that number the oldest quarter is removed."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_run_recorded(key: str) -> bool:
    """Return whether there is a record that this user has begun the run of this hash; False if none can be read."""
    try:
        with _open_record_folder(make=False) as folder:
            status = os.stat(_record_name(key), dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    # Not a link, and not a file that another user owns or may write to.
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def record_run(key: str, facts: Mapping[str, Any]) -> None:
    """Write the record that the user has begun the run of the hash `key`; `facts` is for people who read the file.

    Raises:
        OSError: there is no folder that is this user's alone, or the record cannot be written.
    """
    content = json.dumps({**facts, "noted": datetime.now(UTC).isoformat(timespec="seconds")}, indent=1).encode()
    with _open_record_folder(make=True) as folder:
        # Under a temporary name first, so that two processes with the same record leave one of both, whole.
        temporary_name = f".{secrets.token_hex(8)}"
        descriptor = os.open(temporary_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content + b"\n")
            os.rename(temporary_name, _record_name(key), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary_name, dir_fd=folder)
            raise
        _remove_oldest(folder)  # last, so that the new record is counted too


def state_folder() -> Path:
    """Return the folder of the records.

    Raises:
        OSError: the user's home folder is unknown.
    """
    state_home = os.environ.get("XDG_STATE_HOME", "")
    try:
        # A relative path is ignored, as the XDG specification asks.
        home = Path(state_home) if Path(state_home).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise FileNotFoundError(
            errno.ENOENT, "there is no home folder. Set XDG_STATE_HOME to another folder"
        ) from error
    return home.joinpath(*RECORD_PATH)


def _record_name(key: str) -> str:
    return f"{key}.json"


@contextmanager
def _open_record_folder(*, make: bool) -> Iterator[int]:
    """Yield a descriptor of the folder of records, so that a link put in the folder's place is never followed.

    Args:
        make: whether to make the folder if it is missing.

    Raises:
        PermissionError: other users own the folder or may write there.
    """
    records_folder = state_folder()
    state_home = records_folder.parent.parent  # the folder above the two names of `RECORD_PATH`
    if make:
        state_home.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state_home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # One name at a time, each opened below the folder before it and never through a link.
        for name in RECORD_PATH:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=descriptor)
            inner_descriptor = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor
            )
            os.close(descriptor)
            descriptor = inner_descriptor
            status = os.fstat(descriptor)
            # The owner of the open folder is checked, not that of a name, which may lead elsewhere by now.
            if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS:
                raise PermissionError(
                    errno.EACCES, "other users own the folder or may write there", str(records_folder)
                )
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_oldest(folder: int) -> None:
    """Remove the oldest quarter of the records if there are too many; `folder` is a descriptor."""
    names = os.listdir(folder)
    if len(names) <= MAXIMUM_RECORDS:
        return
    records = list[tuple[float, str]]()
    for name in names:
        with suppress(OSError):  # another process may have removed it by now
            records.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))
    # By time, the oldest first; three quarters of the maximum stay.
    for _time, name in sorted(records)[: len(records) - MAXIMUM_RECORDS * 3 // 4]:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
