"""The run folder: never written over, never shared, and told in words when it cannot be written."""

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.rundir.layout import create_folder, hold_lock, open_folder
from flatwater.rundir.listing import list_runs
from flatwater_watch.errors import RunError

Train = Callable[..., Path]
Same = Callable[[Path, Path], None]


@contextmanager
def mount_on(folder: Path, *options: str) -> Iterator[None]:
    """Something mounted on a folder, where this process may mount."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this process may not mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def disk(folder: Path, size: str) -> object:
    return mount_on(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def test_a_folder_that_holds_a_run_is_left_alone(
    train: Train, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("run", "--rounds", "1")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["train", "erl", *tiny, "--run", str(run)]) == 2
    assert f"flatwater resume {run}`" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(RunError, match=rf"--run {re.escape(str(tmp_path))}: .*other things"):
        create_folder(tmp_path, "erl")


def test_no_run_is_made_among_the_checkpoints_of_another(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.toml").touch()
    with pytest.raises(RunError, match="checkpoints of another run"):
        create_folder(tmp_path / "run" / "checkpoints" / "inner", "erl")
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert create_folder(tmp_path / "checkpoints" / "inner", "erl").path.is_dir(), "a folder of that name, of no run"


def test_what_a_run_killed_in_its_first_moment_leaves_is_as_good_as_empty(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.toml.123").touch()
    assert create_folder(tmp_path, "erl").path == tmp_path


def test_runs_without_a_name_never_share_a_folder() -> None:
    made = [create_folder(None, "erl").path for _ in range(3)]
    assert len({*made}) == 3
    assert all(path.parent == Path("runs") and not any(path.iterdir()) for path in made)
    assert [path.name.rsplit("-", 1)[1] for path in made] == ["1", "2", "3"]


def test_a_file_in_the_way_is_told(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for run in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["train", "erl", *tiny, "--run", str(run)]) == 2
        said = capsys.readouterr().err
        assert f"--run {run}: " in said
        assert "another folder" in said
    assert (tmp_path / "file").read_text() == "mine"


def test_one_run_is_trained_by_one_process(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "1")
    with hold_lock(open_folder(run)):
        assert [line.state for line in list_runs(run.parent)] == ["training"]
        assert main(["resume", str(run), "--rounds", "2"]) == 2
        assert "another process" in capsys.readouterr().err
    assert [line.state for line in list_runs(run.parent)] == ["finished"]


def test_the_lock_goes_with_its_process(train: Train) -> None:
    folder = open_folder(train("run", "--rounds", "1"))
    child = os.fork()
    if child == 0:
        os.open(folder.lock, os.O_RDWR)
        fcntl.flock(os.open(folder.lock, os.O_RDWR), fcntl.LOCK_EX)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with hold_lock(folder):
        assert [line.state for line in list_runs(folder.path.parent)] == ["training"]


@pytest.mark.long
def test_a_read_only_folder_is_told_and_can_be_evaluated(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root writes through permissions, so the folder is mounted read-only."""
    run, shown = train("run", "--rounds", "1"), tmp_path / "shown"
    with mount_on(shown, "--bind", str(run)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(shown)], check=True)
        assert main(["resume", str(shown), "--rounds", "2"]) == 2
        said = capsys.readouterr().err
        assert str(shown) in said
        assert "Read-only file system" in said
        assert main(["evaluate", str(shown)]) == 0
        assert main(["evaluate", str(shown), "--holdout"]) == 2
        assert "holdout" in capsys.readouterr().err


def resumed_with_room(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Resume, or begin again where not even the configuration found room."""
    subprocess.run(["mount", "-o", "remount,size=30m", str(folder)], check=True)
    assert main(["resume", str(folder / "run")]) == 0
    capsys.readouterr()


@pytest.mark.long
@pytest.mark.usefixtures("painted")
def test_a_full_disk_loses_nothing(
    tiny: list[str], train: Train, same: Same, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, folder = train("whole", "--rounds", "3"), tmp_path / "disk"
    with disk(folder, "300k"):
        assert main(["train", "erl", *tiny, "--rounds", "3", "--run", str(folder / "run")]) == 2
        said = capsys.readouterr().err
        assert "No space left on device" in said
        assert "Free some space" in said
        assert "Traceback" not in said
        resumed_with_room(folder, capsys)
        same(whole, folder / "run")


@pytest.mark.usefixtures("painted")
@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [8, 20, 40, 60, 80, 120, 160, 200, 240, 280, 340, 400, 440, 480])
def test_wherever_the_disk_is_full_nothing_is_lost(
    kilobytes: int,
    tiny: list[str],
    train: Train,
    same: Same,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, folder = train("whole", "--rounds", "3"), tmp_path / "disk"
    with disk(folder, f"{kilobytes}k"):
        code = main(["train", "erl", *tiny, "--rounds", "3", "--run", str(folder / "run")])
        said = capsys.readouterr().err
        assert code == (2 if said else 0)
        assert "Traceback" not in said
        if code:
            assert "No space left on device" in said
        if not (folder / "run" / "config.toml").exists():
            return  # not even the configuration found room: there is nothing to go on with
        resumed_with_room(folder, capsys)
        same(whole, folder / "run")


def test_runs_are_listed_with_their_state(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("done", "--rounds", "2")
    stopped = train("stopped", "--rounds", "2")
    (stopped / "result.json").unlink()
    begun = train("begun", "--rounds", "2")
    (begun / "metrics.jsonl").write_text("")
    (tmp_path / "website").mkdir()
    (tmp_path / "website" / "config.toml").write_text('title = "not a run"\n')
    capsys.readouterr()
    assert main(["runs", str(tmp_path), "--json"]) == 0
    found = {run["name"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    assert {name: run["state"] for name, run in found.items()} == {
        "done": "finished",
        "stopped": "stopped",
        "begun": "stopped",
    }
    assert [found[name]["done"] for name in ("done", "stopped", "begun")] == [2, 2, 0]
    assert found["begun"]["score"] is None
    files = [path for path in (tmp_path / "done").rglob("*") if path.is_file()]
    assert found["done"]["bytes"] == sum(path.stat().st_size for path in files)
    result = json.loads((tmp_path / "done" / "result.json").read_text())
    assert (found["done"]["trainer"], found["done"]["measured"]) == ("erl", "return")
    assert found["done"]["score"] == result["traders"]["champion"]["total_return"]
    last = json.loads((stopped / "metrics.jsonl").read_text().splitlines()[-1])
    assert (found["stopped"]["measured"], found["stopped"]["score"]) == ("champion", last["validation/champion"])

    assert main(["runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any("begun" in line and "0/2" in line for line in lines)


def test_no_runs_and_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "flatwater train ppo" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "nowhere")]) == 2
    assert re.search("nowhere: .*not exist", " ".join(capsys.readouterr().err.split()))


@pytest.mark.parametrize("command", ["resume", "evaluate", "checkpoints"])
def test_a_folder_that_is_no_run_is_told(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        assert main([command, str(path)]) == 2
        assert str(path) in capsys.readouterr().err


def test_a_run_of_an_unknown_trainer_is_refused(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = train("done", "--rounds", "1") / "config.toml"
    config.write_text(config.read_text().replace('trainer = "erl"', 'trainer = "sail"'))
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "done")]) == 2
    assert "trainer = 'sail': no recipe 'sail': expected evolve" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("name", "is_loaded"), [("p.safetensors", True), ("p.pt2", False), ("p.onnx", False)])
def test_an_exported_policy_is_told_from_a_run(tmp_path: Path, name: str, is_loaded: bool) -> None:  # noqa: FBT001
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(RunError, match="exported policy: give the folder of its run") as refused:
        open_folder(tmp_path / name)
    assert ("flatwater.load" in str(refused.value)) == is_loaded


@pytest.mark.parametrize("name", ["first", "frist", "runs/frist"])
def test_the_run_that_was_meant_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.toml").write_text("")
    with pytest.raises(RunError, match=r"The folder does not exist\. Did you mean runs/first\?"):
        open_folder(Path(name))
