"""A run that was extended, and killed before its new result, shows that its result is of an earlier round."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import OPTIONS, SMALL_PPO

import flatwater as fw
from flatwater.cli.main import main
from flatwater.rundir.listing import list_runs
from flatwater_watch.errors import FlatwaterError

RECIPES = ["ppo", *(pytest.param(name, marks=pytest.mark.long) for name in ("dqn", "grow", "teach", "erl"))]
OPTIONS = {**OPTIONS, "dqn": ["--threads", "1", "--steps", "64", "--wrapped.steps", "12"]}


@pytest.fixture
def kill_before_result(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Extend a run of one round to two, and kill it when it has scored its second round, before the result's file."""

    def extend_and_kill(run: Path) -> Path:
        with monkeypatch.context() as patch:
            patch.setattr("flatwater.rundir.results.write_object", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                fw.resume(run, 2, quiet=True)
        return run

    return extend_and_kill


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_writes_the_round_of_its_result_and_lists_a_killed_run_as_stopped(
    recipe: str, tmp_path: Path, kill_before_result: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs" / "r"
    assert main(["train", recipe, *OPTIONS[recipe], "--rounds", "1", "--run", str(run), "--quiet"]) == 0
    kill_before_result(run)
    assert json.loads((run / "result.json").read_text())["round"] == 1
    (line,) = list_runs(tmp_path / "runs")
    assert (line.state, line.done, line.result, line.result_round) == ("stopped", 2, {}, 1)
    # As after a copy: the times of the files do not tell which of them is older.
    os.utime(run / "result.json", (4e9, 4e9))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert json.loads((run / "result.json").read_text())["round"] == 2
    (line,) = list_runs(tmp_path / "runs")
    assert (line.state, line.result_round) == ("finished", None)
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", "--holdout"]) == 0
    assert json.loads(capsys.readouterr().out)["round"] == 2
    assert json.loads((run / "holdout.json").read_text())["round"] == 2


def test_list_pages_and_comparison_say_of_which_round_an_earlier_result_is(
    tmp_path: Path, kill_before_result: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = fw.train("ppo", run=tmp_path / "runs" / "killed", rounds=1, **SMALL_PPO).path
    fw.evaluate(run, holdout=True)
    kill_before_result(run)
    whole = fw.train("ppo", run=tmp_path / "runs" / "whole", rounds=2, **SMALL_PPO).path
    page = tmp_path / "runs.html"
    assert main(["runs", str(tmp_path / "runs"), "--page", str(page)]) == 0
    (listed,) = re.findall("(killed|whole): the result is of round 1 of 2", capsys.readouterr().out)
    assert listed == "killed"
    assert page.read_text().count("the result is of round 1 of 2") == 1
    assert main(["report", str(run)]) == main(["report", str(whole)]) == 0
    assert (run / "report.html").read_text().count("Not the newest: the result is of round 1 of 2") == 2  # and holdout
    assert "Not the newest" not in (whole / "report.html").read_text()
    capsys.readouterr()
    assert main(["compare", str(run), str(whole)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "earlier round" in line)
    assert row.split()[-3:] == ["round", "1", "-"]
    assert main(["compare", str(run), str(whole), "--json"]) == 0
    assert [side["result_round"] for side in json.loads(capsys.readouterr().out)["runs"]] == [1, 2]


def test_a_group_of_seeds_goes_on_with_the_seed_that_lacks_its_new_result(
    tmp_path: Path, kill_before_result: Callable[[Path], Path]
) -> None:
    group = fw.train("ppo", run=tmp_path / "group", rounds=1, seeds=[0], **SMALL_PPO).path
    (seed,) = group.glob("seed-*")
    config = (group / "config.toml").read_text()
    (group / "config.toml").write_text(re.sub("^rounds = 1", "rounds = 2", config, flags=re.MULTILINE))
    kill_before_result(seed)
    assert main(["resume", str(group), "--quiet"]) == 0
    assert json.loads((seed / "result.json").read_text())["round"] == 2


def test_a_result_without_a_round_reads_as_before_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    run = fw.train("ppo", run=tmp_path / "run", rounds=1, **SMALL_PPO)
    result = json.loads((run.path / "result.json").read_text())
    (run.path / "result.json").write_text(json.dumps({**result, "round": "two"}))
    with pytest.raises(FlatwaterError, match="round = 'two': expected a whole number"):
        _ = run.result
    del result["round"]
    (run.path / "result.json").write_text(json.dumps(result))
    (line,) = list_runs(tmp_path)
    assert (line.state, line.result_round) == ("finished", None)
    assert main(["resume", str(run.path), "--quiet"]) == 0
    assert "round" not in json.loads((run.path / "result.json").read_text())  # not scored again: the file is newer
