"""What a user might bring: environments with numbers as actions, and what `train erl --env` refuses."""

from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.world import Array, Spaces

LIMIT = 10


class Reach(gymnasium.Env[Any, Any]):
    """A point on a line is pushed to 0: the best action is minus where it stands, and then nothing is lost any more."""

    observation_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32(-1), np.float32(2), (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at, self.age = self.np_random.uniform(-1, 1, 1).astype(np.float32), 0
        return self.at, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.at, self.age = np.clip(self.at + action, -2, 2).astype(np.float32), self.age + 1
        return self.at, -abs(float(self.at[0])), False, self.age >= LIMIT, {}


class ReachWorld:
    """The same as a world, for all environments at once."""

    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs, 1, "vector", (1,), ("push",), LIMIT, ((-1.0, 2.0),))
        self.at, self.age = np.zeros(envs, np.float32), np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        self.at[which] = (seeds[which] % 2001) / 1000 - 1
        self.age[which] = 0
        obs[which, 0, 0] = self.at[which]

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        self.at = np.clip(self.at + actions[:, 0, 0], -2, 2)
        self.age += 1
        obs[:, 0, 0], reward[:, 0] = self.at, -abs(self.at)
        terminated[...], truncated[...] = False, (self.age >= LIMIT)[:, None]

    def close(self) -> None:
        """Nothing is held."""


class Two(ReachWorld):
    """Two agents in an environment."""

    def __init__(self, envs: int) -> None:
        super().__init__(envs)
        self.spaces = Spaces(envs, 2, "vector", (1,), ("push",), LIMIT, ((-1.0, 2.0),))


class Tokens(ReachWorld):
    """Tokens are seen, and no vector."""

    def __init__(self, envs: int) -> None:
        super().__init__(envs)
        self.spaces = Spaces(envs, 1, "tokens", (4, 3), ("push",), LIMIT, ((-1.0, 2.0),))
