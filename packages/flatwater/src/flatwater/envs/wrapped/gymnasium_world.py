"""Copies of a Gymnasium environment as a world of one agent each."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.kept_state import EpisodeStarts, keeps_state, wrapper_layers
from flatwater.envs.world import Array
from flatwater.envs.wrapped.actions import make_action_spec, world_spaces
from flatwater.envs.wrapped.checks import (
    CONVERSION_ERRORS,
    check_flag,
    check_info,
    check_reset,
    check_reward,
    interface_error,
    source_location,
)
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.env_copies import EnvCopies
from flatwater.envs.wrapped.masks import MASK_KEY, refuse_late_mask, write_mask
from flatwater.envs.wrapped.native_spaces import native_spaces
from flatwater.envs.wrapped.step_limit import MAXIMUM_STEPS, StepLimit
from flatwater.user_code import CallGuard, dotted_name, find_source_line
from flatwater_watch.errors import ConfigError, UserCodeError

NO_ACTION = -1
"""Value in `executed` before the first action of an episode."""


class GymnasiumWorld(EnvCopies):
    """A `World`, or a `MaskedWorld`, of E copies of one Gymnasium environment, A = 1."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        title: str,
        config: WrappedConfig,
        envs: int,
        *,
        allow_nan: bool = False,
    ) -> None:
        """Build the copies, and reset the first one to see whether there are masks.

        Args:
            make: returns a new copy.
            title: name of the environment, for messages.
            config: settings of the copies.
            envs: number of copies, E, stepped one after another.
            allow_nan: whether NaN and infinities are passed on; else they end the run.
        """
        copies = [make() for _ in range(envs)]
        first_copy, user_layer = copies[0], _find_user_layer(copies[0])
        super().__init__(copies, user_layer, title, reset_signature="reset(self, *, seed=None, options=None)")
        self._space_guard = CallGuard(
            self._subject, user_layer, "observation_space", call="its spaces", passing=(AttributeError,)
        )
        self._allow_nan = allow_nan
        observation_space, action_space = self._first_spaces = self._read_spaces(first_copy)
        self.native = native_spaces(observation_space, action_space, config.form, title)
        """Spaces of the environment."""
        self._reader = self.native.env_reader
        self._actions = make_action_spec(action_space, first_copy.unwrapped, title)
        for copy in self.copies[1:]:
            self._check_spaces(copy)
        registered_limit = first_copy.spec.max_episode_steps if first_copy.spec else None
        steps = config.steps or registered_limit or MAXIMUM_STEPS  # the first of the three that is known
        # A mask is next to the observation, as the space says, or in the infos of choices, as a reset shows.
        masked = self.native.has_mask
        if not masked and not self._actions.bounds:
            masked = MASK_KEY in self._reset_copy(first_copy, 0)[1]
        if keeps_state(first_copy):  # the reset may have changed the state that it keeps: a new copy takes its place
            first_copy.close()
            self.copies[0] = make()
        self.episode_starts = EpisodeStarts(self.copies, make)
        self._spaces = world_spaces(
            self._reader, self._actions, envs=envs, steps=steps, masked=masked, kept=self.episode_starts.state_bytes
        )
        # Only measurements, numbers of a Box of floats, can be NaN or infinite.
        self._checks_observations = not allow_nan and bool(self._reader.measures)
        self.executed = np.full((envs, 1, *self._spaces.action_shape), NO_ACTION, self._spaces.action_type)
        """Last action of each copy, or `NO_ACTION`."""
        self._limit, self.infos = StepLimit(envs, steps), [dict[str, Any]() for _ in range(envs)]

    def _read_spaces(self, copy: gymnasium.Env[Any, Any]) -> tuple[Any, Any]:
        """Return a copy's observation and action space.

        Raises:
            ConfigError: a space is missing, or is not one of Gymnasium's.
        """
        try:
            # The guard lets an AttributeError pass: a missing space is reported below.
            with self._space_guard:
                spaces = copy.observation_space, copy.action_space
        except AttributeError as error:
            raise ConfigError(f"{self._name} is incomplete: {error}") from error
        for name, space in zip(("observation_space", "action_space"), spaces, strict=True):
            if not isinstance(space, gymnasium.Space):
                raise ConfigError(f"{self._name}.{name} is of {type(space)}: expected a space of gymnasium.spaces")
        return spaces

    def _check_spaces(self, copy: gymnasium.Env[Any, Any]) -> None:
        """Refuse a copy whose spaces differ from those of the first copy, which the whole world uses.

        Raises:
            UserCodeError: the spaces differ.
        """
        # Identity first, which is quick: most environments return the same object each time.
        for first_space, current_space in zip(self._first_spaces, self._read_spaces(copy), strict=True):
            if current_space is not first_space and current_space != first_space:
                raise UserCodeError(
                    f"environment {dotted_name(self._user_layer)}: expected the same spaces in all copies and "
                    f"episodes, got {current_space} after {first_space}{source_location(self._user_layer)}"
                )

    def _reset_copy(self, copy: gymnasium.Env[Any, Any], seed: int) -> tuple[Any, dict[str, Any]]:
        """Reset a copy; return its observation and info, checked to be a pair with a dict.

        Raises:
            UserCodeError: `reset` raised, or its result is not such a pair.
        """
        with self._reset_guard:
            answer: Any = copy.reset(seed=seed)
        try:
            observation, info = check_reset(answer)
            return observation, check_info(info)
        except (TypeError, ValueError) as error:
            raise interface_error(self._user_layer, "reset", error) from error

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset the copies of `env_mask`, bool [E], with their seeds.

        Their rows of `obs` are written, and those of the masks `legal`, which is None in a world without masks.

        Raises:
            UserCodeError: a copy's `reset` failed, its result is not as the interface says, or its spaces have changed.
            RunError: there is no mask of the length that is expected.
        """
        self.episode_starts.record_starts_(env_mask)
        for env in np.flatnonzero(env_mask):
            # 32 bits of the seed, as NumPy's older generators take no more.
            observation, info = self._reset_copy(self.copies[env], int(seeds[env]) % 2**32)
            self._check_spaces(self.copies[env])
            try:
                self._reader.write(observation, obs[env, 0])
            except CONVERSION_ERRORS as error:
                raise interface_error(
                    self._user_layer, "reset", error, f"with seed {int(seeds[env]) % 2**32}"
                ) from error
            if legal is not None:
                write_mask(observation, info, legal[env, 0], self._name)
        self.executed[env_mask] = NO_ACTION
        self._limit.begin_(env_mask, seeds)
        if self._checks_observations:
            self._check_finite(self._reader, obs, "reset")

    def step_(  # noqa: PLR0917  (those of a world with masks)
        self,
        actions: Array,
        obs: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        legal: Array | None = None,
    ) -> None:
        """Step every copy, one after another, and check its result.

        All arrays after `actions` are written; `legal` is None in a world without masks.

        Raises:
            UserCodeError: a copy's `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        self.executed[...] = actions
        write, step_guard = self._reader.write, self._step_guard
        for env, (copy, action) in enumerate(
            zip(self.copies, self._actions.to_env_actions(actions[:, 0]), strict=True)
        ):
            # Only the user's call is within the guard; its result is checked outside, with messages of our own.
            with step_guard:
                answer = copy.step(action)
            try:
                observation, raw_reward, termination, truncation, info = answer
                reward[env] = check_reward(raw_reward, allow_nan=self._allow_nan)
                terminated[env], truncated[env] = (
                    check_flag("terminated", termination),
                    check_flag("truncated", truncation),
                )
                write(observation, obs[env, 0])
                self.infos[env] = check_info(info)
            except CONVERSION_ERRORS as error:
                raise interface_error(self._user_layer, "step", error, self._limit.place(env, "step")) from error
            if legal is not None:
                legal[env] = True  # every action is, after the end of the episode
                if not terminated[env, 0]:
                    write_mask(observation, info, legal[env, 0], self._name, truncated=bool(truncated[env, 0]))
            elif self._actions.bounds is None:
                refuse_late_mask(info, self._name)
        if self._checks_observations:
            self._check_finite(self._reader, obs, "step")
        self._limit.truncate_(terminated, truncated)


def _find_user_layer(env: gymnasium.Env[Any, Any]) -> Any:  # noqa: ANN401  (an Env, or a wrapper of the user's)
    """Return the layer that errors blame: the outermost that is the user's own code, else the environment itself."""
    return next((layer for layer in wrapper_layers(env) if find_source_line(layer)), env.unwrapped)
