"""What a user might bring: environments of Gymnasium's kind, also with numbers as actions and with tokens, a world."""

from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.world import Array, Spaces


class Corridor(gymnasium.Env[Any, Any]):
    """Six cells; the right end pays 1. The start follows from the seed."""

    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at, self.age = int(self.np_random.integers(0, 3)), 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at, self.age = min(5, max(0, self.at + (1 if action == 1 else -1))), self.age + 1
        return self.seen(), float(self.at == 5), self.at == 5, self.age >= 12, {}

    def seen(self) -> Any:
        return np.array([self.at], np.float32)


class Aim(Corridor):
    """A number is shown; the nearer the action comes to half of it, the better."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32(-2), np.float32(1), (1,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        missed, self.age = float(action[0] - self.shown[0] / 2), self.age + 1
        return self.seen(), -(missed**2), False, self.age >= 8, {}

    def seen(self) -> Any:
        self.shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.shown


class Locks(Corridor):
    """Two numbers are shown; each choice that names its own is paid 1/2. The second list begins at 10."""

    observation_space = gymnasium.spaces.Box(0, 2, (2,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 10])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        paid, self.age = float(np.mean(action - [0, 10] == self.shown)), self.age + 1
        return self.seen(), paid, False, self.age >= 8, {}

    def seen(self) -> Any:
        self.shown = self.np_random.integers([2, 3])
        return self.shown.astype(np.float32)


class Tokens(Corridor):
    """200 tokens, of which the first shows the cell."""

    observation_space = gymnasium.spaces.Box(0, 255, (200, 3), np.uint8)

    def seen(self) -> Any:
        shown = np.full((200, 3), 255, np.uint8)
        shown[0] = 0, 1, self.at
        return shown


class Pairs:
    """A world of two agents: each is paid for naming the other's bit."""

    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs, 2, "vector", (2,), ("zero", "one"), 5)
        self.bits = np.zeros((envs, 2), np.int64)
        self.age = np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        for env in np.flatnonzero(which):
            self.bits[env] = seeds[env] % 2, seeds[env] // 2 % 2
            self.age[env] = 0
            self.show(env, obs)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        reward[...] = actions == self.bits[:, ::-1]
        self.age += 1
        terminated[...] = False
        truncated[...] = (self.age >= 5)[:, None]
        for env in range(len(obs)):
            self.show(env, obs)

    def show(self, env: int, obs: Array) -> None:
        obs[env, :, 0], obs[env, :, 1] = self.bits[env, ::-1], self.age[env]

    def close(self) -> None:
        """Nothing is held."""
