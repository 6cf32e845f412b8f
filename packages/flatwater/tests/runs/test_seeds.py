"""Runs with several seeds: each is the run of that seed, and together they go on where they were."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from small_runs import TINY_PPO, assert_same, newest_leaves

import flatwater as fw
from flatwater.api import resolve_config
from flatwater.cli.main import main
from flatwater.rundir.listing import list_runs
from flatwater.rundir.seeds import read_seeds
from flatwater.runs.seeds import create_group
from flatwater_watch.errors import ConfigError, RunError

SMALL = [*TINY_PPO, "--rounds", "2", "--trackers", "--quiet"]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of PPO, of the seeds 3 and 4."""
    folder = tmp_path_factory.mktemp("groups") / "group"
    assert main(["train", "ppo", *SMALL, "--seed", "3", "--seeds", "2", "--run", str(folder)]) == 0
    return folder


def test_each_is_the_run_of_its_seed(group: Path, tmp_path: Path) -> None:
    assert main(["train", "ppo", *SMALL, "--seed", "4", "--run", "alone"]) == 0
    assert_same(group / "seed-4", tmp_path / "alone")
    assert newest_leaves(group / "seed-3") != newest_leaves(group / "seed-4")


@pytest.mark.long
def test_lists_have_them_by_group(group: Path) -> None:
    assert {line.name for line in list_runs(group.parent)} == {"group/seed-3", "group/seed-4"}
    assert {line.name for line in list_runs(group)} == {"seed-3", "seed-4"}


@pytest.mark.long
def test_more_rounds_are_for_all(group: Path, tmp_path: Path) -> None:
    more = shutil.copytree(group, tmp_path / "more")
    mirror = tmp_path / "mirror"
    assert main(["resume", str(more), "--rounds", "3", "--mirror", mirror.as_uri(), "--quiet"]) == 0
    assert [line.done for line in list_runs(more)] == [3, 3]
    assert {str(file.parent.relative_to(mirror)) for file in mirror.rglob("config.toml")} == {
        "more/seed-3",
        "more/seed-4",
    }


def test_the_run_that_was_stopped_last_goes_on_with_its_group(group: Path, tmp_path: Path) -> None:
    stopped = shutil.copytree(group, tmp_path / "runs" / "stopped")
    (stopped / "seed-3" / "result.json").unlink()
    shutil.rmtree(stopped / "seed-4")
    assert main(["resume", "--quiet"]) == 0
    assert [line.state for line in list_runs(stopped)] == ["finished", "finished"]


def test_the_environment_may_be_an_object(group: Path) -> None:
    settings: dict[str, Any] = {"config": group / "config.toml", "env": lambda: gymnasium.make("CartPole-v1")}
    runs = fw.train("ppo", run="group", seeds=[4], quiet=True, **settings)
    assert (runs.finished, [run.path.name for run in runs.runs]) == (True, ["seed-4"])


@pytest.mark.long
def test_from_python_the_seeds_can_be_named(group: Path) -> None:
    told = list[tuple[int, int]]()
    runs = fw.train(
        "ppo",
        config=group / "config.toml",
        run="group",
        seeds=[4, 9],
        on_round=lambda r: told.append(r.number),
        quiet=True,
    )
    assert (runs.finished, told) == (True, [1, 2, 1, 2])
    assert_same(group / "seed-4", runs.runs[0].path)
    assert [run.path.name for run in runs.resume(3, quiet=True).runs] == ["seed-4", "seed-9"]


@pytest.mark.long
def test_a_group_killed_in_its_second_run_goes_on_as_a_whole(group: Path, tmp_path: Path) -> None:
    program = "import sys; from flatwater.cli.main import main; main(sys.argv[1:])"
    words = ["train", "ppo", *SMALL, "--seed", "3", "--seeds", "2", "--run", "killed"]
    process = subprocess.Popen([sys.executable, "-c", program, *words])
    # Until its second run has a checkpoint: a kill in the midst of it.
    while not (begun := list(tmp_path.glob("killed/seed-4/checkpoints/*.json"))) and process.poll() is None:
        time.sleep(0.01)
    assert begun
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert main(["resume", "killed", "--quiet"]) == 0
    for run in ("seed-3", "seed-4"):
        assert_same(group / run, tmp_path / "killed" / run)


def test_what_takes_one_run_asks_for_one(group: Path) -> None:
    with pytest.raises(RunError, match="seed-4"):
        fw.load(group)


def test_a_damaged_list_of_seeds_is_told_by_the_name_of_its_folder(
    group: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = shutil.copytree(group, tmp_path / "damaged")
    (damaged / "seeds.json").write_text("[3, 1e999]")
    capsys.readouterr()
    assert main(["resume", str(damaged), "--quiet"]) == 2
    assert f"error: {damaged / 'seeds.json'}: is damaged" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("seeds", [[], [1, 1], 0, 99_999_999_999, range(3000), 2.0, [0.5], "12"])
def test_seeds_are_numbers_each_once(seeds: object) -> None:
    with pytest.raises(ConfigError, match="seeds = "):
        fw.train("ppo", seeds=seeds, run="none", quiet=True)  # type: ignore[call-overload]
    assert not Path("none").exists()


@pytest.mark.parametrize("seeds", [np.int64(2), np.arange(3, 5), (3, 4), range(3, 5)])
def test_seeds_may_be_numbers_of_numpy(seeds: Any) -> None:
    """An array ended in a TypeError of json, behind a folder that was made already."""
    config = resolve_config("ppo", None, {"seed": 3, "threads": 1})
    assert read_seeds(create_group(config, seeds, Path("group"))) == [3, 4]
