"""PPO in any environment: one that Gymnasium names, a class of a user's, a world; a choice from a list, or numbers."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flatwater.api import load
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.config.mappings import to_mapping
from flatwater.nets.actor_critic import symlog
from flatwater.recipes.ppo.run import compose
from flatwater.state.tree import nbytes
from flatwater.sweeps import trial
from flatwater.trainers.evaluator import EpisodeEvaluator
from flatwater_watch.errors import ConfigError

FILE = Path(__file__).with_name("own_world.py")
TINY = ("--envs", "4", "--block", "16", "--evaluation.envs", "3", "--evaluation.every", "2", "--threads", "1")
TINY += ("--trackers",)
SHORT = ("--wrapped.steps", "12")
"""No environment of the file has longer episodes; without, a held-out world of them is stepped 1,000 times."""
ENVS = {
    "named": ("--env", "gymnasium:CartPole-v1"),
    "numbers": ("--env", "gymnasium:Pendulum-v1"),
    "own": ("--env", "own_world:Corridor", *SHORT),
    "own numbers": ("--env", "own_world:Aim", *SHORT),
    "own choices": ("--env", "own_world:Locks", *SHORT),
    "own tokens": ("--env", "own_world:Tokens", *SHORT, "--wrapped.form", "tokens", "--policy.rows", "64"),
    "own world": ("--env", "own_world:Pairs"),
    "own masks": ("--env", "own_world:Doors", *SHORT, "--policy.memory", "4"),
    "masks of lists": ("--env", "own_world:Shifts"),
    "with a memory": ("--env", "own_world:Pairs", "--policy.memory", "8", "--learner.unroll", "4"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the file of the environments and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_world", raising=False)
    (tmp_path / FILE.name).write_text(FILE.read_text())
    return tmp_path


def train(run: str, rounds: int, *options: str) -> dict[str, object]:
    assert main(["train", "ppo", *TINY, "--rounds", str(rounds), "--run", run, *options]) == 0
    found: dict[str, object] = json.loads(Path(run, "result.json").read_text())
    return found


QUICK = ("own choices", "own tokens", "with a memory", "own masks", "masks of lists")


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "env", [pytest.param(ENVS[name], id=name, marks=() if name in QUICK else pytest.mark.slow) for name in ENVS]
)
def test_resumed_it_ends_as_if_it_had_not_stopped(env: tuple[str, ...]) -> None:
    env = (*env, "--learner.epochs", "2")
    whole = train("whole", 3, *env)
    train("cut", 1, *env)
    assert main(["resume", "cut", "--rounds", "3"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == whole
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]


@pytest.mark.long
def test_runs_are_compared_and_exported() -> None:
    for seed in ("0", "1"):
        train(seed, 1, *ENVS["own choices"], "--seed", seed)
    assert main(["compare", "0", "1"]) == 0
    assert main(["export", "1", "--to", "policy.safetensors"]) == 0
    seen = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert load("1").act(seen).shape == (5, 2)
    assert np.array_equal(load("policy.safetensors").act(seen), load("1").act(seen))


def test_a_result_is_played_no_longer_than_its_episodes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of a last step, so that 1,000 are planned for; its episodes have at most 12."""
    run = compose(command_class(("train", "ppo")).read("train ppo", [*TINY, "--env", "own_world:Corridor"]).settings())
    run.begin_()
    played, play_ = list[str](), EpisodeEvaluator.play_

    def count(evaluator: EpisodeEvaluator, name: str, number: int, seeds: Any = None) -> None:
        played.append(name)
        play_(evaluator, name, number, seeds)

    monkeypatch.setattr(EpisodeEvaluator, "play_", count)
    assert run.score(holdout=False)["players"].keys() == {*played}
    assert len(played) <= 2 * 12 < run.trainer.evaluator.steps


@pytest.mark.long
def test_a_trial_of_a_sweep_is_a_run_in_it() -> None:
    config = command_class(("train", "ppo")).read("train ppo", [*TINY, *ENVS["own choices"], "--rounds", "2"])
    checked = trial.prepare(to_mapping(config.settings()))
    assert trial.train(checked["config"], Path("trial")) == {"finished": True, "exit_code": 0}


def numbers_of(run: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_an_episode_of_cartpole_is_as_long_as_its_return() -> None:
    train("run", 4, *ENVS["named"])
    rounds = [row for row in numbers_of("run") if "return/mean" in row]
    assert [row["episode/length"] for row in rounds] == [row["return/mean"] for row in rounds]
    assert rounds
    evaluated = [row["round"] for row in numbers_of("run") if "train/clip_fraction" in row]
    assert evaluated == [2, 4], "rounds with an evaluation"


@pytest.mark.long
@pytest.mark.parametrize("env", [ENVS["named"], ENVS["with a memory"], ENVS["own masks"]])
def test_actions_are_clipped_where_the_policy_has_moved(env: tuple[str, ...]) -> None:
    """A policy that stays where it was clips nothing, and one that has gone far away clips much."""
    for run, rate, least, most in (("still", "1e-9", 0.0, 0.0), ("gone", "0.9", 0.2, 1.0)):
        train(run, 1, *env, "--learner.lr", rate, "--evaluation.every", "1")
        assert least <= numbers_of(run)[0]["train/clip_fraction"] <= most


@pytest.mark.slow
def test_it_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.toml").write_text("[learner.lr]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n")
    more = (*ENVS["own choices"], "--rounds", "2", "--space", "space.toml", "--trials", "2", "--run", "s")
    assert main(["sweep", "ppo", *TINY, *more]) == 0
    assert "learner.lr" in capsys.readouterr().out


COMPILES = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, while it loads its compiler
]


@pytest.mark.parametrize("env", [pytest.param(ENVS["named"], marks=COMPILES)])
def test_compiled_and_resumed_it_ends_as_if_it_had_not_stopped(env: tuple[str, ...]) -> None:
    test_resumed_it_ends_as_if_it_had_not_stopped((*env, "--learner.compile"))


@pytest.mark.parametrize("env", [pytest.param(ENVS[name], marks=COMPILES) for name in ("named", "numbers")])
def test_a_compiled_update_is_the_same_function(env: tuple[str, ...]) -> None:
    found = {}
    for name, options in {"eager": (), "compiled": ("--learner.compile",)}.items():
        train(name, 1, *env, "--learner.epochs", "1", *options)
        found[name] = json.loads(Path(name, "metrics.jsonl").read_text().splitlines()[0])
    learned = [key for key in found["eager"] if key.startswith("train/") and key != "train/sps"]
    assert [found["compiled"][key] for key in learned] == pytest.approx(
        [found["eager"][key] for key in learned], rel=1e-4
    )


ONE_UPDATE = ("--learner.epochs", "1", "--learner.minibatches", "1")
"""A2C is PPO with one update of a block; the first one is then the last, after which the block is absorbed."""


@pytest.mark.parametrize(
    "env", [ENVS["numbers"], ENVS["own tokens"], ENVS["with a memory"], ENVS["own masks"], ONE_UPDATE]
)
def test_what_is_planned_is_held(env: tuple[str, ...]) -> None:
    config = command_class(("train", "ppo")).read("train ppo", [*TINY, *env]).settings()
    run = compose(config)
    assert nbytes(run.trainer.run) == run.plan.owners


@pytest.mark.few(1)
@pytest.mark.parametrize("env", [ENVS["named"], ENVS["own masks"]])
def test_with_one_update_of_a_block_it_is_planned_and_trained(env: tuple[str, ...]) -> None:
    assert main(["plan", "ppo", *TINY, *env, *ONE_UPDATE]) == 0
    assert train("one", 2, *env, *ONE_UPDATE)["players"]


def test_statistics_are_those_of_the_blocks_and_stand_still_in_an_evaluation() -> None:
    config = command_class(("train", "ppo")).read("train ppo", [*TINY, *ENVS["own masks"]]).settings()
    trainer = compose(config).trainer
    statistics, rollout = trainer.run.learner.statistics, trainer.run.rollout["obs"]
    for phase in trainer.phases:
        before = {name: tensor.clone() for name, tensor in statistics.items()}
        if phase.name == "update":
            rollout[3, 1] = torch.nan  # what is no number is left out
        for number in range(phase.steps()):
            phase.step_(number)
        if phase.name != "update":
            assert all(torch.equal(tensor, before[name]) for name, tensor in statistics.items())
    assert statistics["obs.count"] == rollout[..., 0].numel() - 1
    torch.testing.assert_close(statistics["obs.mean"], symlog(rollout).nanmean((0, 1)))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("env", "rounds", "least"),
    [
        ("own_world:Corridor", 20, 0.9),
        ("own_world:Doors", 20, 0.55),
        ("own_world:Shifts", 20, 4.0),
        pytest.param("own_world:Locks", 30, 7.0, marks=pytest.mark.slow),
        pytest.param("own_world:Aim", 60, -1.5, marks=pytest.mark.slow),
        pytest.param("own_world:Pairs", 25, 4.5, marks=pytest.mark.slow),
    ],
)
def test_it_learns(env: str, rounds: int, least: float) -> None:
    learner = ("--block", "64", "--learner.lr", "3e-3", "--evaluation.envs", "16", "--evaluation.every", str(rounds))
    players = train("run", rounds, "--env", env, *SHORT, *learner)["players"]
    assert isinstance(players, dict)
    assert players["policy"]["return"] > least > players["random"]["return"]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("nowhere:Env", "'nowhere'"),
        ("own_world:np", "a class"),
        ("own_world:Tokens", 'wrapped.form = "tokens"'),
        ("gymnasium:Nothing-v9", "Nothing"),
        ("elsewhere", "forage, an ID of Gymnasium"),
    ],
)
def test_what_is_no_environment_is_refused(env: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", *TINY, "--env", env]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("own_world:Stuck", "agent 0 of environment 0 nothing to choose from list 1"),
        ("own_world:Forgetful", "Forgetful: info['action_mask']"),
    ],
)
def test_masks_that_say_nothing_are_refused(env: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", *TINY, "--env", env, "--run", "run"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_teacher_that_shows_what_is_illegal_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--envs", "2", "--block", "16", "--learner.minibatches", "1", "--evaluation.envs", "2", "--threads", "1")
    world = ("--world", "own_world:Doors", "--teacher", "own_world:Careless")
    assert main(["train", "teach", *small, *world, "--trackers", "--run", "run"]) == 2
    assert "the teacher chose 2 from list 0 for agent 0" in " ".join(capsys.readouterr().err.split())


def test_a_trained_policy_chooses_what_is_legal() -> None:
    train("run", 1, *ENVS["masks of lists"])
    policy = load("run")
    obs, legal = np.eye(4, dtype=np.float32)[[0, 1, 2]], np.zeros((3, 5), np.bool_)
    legal[:, [1, 2]] = True
    legal[2, 4], legal[2, 2] = True, False
    assert policy.act(obs, legal).tolist() == [[1, 0], [1, 0], [1, 2]]
    policy.begin()
    assert policy.act(obs[0], legal[2]).tolist() == [1, 2]
    policy.begin()
    with pytest.raises(ConfigError, match=r"legal.* \[5\].*\[3, 5\]|legal.*\[3, 5\].* \[5\]"):
        policy.act(obs, legal[0])
    assert main(["export", "run", "--to", "policy.onnx"]) == 2
