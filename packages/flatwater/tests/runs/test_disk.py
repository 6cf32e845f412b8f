"""A disk that is full or turns read-only amid a run: told in a sentence, the newest checkpoint whole, resumed after."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_runs import OPTIONS

from flatwater.checkpoints.reader import newest_intact
from flatwater.cli.main import main

Same = Callable[[Path, Path], None]
ROUNDS = "3"
KINDS = pytest.mark.parametrize(
    "kind", ["erl", pytest.param("grow", marks=pytest.mark.slow), pytest.param("teach", marks=pytest.mark.slow)]
)
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def may_mount() -> bool:
    """Whether this machine lets anybody mount a disk that only they see."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not may_mount(), reason="no disk can be mounted here")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["erl", "grow", "teach"])
def test_a_full_disk_ends_the_run_and_nothing_is_lost(kind: str, tmp_path: Path, same: Same) -> None:
    program = Path(__file__).parent / "on_a_small_disk.py"
    command = [*UNSHARE, sys.executable, str(program), str(tmp_path), kind, ROUNDS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "No space left on device" in ended.stderr
    assert "Free some space" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert f"flatwater resume {tmp_path / 'disk' / 'run'}" in ended.stdout
    said: list[str] = []
    newest = newest_intact(tmp_path / "full" / "checkpoints", say=said.append)
    assert newest is not None
    assert newest.manifest.round >= 1
    assert said == [], "the newest checkpoint is whole"
    whole = tmp_path / "whole"
    assert main(["train", kind, *OPTIONS[kind], "--rounds", ROUNDS, "--run", str(whole)]) == 0
    same(whole, tmp_path / "resumed")


FAULTS: dict[str, bool] = {}
"""Folder -> whether the system refuses to write there. A hook of the interpreter cannot be taken away again."""


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    """Answer as a file system does that was mounted read-only."""
    write = (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES) or event in {
        "os.mkdir",
        "os.rename",
        "os.remove",
    }
    if write and any(on and folder in os.path.realpath(str(arguments[0])) for folder, on in FAULTS.items()):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if not FAULTS:
        sys.addaudithook(refuse)
    FAULTS[str(folder)] = True
    try:
        yield
    finally:
        FAULTS[str(folder)] = False


@pytest.mark.slow
@KINDS
def test_a_folder_that_turns_read_only_ends_the_run_and_nothing_is_lost(
    kind: str, tmp_path: Path, same: Same, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert main(["train", kind, *OPTIONS[kind], "--rounds", "3", "--run", str(whole)]) == 0
    assert main(["train", kind, *OPTIONS[kind], "--rounds", "1", "--run", str(run)]) == 0
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    with read_only(run):
        assert main(["resume", str(run), "--rounds", "3"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Read-only file system" in said
    assert before == {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    assert main(["resume", str(run), "--rounds", "3"]) == 0
    same(whole, run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["erl", "grow", "teach"])
def test_a_folder_that_turns_read_only_while_a_checkpoint_is_saved(
    kind: str, tmp_path: Path, same: Same, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert main(["train", kind, *OPTIONS[kind], "--rounds", "3", "--run", str(whole)]) == 0
    begun: list[bool] = []

    def turn(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and str(arguments[1]).endswith("000001.000000.json") and not begun:
            begun.append(True)
            FAULTS[str(run)] = True

    with read_only(run):
        FAULTS[str(run)] = False
        sys.addaudithook(turn)
        assert main(["train", kind, *OPTIONS[kind], "--rounds", "3", "--run", str(run)]) == 2
    assert begun
    assert "Read-only file system" in " ".join(capsys.readouterr().err.split())
    assert newest_intact(run / "checkpoints", say=lambda _: None) is not None
    assert main(["resume", str(run)]) == 0
    same(whole, run)
