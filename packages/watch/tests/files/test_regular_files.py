"""What is no regular file is refused before it is read, and none is read beyond its measure."""

import os
import socket
from pathlib import Path

import pytest

from flatwater_watch.files.regular_files import append_regular, open_regular, read_regular


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
    with pytest.raises(OSError, match=f"a {kind}, no file|No such device"):
        open_regular(path)
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_file_is_read_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert read_regular(path, maximum=10) == b"0123456789"
    with pytest.raises(OSError, match="more than 9 B"):
        read_regular(path, maximum=9)
    with pytest.raises(OSError, match="NUL"):
        read_regular(Path("a\0b"))


def test_a_link_is_followed_only_where_the_user_named_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"content"
    for opens in (lambda path: open_regular(path, follow_links=False), append_regular):
        with pytest.raises(OSError, match="a link"):
            opens(tmp_path / "link")


def test_a_file_is_appended_to_and_made_where_it_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for _ in range(2):
        with append_regular(path) as file:
            file.write(b"line\n")
    assert path.read_bytes() == b"line\n" * 2
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe"):
        append_regular(tmp_path / "pipe")
