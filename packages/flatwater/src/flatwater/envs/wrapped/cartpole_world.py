"""Gymnasium's CartPole, all copies in one call, in arrays that are allocated once.

An episode begins with the state that Gymnasium's environment draws from its seed. From there on the equations are
Gymnasium's, with its numbers and in its order, so that each copy comes to the same bits. The vector environment that
Gymnasium ships for CartPole takes three times as long, as it makes an array for each operation; and it begins episodes
by itself, from a generator that the copies share.
"""

from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.actions import make_action_spec, world_spaces
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.native_spaces import native_spaces
from flatwater.envs.wrapped.step_limit import StepLimit

CARTPOLE_IDS = {"CartPole-v0", "CartPole-v1"}
"""Gymnasium's IDs of CartPole, which differ only in the limit on an episode's steps."""
NO_LIMIT = 1 << 30
"""Number of steps that stands for no limit."""


class _Constants(NamedTuple):
    """Constants of Gymnasium's equations, in its units, each repeated for all copies: float64 [E]."""

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
    """A `World` of E copies of CartPole, A = 1, with the same bits as in a `GymnasiumWorld`."""

    def __init__(self, name: str, config: WrappedConfig, envs: int) -> None:
        """Take CartPole's constants from one copy of Gymnasium's, and allocate the state [4, E] and scratch rows.

        Rows of the state: the cart's position and speed, the pole's angle and angular speed.
        """
        self._template = cartpole = cast("CartPoleEnv", gymnasium.make(name).unwrapped)
        limit = gymnasium.spec(name).max_episode_steps or NO_LIMIT
        steps = config.steps or limit
        self.native = native_spaces(cartpole.observation_space, cartpole.action_space, "vector", name)
        """Spaces of Gymnasium's environment."""
        reader = self.native.reader
        actions = make_action_spec(cartpole.action_space, None, name)
        self._spaces = world_spaces(reader, actions, envs=envs, steps=steps, masked=False, kept=0)
        self._limit = StepLimit(envs, min(steps, limit))
        self.infos: list[dict[str, Any]] = [{}] * envs
        """Info of each copy's last step, always empty as in Gymnasium's CartPole."""
        self._state = np.zeros((4, envs))
        # Views of the state, [2, E] each: row 0 is the cart's, row 1 the pole's.
        self._positions, self._speeds = self._state[::2], self._state[1::2]
        self._forces = np.array([-cartpole.force_mag, cartpole.force_mag])
        # The cart's largest distance from the centre, and the pole's largest angle.
        self._bounds = np.array([[cartpole.x_threshold], [cartpole.theta_threshold_radians]])
        # Constants as whole rows: NumPy takes a third longer to combine an array with a number of Python's.
        self._seconds = np.full((2, envs), cartpole.tau)
        masses = cartpole.total_mass, cartpole.masspole
        values = cartpole.gravity, *masses, cartpole.length, cartpole.polemass_length, 4.0 / 3.0
        self._constants = _Constants(*(np.full(envs, value) for value in values))
        # Arrays of intermediate results, [2, E], [E] and bool [2, E].
        self._accelerations, self._scratch = np.zeros((2, 2, envs))
        self._sine, self._cosine, self._denominator = np.zeros((3, envs))
        self._outside = np.zeros((2, envs), np.bool_)

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, env_mask: Array, seeds: Array, obs: Array) -> None:
        """Begin episodes in the copies of `env_mask`, bool [E], with the states that Gymnasium draws from their seeds.

        Their rows of `obs` are written.
        """
        for env in np.flatnonzero(env_mask):
            # One environment of Gymnasium's draws the states of all copies; it is never stepped.
            obs[env, 0], _ = self._template.reset(seed=int(seeds[env]) % 2**32)
            self._state[:, env] = self._template.state
        self._limit.begin_(env_mask, seeds)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every copy, action 0 to the left and 1 to the right; all arrays after `actions` are written."""
        # The last argument of a function of NumPy is the array that it writes and returns.
        positions, speeds, scratch = self._positions, self._speeds, self._scratch
        self._accelerate_(self._forces[actions[:, 0]], angle=positions[1], angular_speed=speeds[1])
        # Euler's method, as Gymnasium's: positions move by the speeds before this step.
        positions += np.multiply(speeds, self._seconds, scratch)
        speeds += np.multiply(self._accelerations, self._seconds, scratch)
        outside = np.greater(np.abs(positions, scratch), self._bounds, self._outside)
        obs[:, 0] = self._state.T
        reward.fill(1)
        np.logical_or(outside[0], outside[1], terminated[:, 0])
        truncated.fill(0)
        self._limit.truncate_(terminated, truncated)

    def _accelerate_(self, force: Array, angle: Array, angular_speed: Array) -> None:
        """Write the accelerations of the carts (`push`) and of the poles (`spin`) into `_accelerations`, [2, E].

        Every operation writes into an allocated row; the comment above a group gives its formula.

        Args:
            force: force on each cart, [E].
            angle: angle of each pole from upright, [E], in radians.
            angular_speed: angular speed of each pole, [E], in radians per second.
        """
        gravity, mass, pole_mass, length, moment, four_thirds = self._constants
        sine, cosine, denominator = self._sine, self._cosine, self._denominator
        push, spin = self._accelerations
        # The last argument of a function is the row that it writes and returns.
        np.sin(angle, sine)
        np.cos(angle, cosine)
        # push = (force + moment * angular_speed² * sine) / mass
        np.multiply(angular_speed, angular_speed, push)
        push *= moment
        push *= sine
        push += force
        push /= mass
        # spin = (gravity * sine - cosine * push) / (length * (4/3 - pole's mass * cosine² / mass))
        np.multiply(cosine, cosine, denominator)
        denominator *= pole_mass
        denominator /= mass
        np.subtract(four_thirds, denominator, denominator)
        denominator *= length
        np.multiply(sine, gravity, spin)
        spin -= np.multiply(cosine, push, sine)  # `sine` serves as scratch space from here on
        spin /= denominator
        # push = push - moment * spin * cosine / mass, with `denominator` as scratch space
        np.multiply(spin, moment, denominator)
        denominator *= cosine
        denominator /= mass
        push -= denominator

    def close(self) -> None:
        """Do nothing, as no resources outside of Python are open."""
