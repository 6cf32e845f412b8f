"""Gymnasium's CartPole, all copies in one call, in arrays that are allocated once.

Its episodes begin as Gymnasium's do: the state that its environment draws from a seed is put into a column. From there
on the equations are Gymnasium's, with its numbers and in its order, so that each copy comes to the same bits. The
vector environment that Gymnasium ships for CartPole takes three times as long: it makes an array for each operation,
and begins episodes by itself, from a generator that the copies share.
"""

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.native import native_spaces
from flatwater.envs.wrapped.step_limit import StepLimit

CARTPOLE_IDS = {"CartPole-v0", "CartPole-v1"}
"""Gymnasium's names of CartPole, which differ in their limit alone."""
NO_LIMIT = 1 << 30
"""Steps of an episode without a limit."""


class CartPoleWorld:
    """A `World` of E copies of CartPole, A = 1: bit for bit as `GymnasiumWorld` plays it."""

    def __init__(self, name: str, config: WrappedConfig, envs: int) -> None:
        """Take CartPole's constants from one copy of Gymnasium's, and allocate the state [4, E] and scratch rows.

        Rows of the state: the cart's position and speed, the pole's angle and angular speed.
        """
        self._one = cartpole = cast("CartPoleEnv", gymnasium.make(name).unwrapped)
        limit = gymnasium.spec(name).max_episode_steps or NO_LIMIT
        steps = config.steps or limit
        self.native = native_spaces(cartpole.observation_space, cartpole.action_space, "vector", name)
        """Spaces of Gymnasium's environment."""
        reader = self.native.reader
        places = envs, 1, reader.form, reader.shape, ("0", "1"), steps
        self._spaces = Spaces(*places, measures=reader.measures, parts=reader.parts)
        self._limit = StepLimit(envs, min(steps, limit))
        self.infos: list[dict[str, Any]] = [{}] * envs
        """Gymnasium's CartPole says nothing of a step."""
        self._state = np.zeros((4, envs))
        self._forces = np.array([-cartpole.force_mag, cartpole.force_mag])
        self._bounds = np.array([[cartpole.x_threshold], [cartpole.theta_threshold_radians]])
        self._sine, self._cosine, self._push, self._spin, self._below = np.zeros((5, envs))
        self._moved, self._outside = np.zeros((2, envs)), np.zeros((2, envs), np.bool_)

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        """Write the states that seeds draw into their columns; the arguments are those of `World`."""
        for env in np.flatnonzero(which):
            # One environment draws for all copies: its own state is not stepped.
            obs[env, 0], _ = self._one.reset(seed=int(seeds[env]) % 2**32)
            self._state[:, env] = self._one.state
        self._limit.begin_(which, seeds)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every copy, action 0 to the left and 1 to the right; the arguments are those of `World`."""
        constants, state, change = self._one, self._state, self._moved
        places, speeds = state[::2], state[1::2]  # of the cart, and of the pole
        self._accelerate_(self._forces[actions[:, 0]], state[2], state[3])
        # Euler's method, as Gymnasium's: places move by the speeds before this step.
        places += np.multiply(speeds, constants.tau, out=change)
        np.multiply(self._push, constants.tau, out=change[0])
        np.multiply(self._spin, constants.tau, out=change[1])
        speeds += change
        outside = np.greater(np.abs(places, out=change), self._bounds, out=self._outside)
        obs[:, 0] = state.T
        reward[...] = 1
        np.logical_or(outside[0], outside[1], out=terminated[:, 0])
        truncated[...] = False
        self._limit.truncate_(terminated, truncated)

    def _accelerate_(self, force: Array, angle: Array, turn: Array) -> None:
        """Write the accelerations of the cart (`push`) and of the pole (`spin`).

        Args:
            force: force on each cart, [E].
            angle: angle of each pole from upright, [E], in radians.
            turn: angular speed of each pole, [E], in radians per second.
        """
        constants, sine, cosine = self._one, self._sine, self._cosine
        push, spin, below = self._push, self._spin, self._below
        np.sin(angle, out=sine)
        np.cos(angle, out=cosine)
        # push = (force + pole * turn² * sine) / mass
        np.multiply(turn, turn, out=push)
        push *= constants.polemass_length
        push *= sine
        push += force
        push /= constants.total_mass
        # spin = (gravity * sine - cosine * push) / (length * (4/3 - pole's mass * cosine² / mass))
        np.multiply(cosine, cosine, out=below)
        below *= constants.masspole
        below /= constants.total_mass
        np.subtract(4.0 / 3.0, below, out=below)
        below *= constants.length
        np.multiply(sine, constants.gravity, out=spin)
        # `sine` is a buffer from here on: its own value is not needed any more.
        spin -= np.multiply(cosine, push, out=sine)
        spin /= below
        # push - pole * spin * cosine / mass
        np.multiply(spin, constants.polemass_length, out=below)
        below *= cosine
        below /= constants.total_mass
        push -= below

    def close(self) -> None:
        """Do nothing: nothing is held outside of Python."""
