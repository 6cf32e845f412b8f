"""Opens and reads regular files only, up to a maximum size.

To read a pipe may wait for a writer that never comes, and a device such as /dev/zero never ends.
"""

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

from flatwater_watch.units import format_bytes

TEXT_BYTES = 16 << 20
"""Maximum bytes of a file of settings that is read."""
RESULT_BYTES = 256 << 20
"""Maximum bytes of a watch's result that is read."""

_IRREGULAR_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def describe_irregular(mode: int) -> str:
    """Return the kind of a file in words; empty for a regular one."""
    return next((name for has_kind, name in _IRREGULAR_KINDS if has_kind(mode)), "")


def open_regular(path: Path, *, follow_links: bool = True) -> BufferedReader:
    """Open a regular file for reading.

    Args:
        path: path of the file.
        follow_links: whether a link is followed; False where others may write to the folder, and so choose its target.

    Raises:
        OSError: the file is missing, unreadable, or not regular, which `strerror` says.
    """
    return BufferedReader(open_unbuffered_file(path, follow_links=follow_links))


def open_unbuffered_file(path: Path, *, follow_links: bool = True) -> FileIO:
    """Open a regular file for reading in large pieces, without a buffer; else like `open_regular`."""
    return FileIO(_open_regular(path, os.O_RDONLY | (0 if follow_links else os.O_NOFOLLOW)), "rb")


def append_regular(path: Path, *, folder_descriptor: int | None = None) -> FileIO:
    """Open or create a regular file for appending and reading, without a buffer, and without following a link.

    Args:
        path: path of the file.
        folder_descriptor: descriptor of the folder in which the path begins; None for the working folder.

    Raises:
        OSError: the file cannot be opened, or is not regular, which `strerror` says.
    """
    return FileIO(_open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, folder_descriptor), "ab+")


def _open_regular(path: Path, flags: int, folder_descriptor: int | None = None) -> int:
    """Open a regular file with the flags of `os.open`; return its descriptor.

    Raises:
        OSError: the file cannot be opened, is a link that is not followed, or is not regular.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name holds a NUL character", str(path))
    try:
        # O_NONBLOCK, as opening a pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder_descriptor)
    except OSError as fault:
        if fault.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "it is a link, and links are not followed here", str(path)) from fault
        raise
    # By the descriptor, as the path may lead to another file by now.
    kind = describe_irregular(os.fstat(descriptor).st_mode)
    if kind:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, no file", str(path))
    return descriptor


def read_regular(path: Path, maximum: int = TEXT_BYTES, *, follow_links: bool = True) -> bytes:
    """Return all bytes of a regular file; a link is followed if `follow_links` is set.

    Raises:
        OSError: the file cannot be opened, see `open_regular`, or has more than `maximum` bytes.
    """
    with open_regular(path, follow_links=follow_links) as file:
        if os.fstat(file.fileno()).st_size > maximum:  # before any byte is read, as a sparse file may exceed memory
            raise _size_error(path, maximum)
        content = file.read(maximum + 1)  # a byte more than is allowed shows that the file is too large
    if len(content) > maximum:  # the file has grown since
        raise _size_error(path, maximum)
    return content


def _size_error(path: Path, maximum: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {format_bytes(maximum)}", str(path))
