"""Runs of teaching: the same contract, commands and files as the others, and a teacher that must keep its pace."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import TINY_TEACH, entries

from flatwater.cli.main import main
from flatwater.memory.planner import Plan
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.reports.page import run_page
from flatwater.reports.picture import draw_run
from flatwater.reports.records import read_run
from flatwater.rundir.records import read_plan

pytest.importorskip("mettagrid", reason="mettagrid has wheels for Python 3.11 and 3.12 alone")

PROGRAM = Path(__file__).parent / "slowing.py"


def test_the_default_needs_no_package_that_some_python_lacks() -> None:
    defaults = TeachRunConfig()
    assert (defaults.world, defaults.teacher) == ("BabyAI-GoToRedBall-v0", "babyai")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of four blocks, trained to its end."""
    folder = tmp_path_factory.mktemp("teach") / "run"
    assert main(["train", "teach", *TINY_TEACH, "--rounds", "4", "--run", str(folder)]) == 0
    return folder


def test_what_is_planned_is_held(run: Path) -> None:
    plan = read_plan(run / "plan.json")
    assert isinstance(plan, Plan)
    for line in entries(run / "ledger.jsonl"):
        assert line["owned_bytes"] == plan.total_bytes
        assert line["envs"] == 4


@pytest.mark.long
def test_what_does_not_fit_says_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "teach", "--envs", "4096", "--block", "512", "--budget", "1GiB"]) == 3
    said = capsys.readouterr().out
    assert "it does not fit" in said
    assert "block = 256: rollout would take" in said


def test_each_round_has_its_profile_its_pace_and_its_memory(run: Path) -> None:
    for line in entries(run / "metrics.jsonl"):
        assert all(line[f"profile/{part}_us"] > 0 for part in ("env", "teacher", "policy", "store", "update"))
        parts = sum(line[f"profile/{part}_us"] for part in ("env", "teacher", "policy", "store", "update"))
        assert line["train/sps"] == pytest.approx(1e6 / parts)
        assert line["system/rss_MB"] > 0
        assert line["system/gpu_memory_allocated_MB"] == 0
        assert line["agent_steps"] == 16 * line["round"]


def test_a_run_leaves_its_result_its_lessons_and_its_picture(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert set(result["players"]) == {"student", "teacher", "random"}
    assert (result["trainer"], result["split"], result["agent_steps"]) == ("teach", "held-out", 64)
    last = entries(run / "lessons.jsonl")[-1]
    assert [len(last[name]) for name in ("seed", "steps", "return")] == [2] * 3
    assert last["steps"] == [4, 4], "16 steps are two episodes of 6 and 4 of the next"
    assert (run / "result.png").read_bytes()[:4] == b"\x89PNG"


def test_a_teacher_by_chance_is_no_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "teach", *TINY_TEACH, "--rounds", "1", "--teacher", "random", "--run", str(tmp_path / "run")]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "PPO has weight 0 in all of the 16 " in said
    assert "by chance" in said
    assert "of the teacher" not in said.partition("held-out episodes")[2]
    assert "of_teacher" not in json.loads((tmp_path / "run" / "result.json").read_text())["players"]["student"]


def test_evaluating_again_gives_the_result(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "result.json").read_text())


def test_the_holdout_has_other_episodes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--holdout", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["first_seed"] > json.loads((run / "result.json").read_text())["first_seed"] + result["episodes"]
    assert len(entries(run / "holdout_looks.jsonl")) == 1


def test_the_tables_name_who_played_and_what_a_step_takes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run)]) == 0
    said = capsys.readouterr().out
    assert "held-out episodes of 2 agents, 6 steps" in said
    assert [line.split()[0] for line in said.splitlines() if line.split()[:1] and line.split()[0] in _PLAYERS] == [
        "student", "teacher", "random",
    ]  # fmt: skip
    assert main(["runs", str(run.parent), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    result = json.loads((run / "result.json").read_text())
    assert (listed["trainer"], listed["score"]) == ("teach", result["players"]["student"]["return"])
    assert main(["top", str(run), "--once"]) == 0
    assert "block 4/4" in capsys.readouterr().out


_PLAYERS = {"student", "teacher", "random"}


def test_a_page_has_the_lesson_and_where_a_steps_time_goes(run: Path) -> None:
    made = run_page(read_run(run))
    assert "Trading" not in made
    for said in ("agrees with teacher", "µs an agent step", "teacher", "student"):
        assert said in made


def test_blocks_without_a_profile_are_left_out_of_page_and_picture(run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    lines = entries(run / "metrics.jsonl")
    for empty in (1, len(lines)):
        kept = [
            {k: None if k.startswith("profile/") and n < empty else v for k, v in line.items()}
            for n, line in enumerate(lines)
        ]
        (copied / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
        draw_run(copied)
        made = run_page(read_run(copied))
        assert ("µs an agent step" in made) == (empty == 1)
        assert ">nan<" not in made


def test_a_run_resumed_within_an_episode_goes_on_bit_for_bit(
    run: Path, tmp_path: Path, same: Callable[[Path, Path], None]
) -> None:
    """After one block of 4 steps an episode of 6 is under way: its world is played up to there again."""
    halved = tmp_path / "halved"
    assert main(["train", "teach", *TINY_TEACH, "--rounds", "1", "--run", str(halved)]) == 0
    assert main(["resume", str(halved), "--rounds", "4"]) == 0
    same(run, halved)


@pytest.mark.slow
def test_the_student_of_a_run_teaches_another(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "taught"
    options = [*TINY_TEACH, "--rounds", "1", "--teacher", f"run:{run}", "--run", str(folder)]
    assert main(["train", "teach", *options]) == 0
    assert json.loads((folder / "result.json").read_text())["teacher"] == f"run:{run}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "teacher"),
    [
        ("gymnasium:BabyAI-GoToRedBallNoDists-v0", "babyai"),
        pytest.param("pettingzoo:mpe2.simple_spread_v3", "random", marks=pytest.mark.slow),
    ],
)
def test_other_worlds_are_taught_in_and_resumed(
    world: str, teacher: str, tmp_path: Path, same: Callable[[Path, Path], None]
) -> None:
    options = [*TINY_TEACH, "--world", world, "--teacher", teacher, "--wrapped.steps", "6"]
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    assert main(["train", "teach", *options, "--rounds", "2", "--run", str(whole)]) == 0
    assert main(["train", "teach", *options, "--rounds", "1", "--run", str(halved)]) == 0
    assert main(["resume", str(halved), "--rounds", "2"]) == 0
    same(whole, halved)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--world", "chess"], "world = 'chess': .* forage, "),
        (["--teacher", "socrates"], "teacher = 'socrates': .* search, "),
        (["--teacher", "babyai"], "babyai"),
        (["--teacher", "run:nowhere"], "nowhere"),
        (["--block", "5"], r"block = 5: .*learner\.unroll \(2\)"),
        (["--learner.minibatches", "7"], r"learner\.minibatches = 7: .* 8, such as 4"),
        (["--foraging.size", "4"], r"foraging\.size = 4: "),
        (["--world", "gymnasium:Nothing-v0"], "Nothing"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    assert main(["train", "teach", *TINY_TEACH, *options, "--run", str(folder)]) == 2
    assert re.search(told, " ".join(capsys.readouterr().err.split()))
    assert not folder.exists()


@pytest.mark.slow
def test_a_teacher_that_becomes_slower_is_named_before_step_1500(tmp_path: Path) -> None:
    """One map for all environments that is never reset: what it takes to ask it grows with each step."""
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = entries(tmp_path / "run" / "findings.jsonl")
    slowdowns = [each for each in found if each["verdict"] == "slowdown"]
    assert slowdowns, "nothing was told"
    assert "teacher" in slowdowns[0]["owner"]
    assert slowdowns[0]["round"] * 16 < 1500
