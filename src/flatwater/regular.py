"""Reading a file that the user names: a regular one only, and no more of it than fits.

A pipe waits for a writer that never comes, and a device such as /dev/zero never ends.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from flatwater.units import format_bytes

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


def irregular(mode: int) -> str:
    """What is no regular file, in words; empty where it is one."""
    return next((name for holds, name in _KINDS if holds(mode)), "")


def open_regular(path: Path) -> BufferedReader:
    """The file, opened for reading.

    Raises:
        OSError: it is missing, unreadable, or something else than a regular file, which `strerror` says.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name holds a NUL character", str(path))
    # Without waiting: opening a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = irregular(os.fstat(descriptor).st_mode)
    if kind:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, no file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most: int = TEXT_BYTES) -> bytes:
    """The whole file.

    Raises:
        OSError: it cannot be opened, see `open_regular`, or has more than `most` bytes.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {format_bytes(most)}", str(path))
    return content
