"""Environments of all kinds, each played as one `gymnasium.Env`, for the conformance suite.

Rewards of all environments, or agents, are summed; an episode is over when each of them has come to its end.
"""

from numbers import Real
from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.makers import ParallelLike, TurnsLike, WorldLike
from flatwater.envs.world import Array, Spaces, split_legal
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater_watch.errors import ConfigError

Env = Any
"""A `gymnasium.Env`, or an adapter that plays another kind as one."""
STEP_PARTS = 5
"""Results of a step: observation, reward, terminated, truncated, info."""


def as_single_env(env: object) -> Env:
    """Return the environment as one `gymnasium.Env`.

    Raises:
        ConfigError: the environment is of no kind that can be played.
    """
    if isinstance(env, gymnasium.Env):
        return env
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _SingleVectorEnv(env)
    if isinstance(env, WorldLike):
        return SingleWorld(env)
    if isinstance(env, TurnsLike):  # before the next, whose members it has as well
        return SingleWorld(TurnsWorld(lambda: env, type(env).__name__, WrappedConfig(), 1))
    if isinstance(env, ParallelLike):
        return _SingleParallelEnv(env)
    raise ConfigError(
        "make_env(): expected a gymnasium.Env, a gymnasium.vector.VectorEnv, an environment of PettingZoo, "
        f"or a world with begin_ and step_, got a {type(env).__name__}"
    )


class _SingleVectorEnv:
    """All environments of a vector env as one; each begins a new episode by itself where one has ended."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401  (a VectorEnv)
        """Wrap a `VectorEnv`; its spaces are those of all environments together."""
        self._env, self.action_space, self.observation_space = env, env.action_space, env.observation_space

    def reset(self, **seed: int) -> Any:  # noqa: ANN401  (whatever it gives)
        """Begin an episode in each environment."""
        self._over = np.zeros(self._env.num_envs, np.bool_)
        return self._env.reset(**seed)

    def step(self, action: Any) -> Any:  # noqa: ANN401  (whatever the space of actions holds)
        """Step all environments; a result that cannot be summed is returned unchanged, to be reported."""
        step: Any = self._env.step(action)
        if not isinstance(step, tuple) or len(step) != STEP_PARTS:
            return step
        reward = np.asarray(step[1])
        done = np.asarray(step[2]) | np.asarray(step[3])
        if reward.shape != self._over.shape or done.shape != self._over.shape:
            return step
        self._over |= done.astype(np.bool_)
        return step[0], float(reward.sum()), bool(self._over.all()), False, step[4]


class _SingleParallelEnv:
    """All agents of a parallel environment as one; it is its own space of actions and of observations."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401  (a ParallelEnv)
        """Wrap a `ParallelEnv`."""
        self._env = env
        self.action_space = self.observation_space = self

    def seed(self, seed: int) -> None:
        """Seed each agent's action space with a number of its own."""
        for number, agent in enumerate(self._env.possible_agents):
            self._env.action_space(agent).seed(seed + number)

    def sample(self) -> dict[Any, Any]:
        """Draw an action for each agent that is still playing."""
        return {agent: self._env.action_space(agent).sample() for agent in self._env.agents}

    def contains(self, observation: Any) -> bool:  # noqa: ANN401  (whatever the space holds)
        """Whether each agent's observation lies in the agent's space."""
        return isinstance(observation, dict) and all(
            self._env.observation_space(agent).contains(part) for agent, part in observation.items()
        )

    def reset(self, **seed: int) -> Any:  # noqa: ANN401  (whatever the space holds)
        """Begin an episode of all agents."""
        return self._env.reset(**seed)

    def step(self, action: Any) -> Any:  # noqa: ANN401  (whatever the space of actions holds)
        """Step all agents; a result that cannot be summed is returned unchanged, to be reported."""
        step: Any = self._env.step(action)
        if not isinstance(step, tuple) or len(step) != STEP_PARTS or not all(isinstance(part, dict) for part in step):
            return step
        observations, rewards, terminated, truncated, infos = step
        # A wrong reward is handed on as it is: a sum would hide its value and its type from the message.
        faulty = [
            reward for reward in rewards.values() if not isinstance(reward, Real) or not np.isfinite(float(reward))
        ]
        is_over = all(terminated[agent] or truncated[agent] for agent in terminated) or not self._env.agents
        return observations, faulty[0] if faulty else float(sum(rewards.values())), is_over, False, infos


class SingleWorld:
    """All environments of a world as one, begun again where they are over; it is its own space, too."""

    def __init__(self, world: Any) -> None:  # noqa: ANN401  (a World)
        """Allocate the arrays that the world writes into, for all environments and agents."""
        self._world, self._next = world, 0
        self._spaces: Spaces = world.spaces
        self.action_space = self.observation_space = self
        shape = (self._spaces.envs, self._spaces.agents)
        self._obs = np.zeros((*shape, *self._spaces.obs), self._spaces.obs_type)
        self._legal = [np.ones((*shape, self._spaces.legal), np.bool_)] if self._spaces.masked else []
        """Mask of legal actions, where the world has one."""
        self._outcome = (np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))

    def seed(self, seed: int) -> None:
        """Seed the generator of actions."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> Array:
        """Draw an action for each agent of each environment: any legal one, or numbers within the bounds."""
        spaces = self._spaces
        shape = (spaces.envs, spaces.agents, *spaces.action_shape)
        if spaces.bounds is not None:
            low, high = np.array(spaces.bounds, np.float32).T
            return self._rng.uniform(low, high, shape).astype(np.float32)
        if not self._legal:
            return self._rng.integers(spaces.choices or len(spaces.actions), size=shape)
        lists = split_legal(spaces, self._legal[0])
        return np.stack([(self._rng.random(mask.shape) * mask).argmax(-1) for mask in lists], -1).reshape(shape)

    def contains(self, _observation: Any) -> bool:  # noqa: ANN401  (whatever the space holds)
        """Whether each list has something legal; shape and type are those of our array."""
        return all(part.any(-1).all() for mask in self._legal for part in split_legal(self._spaces, mask))

    def _copy_observation(self) -> Any:  # noqa: ANN401  (whatever the space holds)
        return (self._obs.copy(), self._legal[0].copy()) if self._legal else self._obs.copy()

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment, from `seed` on; without it from the next unused seed."""
        self._next = self._next if seed is None else seed
        self._over = np.zeros(self._spaces.envs, np.bool_)
        self._begin_(np.ones(self._spaces.envs, np.bool_))
        return self._copy_observation(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step all environments, and begin a new episode where the last is done; numbers left unwritten stay NaN."""
        reward, terminated, truncated = self._outcome
        if self._obs.dtype.kind == "f":
            self._obs.fill(np.nan)  # numbers that the world leaves unwritten are found
        reward.fill(np.nan)
        self._world.step_(action, self._obs, *self._outcome, *self._legal)
        observations = self._copy_observation()
        done = np.asarray((terminated | truncated).all(axis=1))
        self._over |= done
        if done.any():
            self._begin_(done)
        return observations, float(reward.sum()), bool(self._over.all()), False, {}

    def _begin_(self, which: Array) -> None:
        """Begin episodes in some environments, with new seeds."""
        if self._obs.dtype.kind == "f":
            self._obs[which] = np.nan  # what is not written is found
        self._world.begin_(which, np.arange(len(which)) + self._next, self._obs, *self._legal)
        self._next += len(which)
