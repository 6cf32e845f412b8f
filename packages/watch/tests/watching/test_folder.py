"""The folder of a runner: private, gone at the end, and read as a stranger's."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import MAIN, environment

from flatwater_watch.agent.spool import WORKER, unwatched_summary
from flatwater_watch.faces import runner_folder as folders
from flatwater_watch.faces.runner_folder import read_notes, read_sentences, read_summaries, watch_folder
from flatwater_watch.faces.summary_masking import mask_values, masked_summary

OLD = time.time() - 100


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of our own."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(place))
    monkeypatch.setattr(folders.tempfile, "tempdir", str(place))
    return place


def leave_folder(place: Path, name: str, *, at: float = OLD) -> Path:
    """A folder with a note, as a runner leaves it that was killed."""
    found = place / f"flatwater-watch-{name}"
    found.mkdir(mode=0o700)
    (found / "1.json").write_text("{}")
    os.utime(found, (at, at))
    return found


def test_what_a_killed_runner_has_left_is_removed_by_the_next_one(temporary: Path) -> None:
    stale = leave_folder(temporary, "stale")
    with watch_folder() as made:
        assert made.parent == temporary
        assert made.stat().st_mode & 0o777 == 0o700
        assert not stale.exists()
    assert list(temporary.iterdir()) == []


def test_nothing_else_is_removed(temporary: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "precious").touch()
    (temporary / "flatwater-watch-link").symlink_to(others)
    (temporary / "flatwater-watch-file").write_text("a file")
    kept = [leave_folder(temporary, "new", at=time.time()), leave_folder(temporary, "held")]
    if os.geteuid() == 0:
        kept.append(leave_folder(temporary, "theirs"))
        os.chown(kept[-1], 65534, 65534)
    held = os.open(kept[1], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    with watch_folder():
        pass
    os.close(held)
    assert all(folder.exists() for folder in kept)
    assert (others / "precious").exists()
    assert (temporary / "flatwater-watch-link").is_symlink()
    assert (temporary / "flatwater-watch-file").exists()


@pytest.fixture
def strange(tmp_path: Path) -> Iterator[Path]:
    """A folder that somebody has filled to do harm."""
    place = tmp_path / "strange"
    place.mkdir()
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(unwatched_summary("secret", "secret")))
    for ending in ("json", "worker.json", "fault", "unseen"):
        (place / f"link.{ending}").symlink_to(secret)
        os.mkfifo(place / f"pipe.{ending}")
        (place / f"folder.{ending}").mkdir()
        (place / f"device.{ending}").symlink_to("/dev/zero")
        with (place / f"huge.{ending}").open("wb") as huge:
            huge.truncate(1 << 33)
    yield place
    (place / "huge.json").unlink()


def test_no_link_is_followed_no_pipe_waited_for_and_no_file_read_without_end(strange: Path) -> None:
    assert read_summaries(strange) == read_summaries(strange, WORKER) == []
    for kind in ("json", "fault", "unseen"):
        texts = [text for text, _ in read_notes(strange, f".{kind}")]
        assert max(map(len, texts)) <= folders.NOTE_BYTES
        assert not any("secret" in text for text in texts)


def test_a_folder_of_ever_more_files_is_read_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAXIMUM_NOTES", 5)
    for number in range(20):
        (tmp_path / f"{number}.fault").write_text(f"sentence {number}")
    assert len(read_sentences(tmp_path, "fault")) == 5


@pytest.mark.parametrize("name", unwatched_summary("", ""))
@pytest.mark.parametrize("value", [None, "text", [1], {"a": 1}, -1.5, True])
def test_what_is_no_summary_is_no_result(tmp_path: Path, name: str, value: object) -> None:
    good = unwatched_summary("", "")
    (tmp_path / "1.json").write_text(json.dumps(good | {name: value}))
    found = read_summaries(tmp_path)
    assert [type(each[name]) for each in found] in ([], [type(good[name])], [type(value)])
    if name not in {"program", "unseen"} and type(value) is not type(good[name]) and not isinstance(value, int | float):
        assert found == []


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "null", "3", '"x"', "{}", "[{}]", '{"seconds": NaN}'])
def test_what_is_no_json_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.json").write_text(text)
    assert read_summaries(tmp_path) == []


def test_secrets_are_masked_in_texts_and_names_and_numbers_stay() -> None:
    words = ["train.py", "--password=hunter2", "--token", "hunter2", "https://u:hunter2@h/", "--lr", "3e-4"]
    told = masked_summary(
        unwatched_summary("", "at https://u:hunter2@h/") | {"held": {"C['https://u:hunter2@h/']": [1, 2.5, None]}},
        words,
    )
    assert "hunter2" not in json.dumps(told)
    assert told["program"] == "train.py --password=*** --token *** https://***@h/ --lr 3e-4"
    assert mask_values(told) == told
    assert next(iter(told["held"].values())) == [1, 2.5, None]


PROGRAM = "import sys, time\nprint('ready', flush=True)\nsys.stdin.read(1)\n"


def test_a_runner_that_is_killed_leaves_nothing_when_its_program_has_ended(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    line = [sys.executable, "-c", MAIN, "run", "--", sys.executable, "train.py", "--password=hunter2"]
    with subprocess.Popen(
        line,
        cwd=tmp_path,
        env=environment(TMPDIR=str(temporary)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdin is not None
        assert runner.stdout.readline() == b"ready\n"
        assert list(temporary.glob("flatwater-watch-*/claim"))
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        runner.stdin.write(b"x")
        runner.stdin.close()
        runner.stdout.read()  # the program has ended
    assert list(temporary.iterdir()) == []
