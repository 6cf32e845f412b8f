"""The example of a world on arrays: its physics, its seeds, and a run in it."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import main

FILE = Path(__file__).parents[4] / "examples" / "flatwater" / "cartpole_tensors.py"
ENVS = 6


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's folder with the example in it."""
    shutil.copy(FILE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "cartpole_tensors", raising=False)


def begin_world(seeds: np.ndarray[Any, Any]) -> tuple[Any, np.ndarray[Any, Any]]:
    world, obs = import_module("cartpole_tensors").CartPole(ENVS), np.zeros((ENVS, 1, 4), np.float32)
    world.begin_(np.ones(ENVS, np.bool_), seeds, obs)
    return world, obs


def outcome() -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(np.zeros((ENVS, 1), kind) for kind in (np.float32, np.bool_, np.bool_))


def test_its_physics_are_gymnasiums() -> None:
    world, obs = begin_world(np.arange(ENVS))
    copies = [CartPoleEnv() for _ in range(ENVS)]
    for copy, row in zip(copies, obs[:, 0], strict=True):
        copy.reset()
        copy.state = row.astype(np.float64)
    reward, terminated, truncated = outcome()
    fallen = np.zeros(ENVS, np.bool_)
    for step in range(60):
        actions = np.array([[(step * (env + 1) + env) % 5 < 3] for env in range(ENVS)], np.int64)
        world.step_(actions, obs, reward, terminated, truncated)
        for env in np.flatnonzero(~fallen):
            seen, paid, over, _, _ = copies[env].step(int(actions[env, 0]))
            assert obs[env, 0] == pytest.approx(seen, abs=1e-4)
            assert (reward[env, 0], terminated[env, 0]) == (paid, over)
        fallen |= terminated[:, 0]
    assert fallen.any()


def test_an_episode_follows_from_its_seed() -> None:
    seeds = np.array([0, 1, 2**31, 2**40 + 3, 2**60, 7])
    _, first = begin_world(seeds)
    assert np.abs(first).max() <= 0.05
    assert len({row.tobytes() for row in first}) == ENVS
    world, obs = begin_world(seeds[::-1])
    kept = obs[1:].copy()
    world.begin_(np.arange(ENVS) < 1, seeds, obs)
    assert np.array_equal(obs[0], first[0])
    assert np.array_equal(obs[1:], kept)


def test_it_is_over_after_its_steps() -> None:
    world, obs = begin_world(np.arange(ENVS))
    reward, terminated, truncated = outcome()
    for step in range(500):
        upright = (obs @ np.array([0.1, 0.5, 1, 1], np.float32) > 0).astype(np.int64)
        world.step_(upright, obs, reward, terminated, truncated)
        assert truncated.all() == (step == 499)
        assert not terminated.any()


@pytest.mark.long
def test_a_run_in_it_is_resumed_bit_for_bit() -> None:
    example = Path(FILE.name)
    example.write_text(
        example.read_text().replace("STEPS = 2.4, np.deg2rad(12), 500", "STEPS = 2.4, np.deg2rad(12), 40")
    )
    options = ["--env", "cartpole_tensors:CartPole", "--envs", "4", "--block", "32", "--threads", "1", "--trackers"]
    options += ["--learner.epochs", "2", "--learner.minibatches", "2"]
    assert main(["train", "ppo", *options, "--rounds", "3", "--run", "whole"]) == 0
    assert main(["train", "ppo", *options, "--rounds", "1", "--run", "cut"]) == 0
    assert main(["resume", "cut", "--rounds", "3"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == json.loads(Path("whole", "result.json").read_text())
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]
