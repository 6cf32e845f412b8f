"""Environments of Gymnasium with a Tuple of actions: of several agents, or of one agent with several choices."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym

import flatwater as fw
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.makers import hand_over_env, name_object
from flatwater.envs.world import build_outcome
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.config import WrappedConfig


class Warehouse(gymnasium.Env[Any, Any]):
    """Two robots; each is paid its own action, and in `leaving` the first is over after its second step."""

    observation_space = gym.Tuple([gym.Box(-9, 9, (2,)), gym.Box(-9, 9, (2,))])
    action_space = gym.Tuple([gym.Discrete(3), gym.Discrete(3)])

    def __init__(self, *, leaving: bool = False) -> None:
        self.leaving = leaving

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.taken: list[Any] = []
        self.start = self.np_random.uniform(0, 1, 2).astype(np.float32)
        return self._observe(), {}

    def _observe(self) -> Any:
        return tuple(self.start + robot + len(self.taken) for robot in range(2))

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions), actions
        self.taken.append(actions)
        is_over = len(self.taken) >= 4
        over = [is_over or len(self.taken) >= 2, is_over] if self.leaving else is_over
        return self._observe(), [float(action) for action in actions], over, False, {"steps": len(self.taken)}


class Alone(Warehouse):
    """One agent, which observes two things and chooses two."""

    action_space = gym.Tuple([gym.Discrete(3, start=1), gym.Discrete(2)])

    def step(self, actions: Any) -> Any:
        observation, rewards, over, truncated, info = super().step(actions)
        return observation, sum(rewards), over, truncated, info


def play_episode(env: type[Warehouse], actions: list[list[Any]], **arguments: bool) -> Any:
    """The world, and its observations, rewards and ends at each step of one episode with these actions."""
    texts = [f"{name}={value}" for name, value in arguments.items()]
    with hand_over_env(env):
        world = build_world(
            name_object(env), envs=1, foraging=ForagingConfig(), wrapped=WrappedConfig(), arguments=texts
        )
    spaces = world.spaces
    obs = np.zeros((1, spaces.agents, *spaces.obs), spaces.obs_type)
    outcome = build_outcome(1, spaces.agents)
    world.begin_(np.ones(1, np.bool_), np.zeros(1, np.int64), obs)
    steps = []
    for action in actions:
        world.step_(np.array([action]), obs, *outcome)
        steps.append([each[0].tolist() for each in (obs, *outcome)])
    return world, steps


def test_each_agent_has_its_part_of_observations_actions_and_rewards() -> None:
    world, steps = play_episode(Warehouse, [[0, 1], [2, 0], [1, 1], [0, 2]])
    assert (world.spaces.agents, world.spaces.actions, world.spaces.choices) == (2, ("0", "1", "2"), None)
    assert [reward for _, reward, _, _ in steps] == [[0, 1], [2, 0], [1, 1], [0, 2]]
    assert [over for _, _, over, _ in steps] == [[False, False]] * 3 + [[True, True]]
    (first, second), *_ = steps[0]
    np.testing.assert_allclose(np.subtract(second, first), [1, 1], rtol=1e-6)
    assert world.copies[0].unwrapped.taken == [(0, 1), (2, 0), (1, 1), (0, 2)]


def test_an_agent_that_is_over_repeats_its_action_for_nothing() -> None:
    world, steps = play_episode(Warehouse, [[0, 1], [2, 0], [1, 1], [0, 2]], leaving=True)
    assert world.copies[0].unwrapped.taken == [(0, 1), (2, 0), (2, 1), (2, 2)]
    assert [reward for _, reward, _, _ in steps] == [[0, 1], [2, 0], [0, 1], [0, 2]]
    assert [over for _, _, over, _ in steps] == [[False, False], [True, False], [True, False], [True, True]]
    assert steps[2][0][0] == [0, 0]


def test_one_reward_is_that_of_one_agent_with_several_choices() -> None:
    world, steps = play_episode(Alone, [[[0, 1]], [[2, 0]]])
    assert (world.spaces.agents, world.spaces.choices, world.spaces.obs) == (1, (3, 2), (4,))
    assert world.copies[0].unwrapped.taken == [(1, 1), (3, 0)]
    assert [reward for _, reward, _, _ in steps] == [[2], [3]]


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("env", [Warehouse, Alone])
def test_what_was_trained_takes_what_the_environment_gives(env: type[Warehouse], tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"envs": 2, "block": 8, "evaluation": {"envs": 2}, "wrapped": {"steps": 6}}
    run = fw.train("ppo", env=env, run=tmp_path / "run", rounds=1, threads=1, quiet=True, **sizes)
    whole = fw.train("ppo", env=env, run=tmp_path / "whole", rounds=2, threads=1, quiet=True, **sizes)
    assert run.resume(2, quiet=True).result == whole.result  # bit for bit
    policy, played = fw.load(run), env()
    observation, _ = played.reset(seed=1)
    played.step(policy.act(observation))  # it asserts that the action is of its space
    assert fw.check_env_conformance(env) == []
