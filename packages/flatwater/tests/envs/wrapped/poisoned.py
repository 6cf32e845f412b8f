"""A world's arrays, poisoned, and episodes played into them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flatwater.envs.world import Array, World

POISON = {np.dtype(np.uint8): 199, np.dtype(np.float32): np.float32(-7.125e30), np.dtype(np.int64): -9}


class Row(NamedTuple):
    """What one step writes."""

    obs: Array
    reward: Array
    terminated: Array
    truncated: Array


def row_of(world: World) -> Row:
    """Arrays for a step. What is not bool is poisoned."""
    spaces = world.spaces
    dtype = np.uint8 if spaces.form == "tokens" else np.float32
    obs = np.empty((spaces.envs, spaces.agents, *spaces.obs), dtype)
    reward = np.empty((spaces.envs, spaces.agents), np.float32)
    obs[:], reward[:] = POISON[obs.dtype], POISON[reward.dtype]
    over = np.zeros((2, spaces.envs, spaces.agents), np.bool_)
    return Row(obs, reward, *over)


def every(world: World) -> Array:
    """All environments."""
    return np.ones(world.spaces.envs, np.bool_)


def begun(world: World, seeds: list[int]) -> Row:
    """Episodes of these seeds, at their start."""
    row = row_of(world)
    world.begin_(every(world), np.array(seeds), row.obs)
    return row


def play(world: World, row: Row, steps: int, act: Callable[[Array, Array], None]) -> list[Row]:
    """Rows of so many steps, each in arrays of its own. `act` reads what is seen and writes actions."""
    rows = []
    for _ in range(steps):
        actions = np.full(row.reward.shape, POISON[np.dtype(np.int64)], np.int64)
        act(row.obs, actions)
        row = row_of(world)
        world.step_(actions, *row)
        rows.append(row)
    return rows


def random_actor(world: World, seed: int) -> Callable[[Array, Array], None]:
    """Random actions."""
    rng = np.random.default_rng(seed)

    def act(_: Array, actions: Array) -> None:
        actions[:] = rng.integers(0, len(world.spaces.actions), actions.shape)

    return act
