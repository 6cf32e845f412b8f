"""Objects are there whole or not at all, whatever goes wrong while they are written."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import remove_strays, stray_files, sync_file, write_object


def test_writes_pieces_end_to_end_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "object"

    write_object(path, [b"one", memoryview(b"two"), bytearray(b"three")])

    assert path.read_bytes() == b"onetwothree"
    assert list(path.parent.iterdir()) == [path]


def test_what_could_not_be_written_is_given_back(tmp_path: Path) -> None:
    """While the error lives, and so the frames in which it happened."""
    content = BytesIO(b"one")

    def failing() -> Iterator[memoryview]:
        with content.getbuffer() as view:
            yield view
            raise OSError

    with pytest.raises(RunError) as kept:
        write_object(tmp_path / "object", failing())
    content.write(b"longer than before")
    assert kept.value is not None


@settings(max_examples=20, deadline=None)
@given(before=st.binary(max_size=100), after=st.lists(st.binary(max_size=100), max_size=5))
def test_replaces_what_was_there(tmp_path_factory: pytest.TempPathFactory, before: bytes, after: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("replace") / "object"
    write_object(path, before)
    write_object(path, after)
    assert path.read_bytes() == b"".join(after)


def test_an_object_larger_than_a_piece_is_written_whole(tmp_path: Path) -> None:
    content = os.urandom((4 << 20) + 13)
    write_object(tmp_path / "large", [content, b"end"])
    assert (tmp_path / "large").read_bytes() == content + b"end"


def test_a_writer_that_fails_leaves_the_old_object_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "object"
    write_object(path, b"old")

    def failing() -> Iterator[bytes]:
        yield b"new, but only ha"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_object(path, failing())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_and_leaves_the_old_object(tmp_path: Path) -> None:
    """The limit on the size of a file stands in for the disk: the write fails half-way, as on a full one."""
    path = tmp_path / "object"
    write_object(path, b"old")
    program = """
import resource, sys
from pathlib import Path
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import write_object
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    write_object(Path(sys.argv[1]), bytes(3 << 20))
except RunError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True).stdout

    assert str(path) in told
    assert "free" in told
    assert "--run" in told
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunError, match=r"file/object: .*another run folder"):
        write_object(tmp_path / "file" / "object", b"content")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="folder writable"):
        write_object(tmp_path / "object", b"content")


def test_only_files_of_dead_writers_are_strays(tmp_path: Path) -> None:
    dead, alive, other = tmp_path / ".a.0.tmp", tmp_path / ".b.1.tmp", tmp_path / "object"
    for path in (dead, alive, other):
        path.write_bytes(b"half")
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert stray_files(tmp_path) == [dead]
        assert remove_strays(tmp_path) == 1
    assert sorted(tmp_path.iterdir()) == [alive, other]


def test_an_object_in_the_making_is_not_a_stray(tmp_path: Path) -> None:
    seen: list[list[Path]] = []

    def looking() -> Iterator[bytes]:
        yield b"content"
        seen.append(stray_files(tmp_path))
        assert len(list(tmp_path.iterdir())) == 1

    write_object(tmp_path / "object", looking())
    assert seen == [[]]


def test_a_folder_that_does_not_exist_has_no_strays(tmp_path: Path) -> None:
    assert stray_files(tmp_path / "nowhere") == []


def test_who_reads_the_old_object_while_it_is_replaced_reads_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "object"
    write_object(path, b"old content")
    with path.open("rb") as held:
        write_object(path, b"new")
        assert held.read() == b"old content"


def test_a_file_that_another_process_has_removed_needs_no_waiting(tmp_path: Path) -> None:
    """As of two that want a lock at once: who is late clears away what the other has just written."""
    sync_file(tmp_path / "gone")
    with pytest.raises(RunError, match="No such file or directory"):
        sync_file(tmp_path / "no folder" / "gone")
