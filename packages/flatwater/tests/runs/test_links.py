"""A link in a run's folder leads nobody who works there to a file elsewhere: not to append, not to send."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flatwater.metrics.jsonl import JsonlSink
from flatwater.mirror.sender import small_files
from flatwater.rundir.events import RunLog
from flatwater.rundir.holdout_looks import log_look
from flatwater.rundir.layout import RunFolder, hold_lock
from flatwater_watch.errors import FlatwaterError
from flatwater_watch.events.event import Event

MINE = b"what nobody may change\n"


def lock(folder: RunFolder) -> None:
    with hold_lock(folder):
        pass


def log(folder: RunFolder) -> None:
    said = RunLog(folder.log)
    said.on_event(Event("note", "said", {}))
    said.close()


def record(folder: RunFolder) -> None:
    sink = JsonlSink(folder.metrics, resume_at=3)
    sink.write(4, {"loss": 1.0})
    sink.close()


def look(folder: RunFolder) -> None:
    log_look(folder, 3)


WRITERS: dict[str, Callable[[RunFolder], None]] = {
    ".lock": lock,
    "run.log": log,
    "metrics.jsonl": record,
    "holdout_looks.jsonl": look,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("target", ["mine", "missing", "pipe", "folder"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str, target: str) -> None:
    (tmp_path / "mine").write_bytes(MINE)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(tmp_path / target)
    if name == "run.log":  # what is said is on the console too
        WRITERS[name](RunFolder(run))
    else:
        with pytest.raises(FlatwaterError, match="a link"):
            WRITERS[name](RunFolder(run))
    assert (tmp_path / "mine").read_bytes() == MINE
    assert not (tmp_path / "missing").exists()
    assert [*(tmp_path / "folder").iterdir()] == []


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    make(tmp_path / name)
    if name == "run.log":
        WRITERS[name](RunFolder(tmp_path))
    else:
        with pytest.raises(FlatwaterError, match=name):
            WRITERS[name](RunFolder(tmp_path))
    assert not (tmp_path / name).is_file()


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_the_run_are_written(tmp_path: Path, name: str) -> None:
    WRITERS[name](RunFolder(tmp_path))
    WRITERS[name](RunFolder(tmp_path))
    assert (tmp_path / name).is_file()


def test_a_mirror_is_sent_no_link(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "tensorboard").mkdir(parents=True)
    (tmp_path / "key").write_text("secret")
    (run / "result.json").symlink_to(tmp_path / "key")
    (run / "tensorboard" / "events").symlink_to(tmp_path / "key")
    (run / "plan.json").write_text("{}")
    assert [path.name for path in small_files(RunFolder(run))] == ["plan.json"]
