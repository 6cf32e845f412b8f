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
        return self.make_observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at, self.age = min(5, max(0, self.at + (1 if action == 1 else -1))), self.age + 1
        return self.make_observation(), float(self.at == 5), self.at == 5, self.age >= 12, {}

    def make_observation(self) -> Any:
        return np.array([self.at], np.float32)


class Aim(Corridor):
    """A number is shown; the nearer the action comes to half of it, the better."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32(-2), np.float32(1), (1,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        missed, self.age = float(action[0] - self.shown[0] / 2), self.age + 1
        return self.make_observation(), -(missed**2), False, self.age >= 8, {}

    def make_observation(self) -> Any:
        self.shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.shown


class Locks(Corridor):
    """Two numbers are shown; each choice that names its own is paid 1/2. The second list begins at 10."""

    observation_space = gymnasium.spaces.Box(0, 2, (2,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 10])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        paid, self.age = float(np.mean(action - [0, 10] == self.shown)), self.age + 1
        return self.make_observation(), paid, False, self.age >= 8, {}

    def make_observation(self) -> Any:
        self.shown = self.np_random.integers([2, 3])
        return self.shown.astype(np.float32)


class Tokens(Corridor):
    """200 tokens, of which the first shows the cell."""

    observation_space = gymnasium.spaces.Box(0, 255, (200, 3), np.uint8)

    def make_observation(self) -> Any:
        shown = np.full((200, 3), 255, np.uint8)
        shown[0] = 0, 1, self.at
        return shown


class Doors(Corridor):
    """The corridor with a third action, two cells at once from every other cell. A mask says what is legal."""

    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seen, _ = super().reset(seed=seed, options=options)
        return seen, {"action_mask": self.mask()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.mask()[action], f"{action} is illegal in cell {self.at}"
        self.at, self.age = min(5, self.at + (-1, 1, 2)[action]), self.age + 1
        return (
            self.make_observation(),
            float(self.at == 5) - 0.1,
            self.at == 5,
            self.age >= 12,
            {"action_mask": self.mask()},
        )

    def mask(self) -> Any:
        return np.array([self.at > 0, self.at < 5, self.at < 5 and self.at % 2 == 0], np.int8)


class Forgetful(Doors):
    """Its mask is in what reset returns alone."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:4], {}


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


class Shifts:
    """A world of two agents that choose from two lists; of the second, another place is illegal at each step.

    The place after that pays. In odd episodes the second agent is over after two steps.
    """

    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs, 2, "vector", (4,), ("first", "second"), 6, choices=(2, 3), masked=True)
        self.seeds, self.age = np.zeros(envs, np.int64), np.zeros(envs, np.int64)
        self.legal = np.ones((envs, 2, 5), np.bool_)

    def begin_(self, which: Array, seeds: Array, obs: Array, legal: Array) -> None:
        self.seeds[which], self.age[which] = seeds[which], 0
        for env in np.flatnonzero(which):
            self.show(env, obs, legal)

    def step_(
        self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array, legal: Array
    ) -> None:
        for env in range(len(obs)):
            over, place = self.over(env), self.place(env)
            assert all(self.legal[env, a, 2 + actions[env, a, 1]] for a in range(2) if not over[a]), "illegal"
            reward[env] = (actions[env, :, 1] == (place + 1) % 3) & ~over
            self.age[env] += 1
            terminated[env] = self.over(env)
            truncated[env] = ~terminated[env] & (self.age[env] >= 6)
            self.show(env, obs, legal)

    def place(self, env: int) -> Array:
        return (self.seeds[env] + self.age[env] + np.arange(2)) % 3

    def over(self, env: int) -> Array:
        return (np.arange(2) == 1) & (self.seeds[env] % 2 == 1) & (self.age[env] >= 2)

    def show(self, env: int, obs: Array, legal: Array) -> None:
        over, place = self.over(env), self.place(env)
        self.legal[env] = True
        self.legal[env, np.arange(2), 2 + place] = over
        legal[env] = self.legal[env]
        obs[env] = 0
        obs[env, np.arange(2), place] = ~over

    def close(self) -> None:
        """Nothing is held."""


class Stuck(Shifts):
    """After two steps nothing of the second list is legal."""

    def show(self, env: int, obs: Array, legal: Array) -> None:
        super().show(env, obs, legal)
        legal[env, :, 2:] &= self.age[env] < 2


class Careless:
    """A teacher that does not look at the mask."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def begin_(self, which: Array) -> None: ...

    def step_batch(self, obs: Array, actions_out: Array, legal: Array) -> None:
        assert legal.shape == (*actions_out.shape, 3) == (*obs.shape[:2], 3)
        actions_out[...] = 2
