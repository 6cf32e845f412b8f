"""A vector environment of Gymnasium as a world: one call steps all of its environments, here or in other processes."""

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from flatwater.envs.kept_state import buffer_size, keeps_state, load_state_, read_env_state
from flatwater.envs.world import Array, UnseededError
from flatwater.envs.wrapped.actions import make_action_spec, world_spaces
from flatwater.envs.wrapped.checks import (
    CONVERSION_ERRORS,
    check_flag,
    check_reset,
    check_reward,
    interface_error,
)
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.env_copies import EnvCopies
from flatwater.envs.wrapped.infos import InfosByNumber
from flatwater.envs.wrapped.masks import MASK_KEY, refuse_late_mask, write_mask
from flatwater.envs.wrapped.method_masks import MASK_METHOD, has_mask_method
from flatwater.envs.wrapped.native_spaces import native_spaces
from flatwater.envs.wrapped.step_limit import MAXIMUM_STEPS, StepLimit
from flatwater_watch.errors import ConfigError, UserCodeError

FINAL, FINAL_INFO = "final_obs", "final_info"
"""Keys in infos of an episode's last observation and last info, where the next episode has begun in the same step."""


class VectorWorld(EnvCopies):
    """A `World` of the environments of one vector environment, A = 1.

    Episodes begin with the requested seeds if single environments can be reset (`options["reset_mask"]`), as in
    Gymnasium's own `SyncVectorEnv` and `AsyncVectorEnv`. A vector environment that begins the next episode by itself,
    within the step that ends one (`AutoresetMode.SAME_STEP`), is accepted, but its episodes follow from no seed.
    """

    def __init__(self, env: Any, title: str, config: WrappedConfig, *, allow_nan: bool = False) -> None:  # noqa: ANN401  (a vector environment of the user's)
        """Wrap the vector environment, and reset it once.

        Args:
            env: a `VectorEnv` of E environments.
            title: name of the environment, for messages.
            config: settings of its environments.
            allow_nan: whether NaN and infinities are passed on; else they end the run.

        Raises:
            ConfigError: the environment begins the next episode only in the step after the last one's end.
        """
        envs, inner_env = int(env.num_envs), env.unwrapped
        super().__init__([env], inner_env, title)
        self._env, self._allow_nan = env, allow_nan
        mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))  # Gymnasium's default
        self._can_reset_single = isinstance(inner_env, SyncVectorEnv | AsyncVectorEnv) or mode is AutoresetMode.DISABLED
        self._resets_in_same_step = mode is AutoresetMode.SAME_STEP
        if not self._can_reset_single and not self._resets_in_same_step:
            raise ConfigError(_late_reset_text(env))
        self._action_space = env.single_action_space
        self.native = native_spaces(env.single_observation_space, self._action_space, config.form, title)
        """Spaces of each environment."""
        self._reader = self.native.env_reader
        self._actions = make_action_spec(self._action_space, None, title)
        steps = config.steps or _step_limit(env) or MAXIMUM_STEPS
        # All environments, with seed 0: shows whether infos have masks, and begins the first episodes where no single
        # environment can be reset.
        observations, infos = self._reset_envs(np.ones(envs, np.bool_), np.zeros(envs, np.int64))
        has_masks = self.native.has_mask or (self._actions.bounds is None and MASK_KEY in infos)
        if not has_masks and any(map(has_mask_method, _single_envs(env))):
            raise ConfigError(
                f"{title}: its environments tell legal actions by {MASK_METHOD}(), which a vector environment does not "
                "pass on. Give the environment itself, or the mask in info['action_mask'] of each reset and step"
            )
        kept_bytes = buffer_size(read_env_state(env)) if keeps_state(env) else 0
        self._spaces = world_spaces(
            self._reader, self._actions, envs=envs, steps=steps, masked=has_masks, kept=kept_bytes
        )
        self._limit = StepLimit(envs, steps)
        # Only measurements, numbers of a Box of floats, can be NaN or infinite.
        self._checks_observations = not allow_nan and bool(self._reader.measures)
        self._next_starts = list(iterate(env.observation_space, observations)), infos
        """First observations, and infos, of episodes that the environment has begun by itself."""
        self._has_next_begun = np.zeros(envs, np.bool_)
        """Whether each environment has begun its next episode by itself, bool [E]."""
        self._infos, self.infos = infos, InfosByNumber(envs, self._read_info)

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset environments with seeds, or use the episodes that the vector environment has begun by itself.

        The environments of `env_mask`, bool [E], begin. Their rows of `obs` are written, and those of the masks
        `legal`, which is None in a world without masks.

        Raises:
            UserCodeError: `reset` failed, or its result is not as the interface says.
            UnseededError: an environment would have to be reset alone, and cannot be.
        """
        if self._can_reset_single or env_mask.all():
            observations, infos = self._reset_envs(env_mask, seeds)
            rows = list(iterate(self._env.observation_space, observations))
        elif self._has_next_begun[env_mask].all():  # the last step has given their first observations
            rows, infos = self._next_starts
        else:
            raise UnseededError(
                f"{self._name} begins episodes by itself, and none of its environments can be reset alone with a seed "
                f"(where episodes have more than {self._spaces.steps} steps, give --wrapped.steps N)"
            )
        for env in map(int, np.flatnonzero(env_mask)):
            self._write_observation_(obs, env, rows[env], "reset")
            if legal is not None:
                write_mask(rows[env], _mask_and_last_observation(infos, env), legal[env, 0], self._name)
        self._has_next_begun[env_mask] = False
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
        """Step all environments at once; all arrays after `actions` are written, `legal` only in a world with masks.

        Raises:
            UserCodeError: `step` failed, or its result is not as the interface says.
        """
        space, action_buffer = self._action_space, create_empty_array(self._action_space, len(actions))
        assert action_buffer is not None  # noqa: S101  (for the type checker: spaces of actions are not graphs and no texts)
        # The actions of all environments in the form of the vector environment, such as one array.
        env_actions = concatenate(space, list(self._actions.to_env_actions(actions[:, 0])), action_buffer)
        with self._step_guard:
            answer = self._env.step(env_actions)
        try:
            observations, rewards, terminations, truncations, infos = answer
            rows = list(iterate(self._env.observation_space, observations))  # each environment's observation
            for env in range(len(actions)):
                reward[env] = check_reward(rewards[env], allow_nan=self._allow_nan)
                terminated[env] = check_flag("terminated", terminations[env])
                truncated[env] = check_flag("truncated", truncations[env])
        except CONVERSION_ERRORS as error:
            # A whole result may be wrong, and so belong to no environment: the message names the step of the first.
            raise interface_error(self._user_layer, "step", error, self._limit.place(0, "step")) from error
        is_over = (terminated | truncated)[:, 0]
        self._infos, self._next_starts = infos, (rows, infos)
        self._has_next_begun[...] = is_over & self._resets_in_same_step
        for env, row in enumerate(rows):
            # After an automatic reset the row is of the next episode, and the last observation is in the info.
            last_observation = self._last_observation(infos, env) if self._has_next_begun[env] else row
            self._write_observation_(obs, env, last_observation, "step")
            if legal is not None:
                legal[env] = True  # every action is, after the end of the episode
                if not terminated[env, 0]:
                    # After an automatic reset an info's mask is of the next episode.
                    info = {} if self._has_next_begun[env] else _mask_and_last_observation(infos, env)
                    write_mask(last_observation, info, legal[env, 0], self._name, truncated=bool(truncated[env, 0]))
        if legal is None and self._actions.bounds is None:
            refuse_late_mask(infos, self._name)
        if self._checks_observations:
            self._check_finite(self._reader, obs, "step")
        self._limit.truncate_(terminated, truncated)

    def state_dict(self) -> Any:  # noqa: ANN401  (of the wrappers)
        """Return the state that wrappers of the vector environment keep over episodes."""
        return read_env_state(self._env)

    def load_state_dict(self, state: Any) -> None:  # noqa: ANN401  (of the wrappers)
        """Give the wrappers of the vector environment back a state that `state_dict` has returned."""
        load_state_(self._env, state)

    def render(self) -> object:
        """Return the first environment's frame, of those that the vector environment's `render` gives."""
        frames: Any = super().render()
        return None if frames is None else frames[0]

    def _read_info(self, env: int) -> dict[str, Any]:
        """Return the info of an environment's last step, even if the next episode has begun in that step."""
        info = _env_info(self._infos, env, self._spaces.envs)
        last_info = info.get(FINAL_INFO) if self._has_next_begun[env] else None
        return info if last_info is None else last_info

    def _last_observation(self, infos: Any, env: int) -> Any:  # noqa: ANN401  (of the space)
        """Return the last observation of an episode, where the next one has begun in the same step.

        Raises:
            UserCodeError: the infos do not have it.
        """
        last_observation = _mask_and_last_observation(infos, env).get(FINAL)
        if last_observation is None:
            fault = ValueError(
                f"the episode is over, and the infos have no {FINAL!r}: expected its last observation there, as the "
                "next episode begins in the same step (AutoresetMode.SAME_STEP)"
            )
            raise interface_error(self._user_layer, "step", fault, self._limit.place(env, "step"))
        return last_observation

    def _reset_envs(self, env_mask: Array, seeds: Array) -> tuple[Any, dict[str, Any]]:
        """Reset environments; return the observations and infos of all, of which only those of `env_mask` are new.

        Raises:
            UserCodeError: `reset` raised, or its result is not such a pair.
        """
        # Without the option all are reset, which every vector environment can do.
        options = {} if env_mask.all() else {"options": {"reset_mask": env_mask.copy()}}
        try:
            with self._reset_guard:
                # 32 bits of each seed, as NumPy's older generators take no more.
                answer = self._env.reset(seed=[int(seed) % 2**32 for seed in seeds], **options)
        except UserCodeError as error:
            if not options:
                raise
            raise UserCodeError(
                f"{error}. A run resets single environments of a vector environment, by options['reset_mask']: where a "
                "wrapper cannot, wrap each environment instead, or give what makes one and --wrapped.wrappers"
            ) from error
        try:
            observations, infos = check_reset(answer)
        except TypeError as error:
            raise interface_error(self._user_layer, "reset", error) from error
        return observations, infos

    def _write_observation_(self, obs: Array, env: int, row: Any, method: str) -> None:  # noqa: ANN401  (of the space)
        """Write an environment's observation, the result of `method`, into its row of `obs`.

        Raises:
            UserCodeError: an observation is not of the space.
        """
        try:
            self._reader.write(row, obs[env, 0])
        except CONVERSION_ERRORS as error:
            raise interface_error(self._user_layer, method, error, self._limit.place(env, method)) from error


def _mask_and_last_observation(infos: Any, env: int) -> dict[str, Any]:  # noqa: ANN401  (whatever the environment gives)
    """Return one environment's mask and last observation from the infos of all; keys that are missing are left out."""
    return {name: _column_entry(infos[name], env) for name in (MASK_KEY, FINAL) if name in infos}


def _column_entry(column: Any, env: int) -> Any:  # noqa: ANN401  (whatever the environment gives)
    """Return environment `env`'s entry of a column with one for each environment; of a dict of columns, a dict."""
    if isinstance(column, dict):
        return {key: _column_entry(inner, env) for key, inner in column.items()}
    return column[env]


def _env_info(infos: dict[str, Any], env: int, envs: int) -> dict[str, Any]:
    """Return one environment's info from the infos of all, without keys that only other environments have.

    In Gymnasium's form each `key` has a column, an entry for each environment, and `_key` the flags of those that have
    it: {"speed": [0.5, 0.0], "_speed": [True, False]}. Nested infos have the same form. A value that is not a column
    of `envs` entries belongs to all environments.

    Args:
        infos: infos of all environments.
        env: number of the environment.
        envs: number of environments.
    """
    info = {}
    for key, column in infos.items():
        is_flags = str(key).startswith("_") and str(key)[1:] in infos
        # Without flags all environments have the key.
        is_missing = f"_{key}" in infos and not infos[f"_{key}"][env]
        if is_flags or is_missing:
            continue
        if isinstance(column, dict):
            info[key] = _env_info(column, env, envs)
        else:
            # None for a single value, which has no axis.
            length = len(column) if isinstance(column, list | tuple) else next(iter(np.shape(column)), None)
            info[key] = column[env] if length == envs else column
    return info


def _single_envs(env: VectorEnv[Any, Any, Any]) -> Iterable[gymnasium.Env[Any, Any]]:
    """Return the environments of a `SyncVectorEnv`; those of other vector environments cannot be reached."""
    inner_env = env.unwrapped
    return inner_env.envs if isinstance(inner_env, SyncVectorEnv) else ()


def _step_limit(env: VectorEnv[Any, Any, Any]) -> int | None:
    """Return the limit on an episode's steps from Gymnasium's registration of the environment; None without any."""
    specs = [env.spec, *(single.spec for single in _single_envs(env))]
    return next((spec.max_episode_steps for spec in specs if spec is not None), None)


def _late_reset_text(env: VectorEnv[Any, Any, Any]) -> str:
    """Return the error message for a vector environment that begins an episode one step after the last has ended."""
    env_id, class_name = env.spec.id if env.spec is not None else "", type(env.unwrapped).__name__
    advice = f'env="{env_id}", or gymnasium.make_vec("{env_id}", ..., vectorization_mode="sync")'
    return (
        f"{class_name} begins an episode in the step after the last one's end (AutoresetMode.NEXT_STEP), a step that "
        "nobody has taken: expected a SyncVectorEnv, an AsyncVectorEnv, or metadata whose autoreset_mode is SAME_STEP "
        f"or DISABLED.{f' Give {advice}' if env_id else ''}"
    )
