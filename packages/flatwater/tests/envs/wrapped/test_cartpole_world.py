"""CartPole in one call: the same episodes as copies that are stepped one after another."""

from functools import partial

import numpy as np
import pytest

from flatwater.envs.world import World
from flatwater.envs.wrapped.cartpole_world import CartPoleWorld
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.envs.wrapped.named_env import make_named_env

ENVS = 5


def play(world: World, steps: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Everything that is written, with actions that keep the pole up for a while, and seeds of every size."""
    draws = np.random.default_rng(0)
    obs = np.zeros((ENVS, 1, 4), np.float32)
    world.begin_(np.ones(ENVS, np.bool_), draws.integers(1 << 40, size=ENVS), obs)
    reward, terminated, truncated = (np.zeros((ENVS, 1), kind) for kind in (np.float32, np.bool_, np.bool_))
    found = [obs.astype(np.float64)]
    for _ in range(steps):
        upright = (obs @ np.array([0.1, 0.5, 1, 1], np.float32) > 0).astype(np.int64)
        actions = np.where(draws.random((ENVS, 1)) < [[0.0], [0.0], [0.3], [0.9], [1.0]], 0, upright)
        world.step_(actions, obs, reward, terminated, truncated)
        found += [np.concatenate([obs[:, 0], reward, terminated, truncated], 1, dtype=np.float64)]
        ended = (terminated | truncated)[:, 0]
        if ended.any():
            world.begin_(ended, draws.integers(1 << 40, size=ENVS), obs)
            found += [obs.astype(np.float64)]
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", ["CartPole-v0", "CartPole-v1"])
@pytest.mark.parametrize("steps", [0, 30, 1000])
@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date:DeprecationWarning")
def test_it_is_bit_for_bit_what_the_copies_do(name: str, steps: int) -> None:
    config = WrappedConfig(steps=steps)
    fast, slow = CartPoleWorld(name, config, ENVS), GymnasiumWorld(partial(make_named_env, name), name, config, ENVS)
    assert fast.spaces == slow.spaces
    found, wanted = (play(world, 700) for world in (fast, slow))
    assert len(found) == len(wanted) > 700
    for mine, other in zip(found, wanted, strict=True):
        assert np.array_equal(mine, other)
    assert any(row[:, -1].any() for row in found if row.ndim == 2)
