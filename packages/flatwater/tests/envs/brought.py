"""Environments as users bring them: a class with arguments, functions, vector environments."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv


class Boat(gymnasium.Env[Any, Any]):
    """A boat that drifts; an episode ends where it strands, or after `most` steps."""

    observation_space = gymnasium.spaces.Box(-4, 4, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, push: float = 0.3, most: int = 12) -> None:
        self.push, self.most = push, most

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place, self.drift, self.steps = self.np_random.uniform(-2, 2), 0.0, 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.drift = 0.8 * self.drift + self.push * (2 * int(action) - 1) + 0.02 * self.np_random.normal()
        self.place = float(np.clip(self.place + self.drift, -4, 4))
        return self.seen(), -abs(self.place), abs(self.place) > 3, self.steps == self.most, {}

    def seen(self) -> Any:
        return np.array([self.place, self.drift], np.float32)


def make_boat(push: float = 0.3) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.ClipReward(Boat(push), -9, 9)


def doubled(env: gymnasium.Env[Any, Any], by: float = 2) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformReward(env, lambda reward: by * float(reward))


def boats(num_envs: int, push: float = 0.3) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Boat(push)] * num_envs)


class Fleet(VectorEnv[Any, Any, Any]):
    """Boats that begin their next episode by themselves, in the step that ends one, from a generator of their own."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (as Gymnasium has it)

    def __init__(self, num_envs: int) -> None:
        self.inner = SyncVectorEnv([Boat] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs, self.spec = num_envs, None
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert options is None
        return self.inner.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.inner.step(actions)


class Late(Fleet):
    """The same, one step later."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  (same)


def forget(_env: gymnasium.Env[Any, Any]) -> None:
    """A wrapper whose author has left out `return`."""
