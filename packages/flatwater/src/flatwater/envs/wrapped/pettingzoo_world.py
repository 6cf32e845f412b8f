"""Copies of a PettingZoo environment as a world, all agents at once (its parallel interface)."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from flatwater.config.convert import did_you_mean
from flatwater.envs.kept_state import EpisodeStarts
from flatwater.envs.kinds import KindRows, join_kinds, name_kinds
from flatwater.envs.names import PETTINGZOO
from flatwater.envs.world import AgentKind, Array
from flatwater.envs.wrapped.actions import ActionSpec, make_action_spec, world_spaces
from flatwater.envs.wrapped.checks import (
    CONVERSION_ERRORS,
    check_flag,
    check_info,
    check_reset,
    check_reward,
    interface_error,
)
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.masks import MASK_KEY, refuse_late_mask, write_mask
from flatwater.envs.wrapped.native_spaces import NativeSpaces, native_spaces
from flatwater.envs.wrapped.pettingzoo_copies import PettingZooCopies
from flatwater.envs.wrapped.spaces import ObservationReader
from flatwater.envs.wrapped.step_limit import MAXIMUM_STEPS, StepLimit
from flatwater.named_imports import import_named_module
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr


class _KindPart(NamedTuple):
    """How the agents of a kind are observed and act, and where they are in the world's arrays."""

    kind: AgentKind
    native: NativeSpaces
    reader: ObservationReader
    """Reads observations as the environment gives them, with a mask next to them where there is one."""
    actions: ActionSpec
    rows: KindRows | None = None
    """Rows of these agents, where there are other kinds as well; None where the world's rows are their own."""


class PettingZooWorld(PettingZooCopies):
    """A `World` of E copies of one environment; its agents are the environment's `possible_agents`, in order.

    An agent that is over stays marked as terminated or truncated until all agents of its environment are. Agents of
    different spaces are several kinds, side by side in the arrays (`envs.kinds`).
    """

    native: NativeSpaces
    """Spaces of each agent; absent where agents have different ones."""

    def __init__(
        self, make: Callable[[], Any], title: str, config: WrappedConfig, envs: int, *, allow_nan: bool = False
    ) -> None:
        """Build the copies, and group the agents by equal spaces: each group is a kind, with its part of the arrays.

        Args:
            make: returns a new copy.
            title: name of the environment, for messages.
            config: settings of the copies.
            envs: number of copies, E.
            allow_nan: whether NaN and infinities are passed on; else they end the run.

        Raises:
            ConfigError: the environment has no agents, or its agents cannot act in one world.
        """
        super().__init__(make, title, envs)
        self._allow_nan = allow_nan
        has_choices = any(not isinstance(action, Box) for _, action in self._agent_spaces.values())
        # A reset shows which agents have masks; actions that are numbers have none.
        infos = self._reset_copy(self.copies[0], seed=0)[1] if has_choices else {}
        self.episode_starts = EpisodeStarts(self.copies, make)
        groups = self._group_agents(infos)
        kind_names = name_kinds([[*map(str, group)] for group in groups])
        parts = [self._make_part(name, agents, config, infos) for name, agents in zip(kind_names, groups, strict=True)]
        # A part says how the agents of one kind are observed and act, and where they are in the world's arrays.
        if len(parts) == 1:  # the world's arrays are the kind's own
            self.native, self._spaces = parts[0].native, parts[0].kind.spaces
        else:  # the kinds share the world's arrays, each in rows of its own
            self._spaces = join_kinds([part.kind for part in parts], title)
            parts = [part._replace(rows=KindRows(part.kind, self._spaces)) for part in parts]
        self._parts = parts
        part_by_place = {place: part for part in parts for place in part.kind.places}
        self._part_by_agent = [part_by_place[place] for place in range(len(self._agents))]
        """Part of each agent, in the order of `_agents`."""
        self._is_over = np.zeros((2, envs, len(self._agents)), np.bool_)
        """Whether each agent has terminated, and whether it was truncated, bool [2, E, A]."""
        self._limit = StepLimit(envs, self._spaces.steps)
        self.infos = [dict[str, Any]() for _ in range(envs)]
        # Only measurements, numbers of a Box of floats, can be NaN or infinite.
        self._checked_parts = [part for part in parts if not allow_nan and part.reader.measures]

    def _group_agents(self, infos: dict[str, Any]) -> list[list[Any]]:
        """Return the agents in groups, whose agents have equal spaces, and all have masks or none.

        `infos` are those of a reset, by agent; empty if no agent can have a mask.
        """
        groups = list[list[Any]]()
        for agent in self._agents:
            for group in groups:
                # Whether each of two agents has a mask; unknown for an agent that was not there at the reset.
                has_masks = {MASK_KEY in infos[other] for other in (agent, group[0]) if other in infos}
                if self._agent_spaces[agent] == self._agent_spaces[group[0]] and len(has_masks) < 2:  # noqa: PLR2004  (with masks and without)
                    group.append(agent)
                    break
            else:
                groups.append([agent])
        return groups

    def _make_part(self, name: str, agents: list[Any], config: WrappedConfig, infos: dict[str, Any]) -> _KindPart:
        """Return a kind of agents with its spaces, its reader of observations and its actions.

        Args:
            name: name of the kind.
            agents: agents of equal spaces.
            config: settings of the copies.
            infos: infos of a reset by agent, which may have masks.
        """
        observation, action = self._agent_spaces[agents[0]]
        native = native_spaces(observation, action, config.form, self._name)
        actions = make_action_spec(action, self.copies[0].unwrapped, self._name)
        has_masks = native.has_mask or any(MASK_KEY in infos.get(agent, {}) for agent in agents)
        spaces = world_spaces(
            native.reader,
            actions,
            envs=len(self.copies),
            agents=len(agents),
            steps=config.steps or MAXIMUM_STEPS,
            masked=has_masks and actions.bounds is None,
            kept=self.episode_starts.state_bytes,
        )
        places = tuple(self._agents.index(agent) for agent in agents)
        kind = AgentKind(
            name=name,
            agents=tuple(map(str, agents)),
            places=places,
            spaces=spaces,
            observation=observation,
            action=action,
            form=config.form,
        )
        return _KindPart(kind, native, native.env_reader, actions)

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, legal: Array | None = None) -> None:
        """Reset the copies of `env_mask`, bool [E], with their seeds.

        Their rows of `obs` are written, and those of the masks `legal`, which is None in a world without masks.

        Raises:
            UserCodeError: a copy's `reset` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        self._is_over[:, env_mask] = False
        self.episode_starts.record_starts_(env_mask)
        for env in np.flatnonzero(env_mask):
            # 32 bits of the seed, as NumPy's older generators take no more.
            observations, infos = self._reset_copy(self.copies[env], int(seeds[env]) % 2**32)
            try:
                self._write_observations_(obs[env], observations)
            except CONVERSION_ERRORS as error:
                raise interface_error(
                    self._user_layer, "reset", error, f"with seed {int(seeds[env]) % 2**32}"
                ) from error
            if legal is not None:
                self._write_legal_(legal[env], observations, infos, self.copies[env].agents)
        self._limit.begin_(env_mask, seeds)
        self._check_all_finite(obs, "reset")

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

        All arrays after `actions` are written; `legal` is None in a world without masks.

        Raises:
            UserCodeError: a copy's `step` failed, or its result is not as the interface says.
            RunError: there is no mask of the length that is expected.
        """
        for env, copy in enumerate(self.copies):
            # PettingZoo's parallel API takes no action of an agent that is over.
            actions_by_agent = {
                self._agents[place]: action
                for part in self._parts
                for place, action in zip(part.kind.places, self._env_actions(part, actions, env), strict=True)
                if self._agents[place] in copy.agents
            }
            # Only the user's call is within the guard; its result is checked outside, with messages of our own.
            with self._step_guard:
                results = copy.step(actions_by_agent)
            try:
                # Each is a dict by agent.
                observations, rewards, terminations, truncations, infos = (check_info(result) for result in results)
                # By agent; of a single agent the info itself.
                self.infos[env] = infos if len(self._agents) > 1 else infos.get(self._agents[0], {})
                self._write_observations_(obs[env], observations)
                for index, agent in enumerate(self._agents):
                    # PettingZoo's dicts lack agents that were over before.
                    reward[env, index] = check_reward(rewards.get(agent, 0.0), allow_nan=self._allow_nan)
                    self._is_over[0, env, index] |= check_flag("terminated", terminations.get(agent, False))
                    self._is_over[1, env, index] |= check_flag("truncated", truncations.get(agent, False))
            except CONVERSION_ERRORS as error:
                raise interface_error(self._user_layer, "step", error, self._limit.place(env, "step")) from error
            if legal is not None:
                self._write_legal_(legal[env], observations, infos, copy.agents)
            for agent, part in zip(self._agents, self._part_by_agent, strict=True):
                if part.actions.bounds is None and not part.kind.spaces.masked:
                    refuse_late_mask(infos.get(agent, {}), self._name)
        self._check_all_finite(obs, "step")
        # From flags that are kept over steps, as the environment reports an agent's end in one step alone.
        terminated[...], truncated[...] = self._is_over
        self._limit.truncate_(terminated, truncated)

    @staticmethod
    def _env_actions(part: _KindPart, actions: Array, env: int) -> Sequence[Any]:
        """Return the actions of a part's agents in an environment as it takes them, in the order of their places."""
        # A slice keeps the axis of environments, which `read_actions` expects.
        own_actions = actions[env] if part.rows is None else part.rows.read_actions(actions[env : env + 1])[0]
        return part.actions.to_env_actions(own_actions)

    def _reset_copy(self, copy: Any, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401  (a ParallelEnv)
        """Reset a copy; return its observations and infos by agent, checked to be two dicts.

        Raises:
            UserCodeError: `reset` raised, or its result is not such a pair.
        """
        with self._reset_guard:
            answer = copy.reset(seed=seed)
        try:
            observations, infos = check_reset(answer)
            return check_info(observations), check_info(infos)
        except (TypeError, ValueError) as error:
            raise interface_error(self._user_layer, "reset", error) from error

    def _check_all_finite(self, obs: Array, method: str) -> None:
        """Refuse NaN and infinities in the measurements of each kind of agents, which `method` has written."""
        for part in self._checked_parts:
            own_obs = obs if part.rows is None else part.rows.read_obs(obs)
            self._check_finite(part.reader, own_obs, method, part.kind.agents)

    def _write_observations_(self, obs: Array, observations: dict[str, Any]) -> None:
        """Write each agent's observation into its row of `obs` [A, *obs]; padding for an agent that is over.

        Raises:
            ValueError: an agent is not in `possible_agents`.
        """
        unknown = observations.keys() - self._agents
        if unknown:
            raise ValueError(f"{min(unknown, key=str)!r} is not in possible_agents, {short_repr(self._agents)}")
        for row, agent, part in zip(obs, self._agents, self._part_by_agent, strict=True):
            own_row = row if part.rows is None else part.rows.clear_obs_row_(row)
            if agent in observations:
                part.reader.write(observations[agent], own_row)
            else:  # PettingZoo leaves agents that are over out of its dicts
                own_row[...] = part.reader.padding

    def _write_legal_(
        self, legal: Array, observations: dict[str, Any], infos: dict[str, Any], agents: list[str]
    ) -> None:
        """Write the masks of `agents`, which are still playing, into `legal` [A, R]; others may take any action."""
        legal[...] = True
        for row, agent, part in zip(legal, self._agents, self._part_by_agent, strict=True):
            # Where kinds differ, the mask is written apart, and then spread over the wider row.
            own_row = row if part.rows is None else np.ones(sum(part.kind.spaces.lists), np.bool_)
            if agent in agents and part.kind.spaces.masked:
                write_mask(observations.get(agent), infos.get(agent, {}), own_row, self._name)
            if part.rows is not None:
                part.rows.write_legal_row_(row, own_row)


def pettingzoo_maker(name: str, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that makes the environment of an ID of PettingZoo's registry, or of a module.

    Where a name has both interfaces, the environment is the parallel one, whose agents act at once, not in turns.

    Raises:
        ConfigError: there is no such ID or module, or the module has neither `parallel_env` nor `env`.
    """
    build = _registered_maker(name) if "/" in name else _module_maker(name)

    def make() -> Any:  # noqa: ANN401  (an environment; PettingZoo ships no types)
        with CallGuard(f"environment {PETTINGZOO}:{name}", build, call="making it"):
            return build(**arguments)

    return make


def _registered_maker(env_id: str) -> Callable[..., Any]:
    """Return the function that makes the environment of an ID such as `classic/connect_four_v3`.

    Raises:
        ConfigError: PettingZoo is not installed, or knows no such ID.
    """
    try:
        pettingzoo = import_named_module(PETTINGZOO)
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
        env_module = import_named_module(module)
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
