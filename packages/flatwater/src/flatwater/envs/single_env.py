"""Environments of all kinds, each played as one `gymnasium.Env`, for the conformance suite.

Rewards of all environments, or agents, are summed; the episode is over when each of their episodes is.
"""

from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from flatwater.envs.makers import ParallelLike, TurnsLike, WorldLike
from flatwater.envs.world import Array, Spaces, build_masks, build_outcome, split_legal
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.masks import find_mask, mask_flags, sample_mask
from flatwater.envs.wrapped.method_masks import with_method_masks
from flatwater.envs.wrapped.tuple_agents import TupleAgents, may_have_agents, pays_each_agent
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
        if may_have_agents(env) and pays_each_agent(env, type(env.unwrapped).__name__):
            return _SingleParallelEnv(TupleAgents(env))
        return with_method_masks(env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _SingleVectorEnv(env)
    if isinstance(env, WorldLike):
        return SingleWorld(env)
    if isinstance(env, TurnsLike):  # before ParallelLike, whose members it has as well
        return SingleWorld(TurnsWorld(lambda: env, title=type(env).__name__, config=WrappedConfig(), envs=1))
    if isinstance(env, ParallelLike):
        return _SingleParallelEnv(env)
    raise ConfigError(
        "make_env(): expected a gymnasium.Env, a gymnasium.vector.VectorEnv, an environment of PettingZoo, "
        f"or a world with begin_ and step_, got a {type(env).__name__}"
    )


class _SingleVectorEnv:
    """All environments of a vector env as one; an environment that is over begins a new episode by itself."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401  (a VectorEnv)
        """Wrap a `VectorEnv`; its spaces are those of all environments together."""
        self._env, self.action_space, self.observation_space = env, env.action_space, env.observation_space

    def reset(self, **seed: int) -> Any:  # noqa: ANN401  (whatever it gives)
        """Begin an episode in each environment; `seed=...`, if given, goes to the vector environment."""
        self._was_over = np.zeros(self._env.num_envs, np.bool_)
        return self._env.reset(**seed)

    def step(self, action: Any) -> Any:  # noqa: ANN401  (whatever the space of actions holds)
        """Step all environments; return the sum of rewards, and as `terminated` whether each has ended since the reset.

        A result that cannot be summed is returned unchanged, to be reported.
        """
        answer: Any = self._env.step(action)
        if not isinstance(answer, tuple) or len(answer) != STEP_PARTS:
            return answer
        observation, reward, terminated, truncated, info = answer
        rewards, is_done = np.asarray(reward), np.asarray(terminated) | np.asarray(truncated)
        if rewards.shape != self._was_over.shape or is_done.shape != self._was_over.shape:
            return answer
        self._was_over |= is_done.astype(np.bool_)
        return observation, float(rewards.sum()), bool(self._was_over.all()), False, info


class _SingleParallelEnv:
    """All agents of a parallel environment as one.

    It is also its own action and observation space: `seed`, `sample` and `contains` are those of a space.
    """

    def __init__(self, env: Any) -> None:  # noqa: ANN401  (a ParallelEnv)
        """Wrap a `ParallelEnv`."""
        self._env, self._masks = env, dict[Any, Any]()
        self.action_space = self.observation_space = self

    def seed(self, seed: int) -> None:
        """Seed each agent's action space with a number of its own."""
        for number, agent in enumerate(self._env.possible_agents):
            self._env.action_space(agent).seed(seed + number)

    def sample(self) -> dict[Any, Any]:
        """Draw an action for each agent that is still playing, a legal one where it has a mask."""
        actions = {}
        for agent in self._env.agents:
            space = self._env.action_space(agent)
            has_mask = agent in self._masks and isinstance(space, Discrete | MultiDiscrete)
            actions[agent] = space.sample(sample_mask(space, self._masks[agent])) if has_mask else space.sample()
        return actions

    def contains(self, observation: Any) -> bool:  # noqa: ANN401  (whatever the space holds)
        """Return whether each agent's observation lies in the agent's space."""
        return isinstance(observation, dict) and all(
            self._env.observation_space(agent).contains(part) for agent, part in observation.items()
        )

    def reset(self, **seed: int) -> Any:  # noqa: ANN401  (whatever the space holds)
        """Begin an episode of all agents; `seed=...`, if given, goes to the environment."""
        answer = self._env.reset(**seed)
        if isinstance(answer, tuple) and all(isinstance(part, dict) for part in answer):
            self._keep_masks_(*answer)
        return answer

    def _keep_masks_(self, observations: dict[Any, Any], infos: dict[Any, Any]) -> None:
        """Keep each agent's mask of legal actions, where it has one."""
        masks = {agent: find_mask(seen, infos.get(agent, {})) for agent, seen in observations.items()}
        self._masks = {agent: mask_flags(mask) for agent, mask in masks.items() if mask is not None}

    def step(self, action: Any) -> Any:  # noqa: ANN401  (whatever the space of actions holds)
        """Step all agents; return the sum of rewards, and as `terminated` whether all agents are over.

        A result that cannot be summed is returned unchanged, to be reported.
        """
        answer: Any = self._env.step(action)
        is_step = isinstance(answer, tuple) and len(answer) == STEP_PARTS
        if not is_step or not all(isinstance(part, dict) for part in answer):
            return answer
        observations, rewards, terminated, truncated, infos = answer
        self._keep_masks_(observations, infos)
        faulty = [
            reward for reward in rewards.values() if not isinstance(reward, Real) or not np.isfinite(float(reward))
        ]
        # A wrong reward is returned itself: a sum would hide its value and its type from the message.
        reward = faulty[0] if faulty else float(sum(rewards.values()))
        # PettingZoo removes agents that are over: without any left, the episode is over as well.
        is_over = all(terminated[agent] or truncated[agent] for agent in terminated) or not self._env.agents
        return observations, reward, is_over, False, infos


class SingleWorld:
    """All environments of a world as one; an environment that is over begins a new episode.

    It is also its own action and observation space: `seed`, `sample` and `contains` are those of a space.
    """

    def __init__(self, world: Any) -> None:  # noqa: ANN401  (a World)
        """Allocate the arrays that the world writes into, for all environments and agents."""
        self._world, self._next_seed = world, 0
        self._spaces: Spaces = world.spaces
        self.action_space = self.observation_space = self
        shape = (self._spaces.envs, self._spaces.agents)
        self._obs = np.zeros((*shape, *self._spaces.obs), self._spaces.obs_type)
        self._legal_masks, self._outcome = build_masks(self._spaces), build_outcome(*shape)
        """One array of masks of legal actions, empty without masks; and arrays of rewards and ends."""

    def seed(self, seed: int) -> None:
        """Seed the generator of actions."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> Array:
        """Draw an action for each agent of each environment: a random legal action, or numbers within the bounds."""
        spaces = self._spaces
        shape = (spaces.envs, spaces.agents, *spaces.action_shape)
        if spaces.bounds is not None:
            low, high = np.array(spaces.bounds, np.float32).T
            return self._rng.uniform(low, high, shape).astype(np.float32)
        if not self._legal_masks:
            # Positions below the length of each list: `choices` has the lengths of several lists, along the last axis.
            return self._rng.integers(spaces.choices or len(spaces.actions), size=shape)
        masks = split_legal(spaces, self._legal_masks[0])
        # A random number for each action, 0 for an illegal one: the action of the largest is drawn.
        return np.stack([(self._rng.random(mask.shape) * mask).argmax(-1) for mask in masks], -1).reshape(shape)

    def contains(self, _observation: Any) -> bool:  # noqa: ANN401  (whatever the space holds)
        """Return whether each action list has a legal action; the observation is our own array, so it always fits."""
        return all(mask.any(-1).all() for legal in self._legal_masks for mask in split_legal(self._spaces, legal))

    def _copy_observation(self) -> Any:  # noqa: ANN401  (whatever the space holds)
        return (self._obs.copy(), self._legal_masks[0].copy()) if self._legal_masks else self._obs.copy()

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment, from `seed` on; without it from the next unused seed."""
        if seed is not None:
            self._next_seed = seed
        self._was_over = np.zeros(self._spaces.envs, np.bool_)
        self._begin_(np.ones(self._spaces.envs, np.bool_))
        return self._copy_observation(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step all environments, and begin a new episode where one is over.

        Returns:
            Observations, sum of rewards, whether each environment has ended since the reset, False, and an empty info.
        """
        reward, terminated, truncated = self._outcome
        # NaN before the step shows which numbers the world leaves unwritten.
        if self._obs.dtype.kind == "f":
            self._obs.fill(np.nan)
        reward.fill(np.nan)
        self._world.step_(action, self._obs, *self._outcome, *self._legal_masks)
        observations = self._copy_observation()
        is_done = np.asarray((terminated | truncated).all(axis=1))
        self._was_over |= is_done
        if is_done.any():
            self._begin_(is_done)
        return observations, float(reward.sum()), bool(self._was_over.all()), False, {}

    def _begin_(self, env_mask: Array) -> None:
        """Begin episodes in the environments of `env_mask`, bool [E], with new seeds."""
        if self._obs.dtype.kind == "f":
            self._obs[env_mask] = np.nan  # so that numbers which the world leaves unwritten are found
        # Seeds for all environments, so that none is used twice; those outside of `env_mask` are not read.
        self._world.begin_(env_mask, np.arange(len(env_mask)) + self._next_seed, self._obs, *self._legal_masks)
        self._next_seed += len(env_mask)
