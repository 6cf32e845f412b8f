"""Reading a file that the user names: a regular one only, and no more of it than fits.

A pipe waits for a writer that never comes, and a device such as /dev/zero never ends.
"""

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

from flatwater_watch.units import format_bytes

TEXT_BYTES = 16 << 20
"""The most that is read of a file of settings."""
RESULT_BYTES = 256 << 20
"""The most that is read of what a watch has written."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def describe_irregular(mode: int) -> str:
    """What is no regular file, in words; empty where it is one."""
    return next((name for holds, name in _KINDS if holds(mode)), "")


def file_exists(path: str) -> bool:
    """Whether a user's word names something that is there; `~` stands for a home."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long a name, an unknown user, a NUL character
        return False


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """The file, opened for reading.

    Args:
        path: of the file.
        follow: a link that has its name. Not in folders that others may have filled: a link there leads to what they
            want to be read, sent or appended to.

    Raises:
        OSError: it is missing, unreadable, or something else than a regular file, which `strerror` says.
    """
    return BufferedReader(open_unbuffered(path, follow=follow))


def open_unbuffered(path: Path, *, follow: bool = True) -> FileIO:
    """The same, for who reads it in large pieces."""
    return FileIO(_open_regular(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), "rb")


def append_regular(path: Path, *, within: int | None = None) -> FileIO:
    """The file, opened to append to and to read, without a buffer; made where it is not there. Follows no link.

    Args:
        path: of the file.
        within: a descriptor of the folder in which the path begins; None for the working folder.

    Raises:
        OSError: it cannot be opened, or is something else than a regular file, which `strerror` says.
    """
    return FileIO(_open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, within), "ab+")


def _open_regular(path: Path, flags: int, within: int | None = None) -> int:
    """A descriptor of a regular file. Nothing is waited for: a pipe's reader or writer may never come."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name holds a NUL character", str(path))
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=within)
    except OSError as fault:
        if fault.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "it is a link, and links are not followed here", str(path)) from fault
        raise
    kind = describe_irregular(os.fstat(descriptor).st_mode)
    if kind:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, no file", str(path))
    return descriptor


def read_regular(path: Path, most: int = TEXT_BYTES, *, follow: bool = True) -> bytes:
    """The whole file; `follow` as of `open_regular`.

    Raises:
        OSError: it cannot be opened, see `open_regular`, or has more than `most` bytes.
    """
    with open_regular(path, follow=follow) as file:
        if os.fstat(file.fileno()).st_size > most:  # a hole may be larger than memory
            raise _too_large(path, most)
        content = file.read(most + 1)
    if len(content) > most:  # it grows
        raise _too_large(path, most)
    return content


def _too_large(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {format_bytes(most)}", str(path))
