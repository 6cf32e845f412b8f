"""What is no regular file is refused before it is read, and none is read beyond its measure."""

import os
import socket
from pathlib import Path

import pytest

from flatwater.regular import open_regular, read_regular


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
def test_what_never_ends_or_never_begins_is_refused(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket has 108 bytes at most
    path = Path(kind)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(kind)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match=f"it is a {kind}, no file|No such device"):
        open_regular(path)
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_file_is_read_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert read_regular(path, most=10) == b"0123456789"
    with pytest.raises(OSError, match="more than 9 B"):
        read_regular(path, most=9)
    with pytest.raises(OSError, match="NUL"):
        read_regular(Path("a\0b"))
