"""Copies of a Gymnasium environment as a world of one agent each."""

from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.spaces import actions_of, reader_of
from flatwater.envs.wrapped.step_limit import StepLimit
from flatwater.errors import ConfigError
from flatwater.imported import import_named

REGISTERED_BY = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""Packages to import for names that start so. For others, Gymnasium takes `package:Name-v0`."""
NOTHING = -1
"""In `executed`: no action yet in this episode."""


class GymnasiumWorld:
    """A `World` of E copies of one environment, A = 1. An observation is written into the row it belongs to."""

    def __init__(self, name: str, config: WrappedConfig, envs: int) -> None:
        """Build the copies.

        Args:
            name: as Gymnasium's `make` takes it.
            config: how long they go on.
            envs: E, copies, stepped one after another.

        Raises:
            ConfigError: if there is no such environment, or its spaces cannot be used.
        """
        self.copies = [_make(name) for _ in range(envs)]
        """The environments, wrapped as Gymnasium does."""
        first = self.copies[0]
        self._reader = reader_of(first.observation_space, name)
        actions = actions_of(first.action_space, first.unwrapped, name)
        self._spaces = Spaces(envs, 1, self._reader.form, self._reader.shape, actions.names, config.steps)
        self._start = actions.start
        self.executed = np.full((envs, 1), NOTHING, np.int64)
        """The last action of each copy, or `NOTHING`."""
        self._limit = StepLimit(envs, config.steps)

    @property
    def spaces(self) -> Spaces:
        """What the agents see and do."""
        return self._spaces

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        """Reset copies with seeds."""
        for env in np.flatnonzero(which):
            observation, _ = self.copies[env].reset(seed=int(seeds[env]) % 2**32)
            self._reader.write(observation, obs[env, 0])
        self.executed[which] = NOTHING
        self._limit.begin_(which)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every copy."""
        self.executed[...] = actions
        for env, copy in enumerate(self.copies):
            seen, paid, terminated[env], truncated[env], _ = copy.step(int(actions[env, 0]) + self._start)
            self._reader.write(seen, obs[env, 0])
            reward[env] = paid
        self._limit.truncate_(terminated, truncated)

    def close(self) -> None:
        """Close the copies."""
        for copy in self.copies:
            copy.close()


def _make(name: str) -> gymnasium.Env[Any, Any]:
    package = next((package for start, package in REGISTERED_BY.items() if name.startswith(start)), None)
    try:
        if ":" in name:  # Gymnasium imports what stands before it
            import_named(name.partition(":")[0])
        return gymnasium.make(f"{package}:{name}" if package else name, disable_env_checker=True)
    except ModuleNotFoundError as missing:
        remedy = "pip install 'flatwater[teach]'" if package else f"install the package that has {name}"
        raise ConfigError(f"world gymnasium:{name} needs {missing.name}, which is not installed: {remedy}") from missing
    except (ImportError, gymnasium.error.Error) as refused:
        raise ConfigError(f"world gymnasium:{name}: {refused}") from refused
