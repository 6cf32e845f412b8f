"""Gymnasium's CartPole, all copies in one call, in arrays that are allocated once.

Its episodes begin as Gymnasium's do: the state that its environment draws from a seed is put into a column. From there
on the equations are Gymnasium's, with its numbers and in its order, so that each copy comes to the same bits. The
vector environment that Gymnasium ships for CartPole takes three times as long: it makes an array for each operation,
and begins episodes by itself, from a generator that the copies share.
"""

from typing import Any, NamedTuple, cast

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


class _Constants(NamedTuple):
    """Constants of Gymnasium's equations, each repeated for all copies [E], in its units."""

    gravity: Array
    mass: Array
    """Mass of cart and pole together."""
    pole_mass: Array
    length: Array
    """Half of the pole's length."""
    moment: Array
    """The pole's mass times `length`."""
    four_thirds: Array


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
        self._places, self._speeds = self._state[::2], self._state[1::2]  # of the cart, and of the pole
        self._forces = np.array([-cartpole.force_mag, cartpole.force_mag])
        self._bounds = np.array([[cartpole.x_threshold], [cartpole.theta_threshold_radians]])
        # Whole rows of the constants: NumPy takes a third longer for a number of Python's.
        self._seconds = np.full((2, envs), cartpole.tau)
        masses = cartpole.total_mass, cartpole.masspole
        values = cartpole.gravity, *masses, cartpole.length, cartpole.polemass_length, 4.0 / 3.0
        self._constants = _Constants(*(np.full(envs, value) for value in values))
        self._accelerations, self._moved = np.zeros((2, 2, envs))
        self._sine, self._cosine, self._below = np.zeros((3, envs))
        self._outside = np.zeros((2, envs), np.bool_)

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
        state, places, speeds, change = self._state, self._places, self._speeds, self._moved
        self._accelerate_(self._forces[actions[:, 0]], state[2], state[3])
        # Euler's method, as Gymnasium's: places move by the speeds before this step.
        places += np.multiply(speeds, self._seconds, change)
        speeds += np.multiply(self._accelerations, self._seconds, change)
        outside = np.greater(np.abs(places, change), self._bounds, self._outside)
        obs[:, 0] = state.T
        reward.fill(1)
        np.logical_or(outside[0], outside[1], terminated[:, 0])
        truncated.fill(0)
        self._limit.truncate_(terminated, truncated)

    def _accelerate_(self, force: Array, angle: Array, turn: Array) -> None:
        """Write the accelerations of the cart (`push`) and of the pole (`spin`).

        Args:
            force: force on each cart, [E].
            angle: angle of each pole from upright, [E], in radians.
            turn: angular speed of each pole, [E], in radians per second.
        """
        gravity, mass, pole_mass, length, moment, four_thirds = self._constants
        sine, cosine, below = self._sine, self._cosine, self._below
        push, spin = self._accelerations
        np.sin(angle, sine)
        np.cos(angle, cosine)
        # push = (force + moment * turn² * sine) / mass
        np.multiply(turn, turn, push)
        push *= moment
        push *= sine
        push += force
        push /= mass
        # spin = (gravity * sine - cosine * push) / (length * (4/3 - pole's mass * cosine² / mass))
        np.multiply(cosine, cosine, below)
        below *= pole_mass
        below /= mass
        np.subtract(four_thirds, below, below)
        below *= length
        np.multiply(sine, gravity, spin)
        # `sine` is a buffer from here on: its own value is not needed any more.
        spin -= np.multiply(cosine, push, sine)
        spin /= below
        # push - moment * spin * cosine / mass
        np.multiply(spin, moment, below)
        below *= cosine
        below /= mass
        push -= below

    def close(self) -> None:
        """Do nothing: nothing is held outside of Python."""
