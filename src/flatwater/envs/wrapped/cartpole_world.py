"""Gymnasium's CartPole, all copies in one call: its own vector environment, begun as its single one begins.

Of Gymnasium's environments this is the only one that it also ships vectorised in NumPy. That one shares a generator
among its copies and begins their episodes by itself; here an episode follows from its seed, so the state that the
single environment draws from the seed is put into its column. From there on both compute the same.
"""

from typing import cast

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.spaces import MultiDiscrete

from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.step_limit import StepLimit

CARTPOLES = {"CartPole-v0", "CartPole-v1"}
"""Names of Gymnasium's that differ in their limit alone."""
NEVER = 1 << 30
"""Steps after which the vector environment would truncate: the limit is ours."""


class _Trusted(MultiDiscrete):
    """Positions in a list that a policy chose: looking at them takes a quarter of a step."""

    def contains(self, x: object) -> bool:  # noqa: ARG002  (it does not look)
        """Always."""
        return True


class CartPoleWorld:
    """A `World` of E copies of CartPole, A = 1: bit for bit what `GymnasiumWorld` makes of it."""

    def __init__(self, name: str, config: WrappedConfig, envs: int) -> None:
        """Build the copies."""
        self._one, self._all = cast("CartPoleEnv", gymnasium.make(name).unwrapped), CartPoleVectorEnv(envs, NEVER)
        self._all.action_space = _Trusted([2] * envs)
        self._all.reset(seed=0)  # it makes its arrays there
        most = gymnasium.spec(name).max_episode_steps or NEVER
        steps = config.steps or most
        self._spaces = Spaces(envs, 1, "vector", (4,), ("0", "1"), steps)
        self._limit = StepLimit(envs, min(steps, most))

    @property
    def spaces(self) -> Spaces:
        """What the agents see and do."""
        return self._spaces

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        """Put the states that seeds draw into their columns."""
        states = cast("Array", self._all.state)
        for env in np.flatnonzero(which):
            obs[env, 0], _ = self._one.reset(seed=int(seeds[env]) % 2**32)
            states[:, env] = self._one.state
        self._limit.begin_(which)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every copy."""
        obs[:, 0], reward[:, 0], terminated[:, 0], truncated[:, 0], _ = self._all.step(actions[:, 0])
        self._all.prev_done[...] = False  # it would begin an episode of its own
        self._limit.truncate_(terminated, truncated)

    def close(self) -> None:
        """Nothing is held outside of Python."""
