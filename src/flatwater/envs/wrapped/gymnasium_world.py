"""Copies of a Gymnasium environment as a world of one agent each."""

import sys
from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.kept import Beginnings
from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.spaces import MASK, actions_of, reader_of, write_mask
from flatwater.envs.wrapped.step_limit import StepLimit
from flatwater.errors import ConfigError
from flatwater.imported import import_named

REGISTERED_BY = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""Packages to import for names that start so. For others, Gymnasium takes `package:Name-v0`."""
TALKATIVE = "minigrid.envs.babyai.core.roomgrid_level"
"""Prints a line for each map that it throws away before an episode: thousands in a run of `teach`."""
MOST_STEPS = 1000
"""Of an episode where nobody knows better."""
NOTHING = -1
"""In `executed`: no action yet in this episode."""


class GymnasiumWorld:
    """A `World` of E copies of one environment, A = 1. An observation is written into the row it belongs to."""

    def __init__(self, name: str | type[gymnasium.Env[Any, Any]], config: WrappedConfig, envs: int) -> None:
        """Build the copies.

        Args:
            name: as Gymnasium's `make` takes it, or a class that is called without arguments.
            config: how long they go on.
            envs: E, copies, stepped one after another.
        """
        make = (lambda: named_env(name)) if isinstance(name, str) else name
        self.copies: list[gymnasium.Env[Any, Any]] = [make() for _ in range(envs)]
        """The environments, wrapped as Gymnasium does."""
        first = self.copies[0]
        called = self._name = name if isinstance(name, str) else name.__name__
        try:
            seen, done = first.observation_space, first.action_space
        except AttributeError as missing:
            raise ConfigError(f"{called} is incomplete: {missing}") from missing
        self._reader = reader_of(seen, called, config.form)
        self._actions = actions_of(done, first.unwrapped, called)
        steps = config.steps or (first.spec.max_episode_steps if first.spec else None) or MOST_STEPS
        names, bounds, choices = self._actions.names, self._actions.bounds, self._actions.choices
        masked = bounds is None and MASK in self._reset(first, 0)[1]
        reader, self.beginnings = self._reader, Beginnings(self.copies, make)
        self._spaces = Spaces(
            envs,
            1,
            reader.form,
            reader.shape,
            names,
            steps,
            bounds,
            choices,
            masked,
            reader.measures,
            kept=self.beginnings.room,
        )
        self.executed = np.full((envs, 1, *self._spaces.action_shape), NOTHING, np.float32 if bounds else np.int64)
        """The last action of each copy, or `NOTHING`."""
        self._limit = StepLimit(envs, steps)

    @property
    def spaces(self) -> Spaces:
        """What the agents see and do."""
        return self._spaces

    def _reset(self, copy: gymnasium.Env[Any, Any], seed: int) -> tuple[Any, dict[str, Any]]:
        given: Any = copy.reset(seed=seed)
        try:
            observation, info = given
        except (TypeError, ValueError) as wrong:
            raise self._unlike("reset", wrong) from wrong
        return observation, info

    def _unlike(self, method: str, wrong: Exception) -> ConfigError:
        """What a method gave is not what Gymnasium's interface says."""
        wanted = "(observation, info)" if method == "reset" else "(observation, reward, terminated, truncated, info)"
        return ConfigError(
            f"{self._name}.{method}() does not give {wanted}, with an observation of its observation_space: {wrong}. "
            "flatwater.check_env_conformance looks at an environment before a run"
        )

    def begin_(self, which: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset copies with seeds."""
        self.beginnings.note_(which)
        for env in np.flatnonzero(which):
            observation, info = self._reset(self.copies[env], int(seeds[env]) % 2**32)
            try:
                self._reader.write(observation, obs[env, 0])
            except (TypeError, ValueError, KeyError) as wrong:
                raise self._unlike("reset", wrong) from wrong
            if legal is not None:
                write_mask(info, legal[env, 0], self._name)
        self.executed[which] = NOTHING
        self._limit.begin_(which)

    def step_(  # noqa: PLR0917  (those of a world with masks)
        self,
        actions: Array,
        obs: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        legal: Array | None = None,
    ) -> None:
        """Step every copy."""
        self.executed[...] = actions
        write = self._reader.write
        for env, (copy, action) in enumerate(zip(self.copies, self._actions.given(actions[:, 0]), strict=True)):
            given = copy.step(action)  # an error in it is the user's, with its line
            try:
                seen, reward[env], terminated[env], truncated[env], info = given
                write(seen, obs[env, 0])
            except (TypeError, ValueError, KeyError) as wrong:
                raise self._unlike("step", wrong) from wrong
            if legal is not None:
                legal[env] = True
                if not (terminated[env, 0] or truncated[env, 0]):
                    write_mask(info, legal[env, 0], self._name)
        self._limit.truncate_(terminated, truncated)

    def close(self) -> None:
        """Close the copies."""
        for copy in self.copies:
            copy.close()


def named_env(name: str) -> gymnasium.Env[Any, Any]:
    """The environment that Gymnasium knows by a name.

    Raises:
        ConfigError: if there is none, or a package is missing.
    """
    package = next((package for start, package in REGISTERED_BY.items() if name.startswith(start)), None)
    try:
        if ":" in name:  # Gymnasium imports what stands before it
            import_named(name.partition(":")[0])
        env = gymnasium.make(f"{package}:{name}" if package else name, disable_env_checker=True)
    except ModuleNotFoundError as missing:
        remedy = "pip install 'flatwater[teach]'" if package else f"install the package that has {name}"
        raise ConfigError(f"world gymnasium:{name} needs {missing.name}, which is not installed: {remedy}") from missing
    except (ImportError, gymnasium.error.Error) as refused:
        said = str(refused)
        raise ConfigError(
            f"world gymnasium:{name}: {said}{'' if said.endswith(('.', '?')) else '.'} Give gymnasium: and an ID that "
            'gymnasium.make takes (python -c "import gymnasium; gymnasium.pprint_registry()" lists those that are '
            "installed), or package.module:Class"
        ) from refused
    if (level := sys.modules.get(TALKATIVE)) is not None:
        vars(level)["print"] = lambda *_: None  # the module's own name: other code prints as before
    return env
