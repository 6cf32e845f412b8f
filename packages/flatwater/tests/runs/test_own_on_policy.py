"""An on-policy algorithm of somebody's own is a loss in a file: `ppo` trains it, and every command treats it as PPO."""

import json
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flatwater as fw
from flatwater.algorithms.on_policy_config import BlockAlgorithmConfig, PpoLearnerConfig
from flatwater.cli.main import command_class, main
from flatwater.config.mappings import from_mapping
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.ppo.run import compose
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError

FILES = [Path(__file__).with_name(name) for name in ("reinforce.py", "penalty.py")]
SMALL = ("--envs", "4", "--block", "16", "--evaluation.envs", "2", "--evaluation.every", "2", "--threads", "1")
SMALL += ("--wrapped.steps", "20", "--trackers")
OWN = ("--learner.algorithm", "reinforce:REINFORCE")
WRONG = """
from dataclasses import replace

import torch
from penalty import PENALTY
from reinforce import REINFORCE, loss

from flatwater.algorithms import Algorithm


def rows(settings, policy, value, batch):
    return loss(settings, policy, value, batch) | {"policy_loss": policy.log_prob(batch["action"])}


def still(settings, policy, value, batch):
    return {name: number.detach() for name, number in loss(settings, policy, value, batch).items()}


def raises(settings, policy, value, batch):
    return {"loss": batch["advantages"].mean()}


def endless(settings, policy, value, batch):
    return loss(settings, policy, value, batch) | {"loss": (value - value).sum() / 0}


ROWS = replace(REINFORCE, loss=rows)
STILL = replace(REINFORCE, loss=still)
RAISES = replace(REINFORCE, loss=raises)
ENDLESS = replace(REINFORCE, loss=endless)
NUMBER = replace(REINFORCE, loss=lambda settings, policy, value, batch: value.mean())
UNTOLD = replace(REINFORCE, metrics=("policy_loss",))
SHORT = replace(REINFORCE, loss=lambda settings, value: value)
FLAT = replace(REINFORCE, targets=lambda settings, block: (block["reward"].flatten(), block["reward"]))
ONE = replace(REINFORCE, targets=lambda settings, block: block["reward"])
NAMES = replace(REINFORCE, metrics=("grad_norm",))
PART = replace(REINFORCE, targets=3)
SETTINGS = replace(REINFORCE, settings=dict)
OFF_POLICY = Algorithm(print, print, print)
HALF = replace(PENALTY, next_state=None)
COLUMN = replace(PENALTY, state=lambda settings: {"returns": torch.zeros(2)})
FLOAT = replace(PENALTY, state=lambda settings: {"penalty": 1.0})
GONE = replace(PENALTY, next_state=lambda settings, state, block, means: {"penalty": state["penalty"]})
GROWS = replace(PENALTY, next_state=lambda settings, state, block, means: {name: block["reward"] for name in state})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's folder, with his files and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("reinforce", "penalty", "wrong"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for file in FILES:
        shutil.copy(file, tmp_path)
    Path("wrong.py").write_text(WRONG)


def read_settings(*options: str) -> PpoRunConfig:
    settings: PpoRunConfig = command_class(("train", "ppo")).read("train ppo", [*SMALL, *options]).settings()
    return settings


def test_resumed_it_ends_as_if_it_had_not_stopped(same: Callable[[Path, Path], None]) -> None:
    own = (
        "--learner.algorithm",
        "reinforce:GREEDY",
        "--learner.own.minibatches",
        "2",
        "--learner.lr-schedule",
        "linear",
    )
    for name, rounds in (("whole", "3"), ("parted", "1")):
        more = ("--learner.schedule-rounds", "3", "--rounds", rounds, "--run", name)
        assert main(["train", "ppo", *SMALL, *own, *more]) == 0
    assert main(["resume", "parted", "--rounds", "3"]) == 0
    same(Path("whole"), Path("parted"))
    rows = [json.loads(line) for line in Path("whole/metrics.jsonl").read_text().splitlines()]
    assert all({"train/policy_loss", "train/critic_loss", "train/grad_norm"} <= row.keys() for row in rows)
    assert ["train/moved" in row for row in rows] == [False, True, False]
    assert rows[1]["train/moved"] > 0
    assert not any("kl" in name or "clip" in name for row in rows for name in row)


def test_its_state_is_planned_saved_and_recorded(same: Callable[[Path, Path], None]) -> None:
    own = ("--learner.algorithm", "penalty:PENALTY")
    run = compose(read_settings(*own))
    assert nbytes(run.trainer.run) == run.plan.owners
    assert {name: [*tensor.shape] for name, tensor in run.trainer.run.learner.algorithm_state.items()} == {
        "penalty": [],
        "scale": [2],
    }
    for name, rounds in (("whole", "3"), ("parted", "1")):
        assert main(["train", "ppo", *SMALL, *own, "--rounds", rounds, "--run", name]) == 0
    assert main(["resume", "parted", "--rounds", "3"]) == 0
    same(Path("whole"), Path("parted"))
    rows = [json.loads(line) for line in Path("whole/metrics.jsonl").read_text().splitlines()]
    weight = 1.0
    for row in rows:
        weight *= 2 if row["train/kl"] > 0.01 else 0.5
        assert row["train/penalty"] == weight
        assert "train/scale" not in row


@pytest.mark.long
def test_every_command_treats_it_as_ppo() -> None:
    assert main(["train", "ppo", *SMALL, *OWN, "--rounds", "1", "--run", "run", "--learner.own.critic", "0.5"]) == 0
    config = Path("run/config.toml").read_text()
    assert '\nalgorithm = "reinforce:REINFORCE"\n' in config
    assert "[learner.own]" in config
    assert "\ncritic = 0.5\n" in config
    assert json.loads(Path("run/result.json").read_text())["algorithm"] == "reinforce:REINFORCE"
    for command in (["evaluate", "run"], ["report", "run"], ["top", "run", "--once"], ["runs", "."]):
        assert main(command) == 0
    assert main(["plan", "ppo", "--config", "run/config.toml"]) == 0
    assert main(["fork", "run", "--rounds", "2", "--run", "other", "--learner.own.lr", "1e-4"]) == 0
    assert main(["export", "run", "--to", "policy.safetensors"]) == 0
    seen = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    assert np.array_equal(fw.load("policy.safetensors").act(seen), fw.load("run").act(seen))


@pytest.mark.parametrize(
    "more", [(), ("--policy.memory", "4", "--learner.unroll", "4", "--learner.own.minibatches", "2")]
)
def test_what_is_planned_is_held(more: tuple[str, ...]) -> None:
    run = compose(read_settings(*OWN, *more))
    assert nbytes(run.trainer.run) == run.plan.owners


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("nowhere:X", r"learner\.algorithm = 'nowhere:X': .*No module named 'nowhere'"),
        ("reinforce:X", "no attribute 'X'"),
        ("wrong:OFF_POLICY", "an OnPolicyAlgorithm, which `flatwater train ppo` trains, .* type Algorithm"),
        ("wrong:PART", r"targets: .* 3"),
        ("wrong:SETTINGS", r"settings: .*OnPolicySettings"),
        ("wrong:NAMES", r"metrics: .*grad_norm"),
        ("wrong:ROWS", r"loss: policy_loss: .*0-d.* \[1, 64\].*\(wrong\.py, line 11, in rows\)"),
        ("wrong:STILL", r"loss: .*gradient.*\(wrong\.py, line 15, in still\)"),
        ("wrong:RAISES", r"loss\(\) raised KeyError: 'advantages' \(wrong\.py, line 20, in raises\)"),
        ("wrong:SHORT", r"loss\(\) raised TypeError.*loss\(settings, policy, value, batch\)"),
        ("wrong:NUMBER", r"loss: .*dict.* tensor \[\]"),
        ("wrong:UNTOLD", "loss: .*loss, policy_loss: .*got loss, policy_loss, critic_loss"),
        ("wrong:FLAT", r"targets: advantage: .*\[16, 4\].*\[64\]"),
        ("wrong:ONE", r"targets: .*advantage and returns.* \[16, 4\]"),
        ("wrong:HALF", "state and next_state: expected both"),
        ("wrong:COLUMN", r"state: expected a name .*returns.*got 'returns'"),
        ("wrong:FLOAT", "state: penalty: expected a tensor of floats, got a float"),
        ("wrong:GONE", "next_state: expected .* penalty, scale, got penalty "),
        ("wrong:GROWS", r"next_state: penalty: expected a tensor \[\] of torch.float32, got a tensor \[16, 4\]"),
        ("ppoo", r'learner\.algorithm = \'ppoo\': .*"ppo", or package\.module:NAME.*"ppo"\?'),
    ],
)
def test_what_is_no_algorithm_is_refused_by_its_field(
    algorithm: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "ppo", *SMALL, "--learner.algorithm", algorithm]) in {1, 2}
    assert re.search(said, " ".join(capsys.readouterr().err.split()))


def test_a_loss_that_is_never_finite_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", *SMALL, "--learner.algorithm", "wrong:ENDLESS", "--rounds", "2", "--run", "run"]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"learner\.algorithm = 'wrong:ENDLESS': loss: .*NaN.*\(wrong\.py, line 23, in endless\)", said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--learner.own.lr", "0"), r"learner\.own\.lr = 0"),
        (("--learner.own.critic", "-1"), r"learner\.own\.critic = -1"),
        (("--learner.own.minibatches", "5"), r"learner\.own\.minibatches = 5: .*64"),
        (("--learner.target-kl", "0.1"), r"learner\.target_kl = 0\.1: .*no kl"),
    ],
)
def test_settings_out_of_bounds_are_named(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "ppo", *SMALL, *OWN, *options]) == 2
    assert re.search(said, " ".join(capsys.readouterr().err.split()))


def test_settings_of_another_algorithm_are_not_lost_in_silence() -> None:
    Path("own.toml").write_text(
        '[learner]\nalgorithm = "reinforce:REINFORCE"\ngrad_clip = 2.0\n[learner.own]\nlr = 0.5\n'
    )
    Path("ppo.toml").write_text("[learner]\nclip = 0.5\n")
    with pytest.raises(ConfigError, match=r"learner\.own\.lr = 0\.5: .*'ppo'"):
        read_settings("--config", "own.toml", "--learner.algorithm", "ppo")
    with pytest.raises(ConfigError, match=r"learner\.clip = 0\.5: .*'reinforce:REINFORCE'"):
        read_settings("--config", "ppo.toml", *OWN)
    read = read_settings("--config", "own.toml", "--learner.own.epochs", "7").learner
    assert (read.own.lr, read.own.epochs, read.grad_clip) == (0.5, 7, 2.0)
    Path("kept.toml").write_text("[learner]\ngrad_clip = 2.0\n")
    assert read_settings("--config", "kept.toml", *OWN).learner.grad_clip == 2.0


def test_its_settings_are_sent_to_other_processes() -> None:
    mapping = {"algorithm": "reinforce:REINFORCE", "own": {"lr": 0.25}}
    config = from_mapping(BlockAlgorithmConfig, mapping, "here")
    again: BlockAlgorithmConfig = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.own.lr == 0.25


def test_a_name_alone_is_no_algorithm_of_ones_own() -> None:
    with pytest.raises(ConfigError, match=r"learner\.algorithm = 'reinforce:REINFORCE'"):
        PpoLearnerConfig(algorithm="reinforce:REINFORCE")
