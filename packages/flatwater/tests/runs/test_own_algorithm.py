"""An algorithm of somebody's own is one file, named by where it is: every command treats it as those that ship."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flatwater as fw
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.cli.main import command_class, main
from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.sweeps.trial import prepare, train
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import ConfigError

HERE = Path(__file__).parent
OWN = ("--learner.algorithm", "regression:REGRESSION")
SMALL = ("--env", "continuous:Reach", "--steps", "37", "--population.size", "3", "--net.hidden", "8")
SMALL += ("--evaluation.episodes", "2", "--replay.warmup", "24", "--replay.capacity", "200", "--threads", "1")
SMALL += ("--trackers", *OWN)
WRONG = """
from dataclasses import replace

import torch
from regression import REGRESSION, build

from flatwater.algorithms.api import Algorithm


def narrow(config, nets, setting):
    members = build(config, nets, setting)
    members.actor = members.actor[:1]
    return members


NARROW = replace(REGRESSION, build=narrow)
NOTHING = replace(REGRESSION, build=lambda *_: None)
FLAT = replace(REGRESSION, explorer=lambda *_: lambda *_: torch.zeros(3))
SETTINGS = replace(REGRESSION, settings=dict)
NUMBER = replace(REGRESSION, make_update=3)
"""
LACKING = "from flatwater.algorithms.api import Algorithm\nA = Algorithm(make_update=print, explorer=print)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's folder, with files of his and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for path in (HERE / "regression.py", HERE.parent / "recipes" / "continuous.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
        shutil.copy(path, tmp_path)


@pytest.mark.slow
def test_it_evolves_in_any_environment(same: Callable[[Path, Path], None], capsys: pytest.CaptureFixture[str]) -> None:
    for name, rounds in (("whole", "3"), ("parted", "1")):
        more = ("--rounds", rounds, "--run", name, "--learner.own.lr", "3e-3")
        assert main(["train", "erl", *SMALL, *more]) == 0
    assert main(["resume", "parted", "--rounds", "3"]) == 0
    same(Path("whole"), Path("parted"))
    config = Path("parted/config.toml").read_text()
    assert '\nalgorithm = "regression:REGRESSION"\n' in config
    assert "[learner.own]" in config
    assert "\nlr = 0.003\n" in config
    assert main(["evaluate", "parted"]) == 0
    assert main(["report", "parted"]) == 0
    assert main(["top", "parted", "--once"]) == 0
    assert main(["runs", "."]) == 0
    assert main(["plan", "erl", "--config", "parted/config.toml"]) == 0
    assert main(["compare", "whole", "parted"]) == 0
    assert main(["export", "parted", "--to", "champion.safetensors"]) == 0
    seen = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    assert np.array_equal(fw.load("champion.safetensors").act(seen), fw.load("parted").act(seen))
    assert json.loads(Path("parted/result.json").read_text())["algorithm"] == "regression:REGRESSION"
    assert "continuous:Reach" in capsys.readouterr().out


def test_a_trial_of_a_sweep_is_a_run_of_it() -> None:
    config = command_class(("train", "evolve")).read("train evolve", [*SMALL, "--rounds", "1"])
    checked = prepare(to_mapping(config.settings()) | {"learner": {"algorithm": OWN[1], "own": {"lr": 0.002}}})
    assert train(checked["config"], Path("trial")) == {"finished": True, "exit_code": 0}
    assert "\nlr = 0.002\n" in Path("trial/config.toml").read_text()
    with pytest.raises(ConfigError, match=r"learner\.own\.rate"):
        prepare(checked["config"] | {"learner": {"algorithm": OWN[1], "own": {"rate": 0.002}}})


@pytest.mark.slow
def test_it_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.toml").write_text("[learner.own.lr]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n")
    assert main(["sweep", "erl", *SMALL, "--rounds", "1", "--space", "space.toml", "--trials", "2", "--run", "s"]) == 0
    assert "learner.own.lr" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_it_trades(workers: str, same: Callable[[Path, Path], None], replayed: list[str]) -> None:
    at = replayed.index("--learner.algorithm")
    options = [*replayed[:at], *OWN, *replayed[at + 2 :]]
    options = [word.replace("learner.ddpg", "learner.own") for word in options]
    for name, rounds in (("whole", "2"), ("parted", "1")):
        assert main(["train", "erl", *options, "--rounds", rounds, "--run", name, "--workers", workers]) == 0
    assert main(["resume", "parted", "--rounds", "2"]) == 0
    same(Path("whole"), Path("parted"))


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("nowhere:X", "learner.algorithm = 'nowhere:X': .*No module named 'nowhere'"),
        ("regression:X", "no attribute 'X'"),
        ("regression:Settings", "regression:Settings.*Algorithm.* type"),
        ("lacking:A", "missing 1 required positional argument: 'build'"),
        ("wrong:NUMBER", "make_update.* 3"),
        ("wrong:SETTINGS", "flatwater.algorithms.config.Settings"),
        ("wrong:NOTHING", "build: .*Members.* NoneType"),
        ("wrong:NARROW", r"build: actor: .*\[4, 97\].*\[1, 97\]"),
        ("wrong:FLAT", r"explorer: .*\[3, 1, 1\].*\[3\]"),
        ("tdd3", r'learner\.algorithm = \'tdd3\': .*"ddpg", "td3", "sac", "dqn", or package\.module:NAME.*"td3"\?'),
    ],
)
def test_what_is_no_algorithm_is_refused_by_its_field(
    algorithm: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("wrong", WRONG), ("lacking", LACKING)):
        monkeypatch.delitem(sys.modules, name, raising=False)
        Path(f"{name}.py").write_text(text)
    assert main(["train", "erl", *SMALL[:-2], "--learner.algorithm", algorithm, "--run", "run"]) == 2
    assert re.search(said, " ".join(capsys.readouterr().err.split()))


def test_settings_of_another_algorithm_are_not_lost_in_silence() -> None:
    own = '[learner]\nalgorithm = "regression:REGRESSION"\n[learner.own]\nlr = 0.5\n'
    Path("own.toml").write_text(f'env = "continuous:Reach"\n{own}')
    with pytest.raises(ConfigError, match=r"learner\.own\.lr = 0\.5: .*'td3'"):
        command_class(("train", "evolve")).read("train evolve", ["--config", "own.toml", "--learner.algorithm", "td3"])
    Path("td3.toml").write_text('[learner]\nalgorithm = "td3"\n[learner.td3]\ngamma = 0.5\n')
    with pytest.raises(ConfigError, match=r"learner\.td3\.gamma = 0\.5: "):
        command_class(("train", "evolve")).read("train evolve", ["--config", "td3.toml", *OWN])
    read = command_class(("train", "evolve")).read(
        "train evolve", ["--config", "own.toml", "--learner.own.updates", "7"]
    )
    assert (read.learner.own.lr, read.learner.own.updates) == (0.5, 7)


def test_its_settings_are_sent_to_other_processes() -> None:
    import pickle

    mapping = {"algorithm": "regression:REGRESSION", "own": {"lr": 0.25}}
    config = from_mapping(LearnerConfig, mapping, "here")
    again: AlgorithmConfig = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.own.lr == 0.25
