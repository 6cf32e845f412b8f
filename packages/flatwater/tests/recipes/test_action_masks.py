"""Masks of legal actions, in the observation or in the info: an illegal action would end each of these runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from masked_envs import (
    Beside,
    ByMethod,
    Corridor,
    InInfo,
    Late,
    Lists,
    LogMasks,
    Pictures,
    TooShort,
    Two,
    TwoLate,
    TwoLists,
    TwoWithoutInfos,
    steps_mask,
)

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.nets.actions import IMPOSSIBLE_LOGIT, draw_random_choice
from flatwater.nets.mlp import MLPValues, add_mask
from flatwater.nets.stack import init_, views
from flatwater_watch.errors import FlatwaterError

PPO: dict[str, Any] = {"envs": 2, "block": 16, "evaluation": {"envs": 2}, "policy": {"layers": (8,)}}
DQN: dict[str, Any] = {"steps": 150, "evaluation": {"episodes": 2}, "net": {"hidden": 8}}
DQN |= {"replay": {"warmup": 32, "capacity": 400}, "learner": {"batch_size": 8}}
SAC = DQN | {"learner": {"batch_size": 8, "train_every": 8}}
QUIET: dict[str, Any] = {"threads": 1, "trackers": (), "quiet": True}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("env", [Corridor, Beside, Pictures, Lists, Two, TwoLists])
def test_ppo_takes_legal_actions_alone(env: Any) -> None:
    settings = PPO | ({"policy": {}} if env is Pictures else {})
    assert fw.train("ppo", env=env, rounds=2, run="run", **settings, **QUIET).result is not None
    fw.export("run", "policy.safetensors")
    policy, episode = fw.load("policy.safetensors"), env()
    seen = episode.reset(seed=3)[0]
    for _ in range(8):
        policy.value(seen)
        seen, _, *ends, _ = episode.step(policy.act(seen, deterministic=False))
        if any(all(end.values()) if isinstance(end, dict) else end for end in ends) or not seen:
            seen = episode.reset(seed=4)[0]


@pytest.mark.parametrize("env", [Corridor, InInfo, Beside, Pictures])
@pytest.mark.parametrize(("recipe", "settings"), [("dqn", DQN), ("sac", SAC)])
def test_agents_of_a_replay_take_legal_actions_alone(recipe: str, settings: dict[str, Any], env: Any) -> None:
    run = fw.train(recipe, env=env, rounds=2, run="run", **settings, **QUIET)
    assert run.result is not None
    fw.export("run", "policy.safetensors")
    policy, episode = fw.load("policy.safetensors"), env()
    seen, info = episode.reset(seed=3)
    for _ in range(8):
        mask = info.get("action_mask")
        assert np.isfinite(policy.value(seen, mask))
        assert abs(policy.value(seen, mask)) < 1e6
        action, _ = policy.predict(seen, action_masks=mask)
        seen, _, terminated, truncated, info = episode.step(action)
        if terminated or truncated:
            seen, info = episode.reset()


@pytest.mark.parametrize(("recipe", "settings"), [("ppo", PPO), ("ppo", PPO | {"env_workers": 2}), ("dqn", DQN)])
def test_masks_of_a_method_are_those_of_the_info(recipe: str, settings: dict[str, Any]) -> None:
    """Both of the same run: what is legal is told at each step, in training and in the result."""
    results = [
        fw.train(recipe, env=env, rounds=1, run=env.__name__, **settings, **QUIET).result for env in (InInfo, ByMethod)
    ]
    told, asked = ({**result, "env": ""} for result in results if result is not None)
    assert told == asked
    assert fw.check_env_conformance(ByMethod) == []


def test_masks_that_would_be_passed_over_are_refused() -> None:
    for env in (Late, TwoLate):
        with pytest.raises(FlatwaterError, match="none from reset and one from step"):
            fw.train("ppo", env=env, rounds=1, **PPO, **QUIET)
    with pytest.raises(FlatwaterError, match="none from reset and one from step"):
        fw.train("ppo", env=lambda num_envs: SyncVectorEnv([Late] * num_envs), rounds=1, **PPO, **QUIET)
    with pytest.raises(FlatwaterError, match=r"by action_masks\(\), which a vector environment does not pass on"):
        fw.train("ppo", env=lambda num_envs: SyncVectorEnv([ByMethod] * num_envs), rounds=1, **PPO, **QUIET)


def test_a_population_stopped_and_resumed_ends_with_the_same_bits() -> None:
    settings = DQN | {"population": {"size": 3}, "learner": {"batch_size": 8, "duelling": True}} | QUIET
    whole = fw.train("dqn", env=Corridor, rounds=3, run="whole", **settings)
    fw.train("dqn", env=Corridor, rounds=2, run="cut", **settings)
    again = fw.resume("cut", 3, quiet=True)
    ends = [list_checkpoints(run.path / "checkpoints")[-1].leaves for run in (whole, again)]
    assert ends[0] == ends[1]
    assert {"legal.training", "legal.trial"} <= {leaf.path for leaf in ends[0]}


def test_batches_of_dicts_are_read_with_their_masks() -> None:
    fw.train("ppo", env=Corridor, rounds=1, run="run", **PPO, **QUIET)
    policy, mask = fw.load("run"), np.array([steps_mask(0), steps_mask(5)])
    seen = {"observation": np.eye(6, dtype=np.float32)[[0, 5]], "action_mask": mask}
    for _ in range(20):
        actions, _ = policy.predict(seen)
        assert mask[[0, 1], actions].all()


@pytest.mark.parametrize("workers", [0, 1])
def test_processes_of_environments_give_the_same_masks(workers: int) -> None:
    run = fw.train("ppo", env=Corridor, rounds=1, run="run", env_workers=workers, **PPO, **QUIET)
    assert run.result is not None


@pytest.mark.parametrize(
    ("env", "said"),
    [(LogMasks, "1 for each legal action and 0 for the others"), (TooShort, "expected 4 numbers.* got 3 numbers")],
)
def test_a_mask_that_is_none_is_refused_before_training(env: Any, said: str) -> None:
    with pytest.raises(FlatwaterError, match=said):
        fw.train("ppo", env=env, rounds=1, run="run", **PPO, **QUIET)


@pytest.mark.parametrize("env", [Corridor, Lists, Two, TwoLists])
def test_the_checks_play_by_the_mask(env: Any) -> None:
    assert fw.check_env_conformance(env, episodes=2) == []


def test_an_info_that_is_no_dict_has_no_mask() -> None:
    assert fw.train("ppo", env=TwoWithoutInfos, rounds=1, **PPO, **QUIET).result is not None


def test_a_network_of_values_reads_the_flags_and_nothing_else_of_them() -> None:
    free, masked = MLPValues(3, 4, (8,), duelling=True), MLPValues(3, 4, (8,), duelling=True, masked=True)
    rng, rows = torch.Generator().manual_seed(0), torch.zeros(2, free.layout.size)
    init_(rows, free.layout, rng)
    params, obs = views(rows, free.layout), torch.rand(2, 5, 3, generator=rng)
    legal = torch.rand(2, 5, 4, generator=rng) < 0.6
    values = masked.values(params, torch.stack([add_mask(obs[member], legal[member]) for member in (0, 1)]))
    assert torch.equal(values[legal], free.values(params, obs)[legal])
    assert (values[~legal] == IMPOSSIBLE_LOGIT).all()
    drawn = torch.stack([draw_random_choice(values, rng) for _ in range(200)])
    counts = torch.nn.functional.one_hot(drawn, 4).sum(0)
    assert ((counts > 0) == legal)[legal.any(-1)].all()


def test_the_mask_at_a_truncation_is_that_of_the_last_observation() -> None:
    world: Any = GymnasiumWorld(Corridor, "Corridor", WrappedConfig(), 1)
    obs, legal = np.zeros((1, 1, 6), np.float32), np.zeros((1, 1, 4), np.bool_)
    outcome = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.bool_), np.zeros((1, 1), np.bool_)
    world.begin_(np.ones(1, np.bool_), np.zeros(1, np.int64), obs, legal)
    for step in range(12):  # one cell to the right and back again
        assert legal[0, 0].tolist() == steps_mask(int(obs.argmax())).astype(bool).tolist()
        world.step_(np.array([[(1 + step) % 2 if obs.argmax() > 0 else 1]]), obs, *outcome, legal)
    assert outcome[2].all()
    assert not legal.all()
