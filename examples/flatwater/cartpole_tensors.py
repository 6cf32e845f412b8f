"""A world of one's own on arrays: CartPole's equations for all copies at once.

    flatwater train ppo --env cartpole_tensors:CartPole --envs 128 --learner.compile        in the folder of this file

A step of 128 copies takes about as long as one of Gymnasium's. docs/flatwater/ppo.md says what that is worth.
"""

import numpy as np

from flatwater.envs import Array, Spaces

GRAVITY, POLE_MASS, MASS, HALF_LENGTH, FORCE, SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
"""As in Barto, Sutton & Anderson 1983; `MASS` is that of cart and pole."""
FAR, TILTED, STEPS = 2.4, np.deg2rad(12), 500
"""Where an episode ends: off the track, fallen, or over."""


class CartPole:
    """A `World` of E environments with one agent each; float32, a row for each number of the state."""

    def __init__(self, envs: int) -> None:
        """Allocate; nothing is begun."""
        self.spaces = Spaces(envs, 1, "vector", (4,), ("left", "right"), STEPS)
        self.state, self.age = np.zeros((4, envs), np.float32), np.zeros(envs, np.int64)

    def begin_(self, env_mask: Array, seeds: Array, obs: Array) -> None:
        """Start near the middle, where the seeds say."""
        self.state[:, env_mask] = uniform(seeds[env_mask], 4) * 0.1 - 0.05
        self.age[env_mask] = 0
        obs[env_mask, 0] = self.state.T[env_mask]

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Push every cart to the left or to the right, for `SECONDS`."""
        x, speed, angle, turn = self.state
        force = np.where(actions[:, 0], np.float32(FORCE), np.float32(-FORCE))
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (force + POLE_MASS * HALF_LENGTH * turn * turn * sine) / MASS
        spin = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE_MASS / MASS * cosine * cosine))
        x += SECONDS * speed
        speed += SECONDS * (push - POLE_MASS * HALF_LENGTH / MASS * spin * cosine)
        angle += SECONDS * turn
        turn += SECONDS * spin
        self.age += 1
        obs[:, 0] = self.state.T
        reward[...] = 1
        terminated[:, 0] = (np.abs(x) > FAR) | (np.abs(angle) > TILTED)
        truncated[:, 0] = ~terminated[:, 0] & (self.age >= STEPS)

    def close(self) -> None:
        """Nothing is held outside of Python."""


def uniform(seeds: Array, numbers: int) -> Array:
    """[numbers, E] in [0, 1), from each seed alone: SplitMix64 (Steele, Lea & Flood 2014)."""
    word = seeds.astype(np.uint64) * np.uint64(numbers) + np.arange(numbers, dtype=np.uint64)[:, None] + np.uint64(1)
    word *= np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return ((word ^ word >> np.uint64(31)) >> np.uint64(40)) * 2.0**-24
