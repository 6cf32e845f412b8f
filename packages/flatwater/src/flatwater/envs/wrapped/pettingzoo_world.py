"""Copies of a PettingZoo environment as a world, all agents at once (its parallel interface)."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from flatwater.border import Border
from flatwater.config.convert import did_you_mean
from flatwater.envs.kept_state import EpisodeStarts
from flatwater.envs.names import PETTINGZOO
from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.actions import MASK_KEY, make_action_spec, world_spaces, write_mask
from flatwater.envs.wrapped.checks import (
    CONVERSION_ERRORS,
    check_flag,
    check_info,
    check_reward,
    interface_error,
    not_finite_error,
)
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.native import native_spaces
from flatwater.envs.wrapped.pettingzoo_copies import PettingZooCopies
from flatwater.envs.wrapped.step_limit import MAXIMUM_STEPS, StepLimit
from flatwater.named_imports import import_named
from flatwater_watch.errors import ConfigError


class PettingZooWorld(PettingZooCopies):
    """A `World` of E copies of one environment; its agents are the environment's `possible_agents`, in order.

    An agent that is over stays marked as terminated or truncated until all agents of its environment are.
    """

    def __init__(
        self, make: Callable[[], Any], title: str, config: WrappedConfig, envs: int, *, allow_nan: bool = False
    ) -> None:
        """Build the copies; the arguments are those of `GymnasiumWorld`.

        Raises:
            ConfigError: the environment has no agents.
        """
        super().__init__(make, title, envs)
        self._allow_nan, first_copy = allow_nan, self._copies[0]
        self.native = native_spaces(self._observation_space, self._action_space, config.form, title)
        """Spaces of each agent."""
        self._reader = self.native.env_reader
        self._actions = make_action_spec(self._action_space, first_copy.unwrapped, title)
        steps, agents = config.steps or MAXIMUM_STEPS, len(self._agents)
        infos = self._reset_copy(first_copy, 0)[1] if self._actions.bounds is None else {}
        has_masks = self.native.has_mask or any(MASK_KEY in info for info in infos.values())
        self.beginnings = EpisodeStarts(self._copies, make)
        kept_bytes = self.beginnings.state_bytes
        self._spaces = world_spaces(
            self._reader, self._actions, envs=envs, agents=agents, steps=steps, masked=has_masks, kept=kept_bytes
        )
        self._is_over = np.zeros((2, envs, agents), np.bool_)
        """Whether each agent has terminated, and whether it was truncated, bool [2, E, A]."""
        self._limit, self.infos = StepLimit(envs, steps), [dict[str, Any]() for _ in range(envs)]
        # Only measurements, numbers of a Box of floats, can be NaN or infinite.
        self._checks_observations = not allow_nan and bool(self._reader.measures)

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset copies with seeds; the arguments are those of `World` and `MaskedWorld`.

        Raises:
            UserCodeError: a copy's `reset` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        self._is_over[:, env_mask] = False
        self.beginnings.record_starts_(env_mask)
        for env in np.flatnonzero(env_mask):
            # 32 bits of the seed, as NumPy's older generators take no more.
            observations, infos = self._reset_copy(self._copies[env], int(seeds[env]) % 2**32)
            try:
                self._write_observations_(obs[env], observations)
            except CONVERSION_ERRORS as error:
                raise interface_error(self._user_env, "reset", error, f"with seed {int(seeds[env]) % 2**32}") from error
            if legal is not None:
                self._write_legal_(legal[env], observations, infos, self._copies[env].agents)
        self._limit.begin_(env_mask, seeds)
        if self._checks_observations:
            self._check_finite(obs, "reset")

    def step_(  # noqa: PLR0917  (those of a world with masks)
        self,
        actions: Array,
        obs: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        legal: Array | None = None,
    ) -> None:
        """Step every copy with the actions of the agents that are still playing.

        The arguments are those of `World` and `MaskedWorld`; `legal` is None without masks.

        Raises:
            UserCodeError: a copy's `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        for env, copy in enumerate(self._copies):
            env_actions = self._actions.to_env_actions(actions[env])
            # PettingZoo's parallel API takes no action of an agent that is over.
            actions_by_agent = {
                agent: action for agent, action in zip(self._agents, env_actions, strict=True) if agent in copy.agents
            }
            # Only the user's call is within the border; its result is checked outside, with messages of our own.
            with self._step_border:
                results = copy.step(actions_by_agent)
            try:
                observations, rewards, terminations, truncations, infos = (check_info(result) for result in results)
                self.infos[env] = infos if len(self._agents) > 1 else infos.get(self._agents[0], {})
                self._write_observations_(obs[env], observations)
                for index, agent in enumerate(self._agents):
                    # PettingZoo's dicts lack agents that were over before.
                    reward[env, index] = check_reward(rewards.get(agent, 0.0), allow_nan=self._allow_nan)
                    self._is_over[0, env, index] |= check_flag("terminated", terminations.get(agent, False))
                    self._is_over[1, env, index] |= check_flag("truncated", truncations.get(agent, False))
            except CONVERSION_ERRORS as error:
                raise interface_error(self._user_env, "step", error, self._limit.place(env, "step")) from error
            if legal is not None:
                self._write_legal_(legal[env], observations, infos, copy.agents)
        if self._checks_observations:
            self._check_finite(obs, "step")
        # From marks that are kept, as the environment reports an agent's end in one step alone.
        terminated[...], truncated[...] = self._is_over
        self._limit.truncate_(terminated, truncated)

    def _reset_copy(self, copy: Any, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401  (a ParallelEnv)
        """Reset a copy; return its observations and infos by agent, checked to be two dicts.

        Raises:
            UserCodeError: `reset` raised, or its result is not such a pair.
        """
        with self._reset_border:
            answer = copy.reset(seed=seed)
        try:
            observations, infos = answer
            return check_info(observations), check_info(infos)
        except (TypeError, ValueError) as error:
            raise interface_error(self._user_env, "reset", error) from error

    def _check_finite(self, obs: Array, method: str) -> None:
        """Refuse NaN and infinities in the observations of all copies, which `method` has written.

        Raises:
            UserCodeError: a number is NaN or infinite; the message names its environment and place.
        """
        numbers = self._reader.numbers(obs)
        if np.isfinite(numbers).all():
            return
        env, agent, number = (int(index) for index in np.argwhere(~np.isfinite(numbers))[0])
        place = f"{self._agents[agent]}'s {self._reader.part_name(number)}"
        error = not_finite_error(place, numbers[env, agent, number])
        raise interface_error(self._user_env, method, error, self._limit.place(env, method))

    def _write_observations_(self, obs: Array, observations: dict[str, Any]) -> None:
        """Write each agent's observation into its row of `obs` [A, *obs]; padding for an agent that is over."""
        for index, agent in enumerate(self._agents):
            if agent in observations:
                self._reader.write(observations[agent], obs[index])
            else:  # PettingZoo leaves agents that are over out of its dicts
                obs[index] = self._reader.padding

    def _write_legal_(
        self, legal: Array, observations: dict[str, Any], infos: dict[str, Any], agents: list[str]
    ) -> None:
        """Write the masks of `agents`, which are still playing; every action is legal for the others."""
        legal[...] = True
        for index, agent in enumerate(self._agents):
            if agent in agents:
                write_mask(observations.get(agent), infos.get(agent, {}), legal[index], self._name)


def pettingzoo_maker(name: str, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that makes the environment of an ID of PettingZoo's registry, or of a module.

    Where a name has both interfaces, the environment is the parallel one, whose agents act at once, not in turns.

    Raises:
        ConfigError: there is no such ID or module, or the module has neither `parallel_env` nor `env`.
    """
    build = _registered_maker(name) if "/" in name else _module_maker(name)

    def make() -> Any:  # noqa: ANN401  (an environment; PettingZoo ships no types)
        with Border(f"environment {PETTINGZOO}:{name}", build, call="making it"):
            return build(**arguments)

    return make


def _registered_maker(env_id: str) -> Callable[..., Any]:
    """Return the function that makes the environment of an ID such as `classic/connect_four_v3`.

    Raises:
        ConfigError: PettingZoo is not installed, or knows no such ID.
    """
    try:
        pettingzoo = import_named(PETTINGZOO)
    except ImportError as error:
        raise ConfigError(
            f"{PETTINGZOO}:{env_id} needs pettingzoo, which is not installed: pip install 'flatwater[teach]'"
        ) from error
    # PettingZoo before 1.27 has no registry.
    registries = {kind: vars(pettingzoo).get(f"{kind}_registry", {}) for kind in ("parallel", "aec")}
    registered_id = re.sub(r"_v(\d+)\Z", r"-v\1", env_id)  # PettingZoo writes versions both as _v3 and as -v3
    for kind, registry in registries.items():
        if registered_id in registry:
            return partial(pettingzoo.make, kind, registered_id)
    known_ids = sorted({known_id for registry in registries.values() for known_id in registry})
    raise ConfigError(
        f"{PETTINGZOO}:{env_id}: expected an ID of PettingZoo {pettingzoo.__version__}, or a module."
        f"{did_you_mean(registered_id, known_ids)}"
    )


def _module_maker(module: str) -> Callable[..., Any]:
    """Return a module's function `parallel_env`, which makes an environment; if it has none, its `env`.

    Raises:
        ConfigError: the module cannot be imported, or has neither.
    """
    try:
        env_module = import_named(module)
    except ImportError as error:
        raise ConfigError(
            f"pettingzoo:{module} cannot be imported ({error}). Give a module with a parallel_env or an env, such as "
            "mpe2.simple_spread_v3, and install its package and 'flatwater[teach]'"
        ) from error
    makers = [vars(env_module)[name] for name in ("parallel_env", "env") if name in vars(env_module)]
    if not makers:
        raise ConfigError(
            f"pettingzoo:{module}: expected a module with a parallel_env, in which all agents act at once, or with an "
            "env, in which they act in turns, got neither"
        )
    maker: Callable[..., Any] = makers[0]
    return maker
