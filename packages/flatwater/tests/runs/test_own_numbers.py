"""Numbers of the user's own: from functions and from infos to every place where numbers go, also after a kill."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heights
import pytest
from small_runs import entries

import flatwater as fw
from flatwater.cli.main import main
from flatwater_watch.errors import ConfigError

Same = Callable[[Path, Path], None]
PPO = ["ppo", "--env", "heights:Hill", "--rounds", "3", "--envs", "3", "--block", "16", "--evaluation.envs", "2"]
PPO += ["--learner.minibatches", "4", "--learner.epochs", "2", "--threads", "1", "--wrapped.steps", "20"]
EVOLVE = ["evolve", "--env", "heights:Slope", "--rounds", "2", "--steps", "24", "--population.size", "2"]
EVOLVE += ["--replay.warmup", "16", "--threads", "1", "--wrapped.steps", "12"]
SETTINGS: dict[str, Any] = {
    "env": "heights:Hill", "rounds": 3, "envs": 3, "block": 16, "evaluation": {"envs": 2, "every": 2}, "threads": 1,
    "learner": {"minibatches": 4, "epochs": 2}, "wrapped": {"steps": 20}, "trackers": (), "quiet": True,
}  # fmt: skip
WANTED = ["--on-episode", "heights:hear_episode", "--info-keys", "is_success", "height"]
OWN = {"info/is_success", "info/height", "mine/length", "mine/share"}


def own_numbers(run: Path) -> list[dict[str, float]]:
    return [
        {name: value for name, value in line.items() if name.startswith(("mine/", "info/"))}
        for line in entries(run / "metrics.jsonl")
    ]


def test_they_reach_file_terminal_tracker_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *PPO, *WANTED, "--on-round", "heights:hear_round", "--run", "run"]) == 0
    said = capsys.readouterr().out
    found = own_numbers(tmp_path / "run")
    assert [set(line) for line in found] == [OWN | {"mine/twice"}] * 3
    assert [line["mine/twice"] for line in found] == [96, 192, 288]
    assert 2 <= found[0]["mine/length"] <= 8
    assert 0 <= found[0]["info/is_success"] <= 1
    assert said.count("mine/twice") == 3
    assert "info/is_success 0." in said
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert b"mine/twice" in events.read_bytes()
    page = fw.TrainedRun(tmp_path / "run").report().read_text()
    assert "Your numbers" in page
    assert all(f"<h4>{name}</h4>" in page for name in OWN)


def test_a_population_reports_its_episodes_too(tmp_path: Path) -> None:
    assert main(["train", *EVOLVE, *WANTED, "--quiet", "--run", "run"]) == 0
    assert [set(line) for line in own_numbers(tmp_path / "run")] == [OWN] * 2


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["--env-workers 2", "--env heights:fleet", "--env heights:fleet --env-workers 2"])
def test_they_are_the_same_from_processes_and_vector_environments(form: str, tmp_path: Path) -> None:
    assert main(["train", *PPO, *WANTED, "--quiet", "--run", "alone"]) == 0
    assert main(["train", *PPO, *WANTED, "--quiet", "--run", "together", *form.split()]) == 0
    assert own_numbers(tmp_path / "together") == own_numbers(tmp_path / "alone")


@pytest.mark.long
def test_they_are_the_same_after_a_stop_within_a_round(tmp_path: Path, same: Same) -> None:
    """Sums of a round are in the state: nothing of it is lost, and no episode counts twice."""
    heard: list[int] = []

    def hear_and_stop(episode: Any) -> None:
        heads_up = len(heard)
        heard.append(episode.seed)
        heights.hear_episode(episode)
        if heads_up == 9:
            signal.raise_signal(signal.SIGTERM)

    def hear(episode: Any) -> None:
        heard.append(episode.seed)
        heights.hear_episode(episode)

    wanted: dict[str, Any] = SETTINGS | {"info_keys": ("height",), "on_round": heights.hear_round}
    whole = fw.train("ppo", run="whole", on_episode=hear, **wanted)
    in_one_go, heard[:] = heard[:], []
    with pytest.raises(SystemExit):
        fw.train("ppo", run="cut", on_episode=hear_and_stop, **wanted)
    assert entries(tmp_path / "cut" / "metrics.jsonl") == [], "the first round had not ended"
    with pytest.raises(ConfigError, match="was begun with a function"):
        fw.resume("cut", quiet=True)
    fw.resume("cut", on_episode=hear, on_round=heights.hear_round, quiet=True)
    assert heard == in_one_go
    same(whole.path, tmp_path / "cut")


def test_what_they_take_is_planned_and_held(tmp_path: Path) -> None:
    assert main(["train", *PPO, *WANTED, "--quiet", "--run", "run"]) == 0
    planned = json.loads((tmp_path / "run" / "plan.json").read_text())["owners"]
    assert planned["logged.own.names"] == 64 * 64
    held = entries(tmp_path / "run" / "ledger.jsonl")[-1]["owned"]
    assert "logged.own.sums" in held
    assert held.items() <= planned.items()


@pytest.mark.long
def test_what_a_callback_raises_finds_the_round_recorded(tmp_path: Path) -> None:
    def fail(round_: Any) -> None:
        round_.log("mine/x", 1)
        raise LookupError

    with pytest.raises(LookupError):
        fw.train("ppo", run="run", on_round=fail, **SETTINGS)
    assert own_numbers(tmp_path / "run") == [{"mine/x": 1.0}]
    assert fw.resume("run", quiet=True).finished


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "--on-round heights:write_metrics",
            r"round.metrics\['mine/x'\] = ...: metrics are read alone. Write round.log",
        ),
        ("--on-round heights:log_text", "log.'mine/x', '3'.: expected a number, got a str"),
        ("--on-round heights:nobody", "on_round = 'heights:nobody': it cannot be imported"),
        (
            "--on-round heights",
            "on_round = 'heights': expected package.module:function of a function that takes a round",
        ),
        ("--on-round heights:hear_later", "got <function hear_later at .*>, whose lines a call does not run"),
        ("--on-round heights:hear_lazily", "got <function hear_lazily at .*>, whose lines a call does not run"),
        ("--on-episode heights:hear_later", "write it with neither async nor yield"),
        ("--on-round heights:patient", "got <heights.PatientListener object at .*>, whose lines a call does not run"),
        ("--on-round heights:log_two_lines", "expected a name in plain text"),
        ("--on-round heights:log_huge", "log.'mine/x', 1000.*: expected a number, got a int"),
        ("--on-round heights:ask_what_is_missing", "return/man: this round has no such number"),
        ("--on-round heights:no_argument", "expected package.module:function of a function that takes a round, got"),
        ("--on-episode heights:log_ours", "names of return/ are Flatwater's. Use another, such as 'mine/mean'"),
        ("--on-episode heights:log_many", "log.'mine/64', ....: a round has room for 64 names"),
        ("--on-episode heights:fail", "on_episode = 'heights:fail': fail.. raised KeyError: . .heights.py, line"),
        ("--info-keys words", "environment heights:Hill: expected a number as 'words' .* got 'high', a str"),
        (
            "--info-keys depth",
            "environment heights:Hill: expected a number as 'depth' .* got 'height', 'is_success', 'w",
        ),
        ("--info-keys height height", "info_keys = .* expected keys of an info in plain text, .*, each once"),
    ],
)
def test_what_cannot_be_logged_is_told(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *PPO, "--run", "run", "--quiet", *option.split()]) == 2
    assert re.search(message, capsys.readouterr().err), message


def test_recipes_without_episodes_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "grow", "--info-keys", "height"]) == 2
    assert "plays no episodes of an environment one by one" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="on_episode"):
        fw.train("grow", on_episode=heights.hear_episode)
    fw.train("ppo", run="run", **SETTINGS)
    with pytest.raises(ConfigError, match="Begin a new run with it"):
        fw.resume("run", 4, on_episode=heights.hear_episode, quiet=True)
