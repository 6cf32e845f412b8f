"""`train erl --env X`: members of DDPG, TD3 and SAC in an environment that Gymnasium names, a class, a world."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.recipes.evolve.run import compose
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError

FILE = Path(__file__).with_name("continuous.py")
TINY = ("--steps", "37", "--population.size", "3", "--net.hidden", "8", "--evaluation.episodes", "2")
TINY += ("--replay.warmup", "24", "--replay.capacity", "200", "--threads", "1", "--trackers")
REACH, WORLD, NAMED = "continuous:Reach", "continuous:ReachWorld", "gymnasium:Pendulum-v1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the file of the environments and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "continuous", raising=False)
    (tmp_path / FILE.name).write_text(FILE.read_text())
    return tmp_path


def train(run: str, rounds: int, *options: str, env: str = REACH) -> dict[str, object]:
    assert main(["train", "erl", "--env", env, *TINY, "--rounds", str(rounds), "--run", run, *options]) == 0
    found: dict[str, object] = json.loads(Path(run, "result.json").read_text())
    return found


def batch(algorithm: str) -> tuple[str, ...]:
    return "--learner.algorithm", algorithm, f"--learner.{algorithm}.batch-size", "16"


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("env", "options"),
    [
        pytest.param(REACH, batch("td3"), id="td3"),
        pytest.param(WORLD, batch("ddpg"), id="ddpg", marks=pytest.mark.slow),
        pytest.param(REACH, batch("sac"), id="sac"),
        pytest.param(
            REACH,
            (*batch("td3"), "--population.envs", "2", "--replay.prioritised"),
            id="prioritised",
            marks=pytest.mark.slow,
        ),
        pytest.param(NAMED, (*batch("td3"), "--learner.micro-batches", "2"), id="named", marks=pytest.mark.slow),
    ],
)
def test_resumed_it_ends_as_if_it_had_not_stopped(env: str, options: tuple[str, ...]) -> None:
    whole = train("whole", 3, *options, env=env)
    train("cut", 1, *options, env=env)
    assert main(["resume", "cut", "--rounds", "3"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == whole
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_what_is_planned_is_held(algorithm: str) -> None:
    options = ["--env", WORLD, *TINY, *batch(algorithm)]
    config = command_class(("train", "evolve")).read("train evolve", options).settings()
    run = compose(config)
    assert nbytes(run.trainer.run) == run.plan.owners


@pytest.mark.long
@pytest.mark.usefixtures("painted")
@pytest.mark.parametrize(
    "algorithm", ["ddpg", pytest.param("td3", marks=pytest.mark.slow), pytest.param("sac", marks=pytest.mark.slow)]
)
def test_it_learns_to_push_a_point_to_zero(algorithm: str) -> None:
    rates = (f"--learner.{algorithm}.actor-lr", "3e-3", f"--learner.{algorithm}.critic-lr", "3e-3")
    more = ("--steps", "250", "--net.hidden", "32", "--replay.capacity", "4000", f"--learner.{algorithm}.gamma", "0.9")
    options = (*batch(algorithm), f"--learner.{algorithm}.batch-size", "64", *rates, *more)
    players = train("run", 3, *options, env=WORLD)["players"]
    assert isinstance(players, dict)
    assert players["champion"]["return"] > -1.5 > players["random"]["return"]
    assert Path("run", "result.png").stat().st_size > 0


@pytest.mark.long
def test_every_command_works_on_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    train("run", 2, *batch("td3"))
    assert main(["evaluate", "run", "--holdout"]) == 0
    assert main(["report", "run"]) == 0
    assert "What was learned" in Path("run", "report.html").read_text()
    assert main(["runs", "."]) == 0
    assert main(["top", "run", "--once"]) == 0
    assert main(["plan", "erl", "--config", "run/config.toml"]) == 0
    assert "continuous:Reach" in capsys.readouterr().out
    policy = fw.load("run")
    one, several = policy.act(np.zeros(1)), policy.act(np.zeros((5, 1)))
    assert one.shape == (1,)
    assert several.shape == (5, 1)
    assert np.allclose(several, one)
    assert -1 <= one[0] <= 2
    with pytest.raises(ConfigError, match=r"obs is an array \[3\], expected \[1\]"):
        policy.act(np.zeros(3))
    assert policy.act({"boat": np.zeros(1)})["boat"] == one  # by agent


def test_python_is_led_to_the_same_recipe() -> None:
    small = {"steps": 10, "net": {"hidden": 8}, "replay": {"warmup": 10, "capacity": 50}, "population": {"size": 2}}
    run = fw.train("erl", run="run", quiet=True, env=WORLD, rounds=1, threads=1, trackers=(), **small)
    assert run.recipe.name == "evolve"
    assert run.finished


def test_the_help_is_that_of_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    for env, seen, unseen in ((REACH, "--population.envs", "--panel"), ("trading", "--panel", "--population.envs")):
        with pytest.raises(SystemExit):
            main(["train", "erl", f"--env={env}", "--help"])
        shown = capsys.readouterr().out
        assert seen in shown
        assert unseen not in shown


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("gymnasium:CartPole-v1", "train ppo"),
        ("continuous:Two", "2 agents"),
        ("continuous:Tokens", "vector"),
        ("continuous:np", "a class"),
        ("nowhere:Env", "'nowhere'"),
        ("elsewhere", "forage, an ID of Gymnasium"),
    ],
)
def test_what_cannot_be_learned_in_is_refused(env: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", *TINY, "--env", env]) == 2
    assert said in capsys.readouterr().err


def test_a_replay_smaller_than_a_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--replay.capacity", "5", "--replay.warmup", "5")
    assert main(["train", "erl", "--env", REACH, "--population.size", "6", *small]) == 2
    assert "at least 6" in capsys.readouterr().err


BROKEN = """
import gymnasium
import numpy as np
from continuous import Reach


class Bare(gymnasium.Env):
    pass


class NoReset(gymnasium.Env):
    observation_space, action_space = Reach.observation_space, Reach.action_space


class Wide(Reach):
    def reset(self, **given):
        return np.zeros(3, np.float32), super().reset(**given)[1]


class Four(Reach):
    def step(self, action):
        return super().step(action)[:4]
"""


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Bare", "Bare is incomplete: 'Bare' object has no attribute 'observation_space'"),
        ("NoReset", "NoReset.reset()"),
        ("Wide", "Wide.reset()"),
        ("Four", "Four.step()"),
    ],
)
def test_an_environment_with_another_interface_is_no_fault_of_ours(
    env: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    Path("broken.py").write_text(BROKEN)
    assert main(["train", "erl", *TINY, "--env", f"broken:{env}", "--quiet"]) == 2
    assert said in capsys.readouterr().err
