"""What was trained where agents have different spaces: a policy for each kind of agents, asked by the agent's name."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from flatwater.envs.kinds import KindRows
from flatwater.envs.world import Array, Spaces
from flatwater.runs.policy_export import PolicyExport
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater_watch.errors import ConfigError

ByAgent = Mapping[str, Any]


class KindsPolicy:
    """The policies of a run by agent: `policy["adversary_0"]` is a `TrainedPolicy`.

    `act`, `value` and `predict` take and return dicts by agent, as PettingZoo's parallel environments do, or what one
    agent observes with its name as `agent`.
    """

    def __init__(self, policies: Mapping[str, TrainedPolicy], spaces: Spaces) -> None:
        """Keep the policies by kind, and the spaces of the world that they were trained in."""
        self._spaces = spaces
        self.policies = dict(policies)
        """Policy of each kind of agents, by the kind's name."""
        self.generator = torch.Generator().manual_seed(0)
        """Generator from which all agents' actions are drawn."""
        # A policy of its own for each agent, with the network of its kind: each remembers its own episode.
        self._by_agent = {agent: policies[kind.name].fresh() for kind in spaces.kinds for agent in kind.agents}
        for policy in (*self._by_agent.values(), *self.policies.values()):
            policy.generator = self.generator

    def __getitem__(self, agent: str) -> TrainedPolicy:
        """Return the policy of an agent.

        Raises:
            ConfigError: there is no agent of this name.
        """
        if agent not in self._by_agent:
            raise ConfigError(f"agent = {agent!r}: expected one of {', '.join(self._by_agent)}")
        return self._by_agent[agent]

    def observation_space(self, agent: str) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Return the space of an agent's observations, without a mask next to them."""
        return self[agent].observation_space

    def action_space(self, agent: str) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Return the space of an agent's actions."""
        return self[agent].action_space

    def begin(self) -> None:
        """Clear the memory of all agents, as their episodes begin."""
        for policy in self._by_agent.values():
            policy.begin()

    def act(
        self,
        obs: Any,  # noqa: ANN401  (whatever the space holds)
        legal: Any = None,  # noqa: ANN401  (an array, or a dict by agent)
        *,
        agent: str | None = None,
        deterministic: bool = True,
        generator: torch.Generator | None = None,
    ) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Return the action of each agent in a dict of observations, or that of `agent` on its observation.

        Args:
            obs: observations by agent, or with `agent` an observation, or several, as in `TrainedPolicy.act`.
            legal: masks of legal actions in the form of `obs`, where they are not in the observations.
            agent: name of the agent that observes `obs`; None for a dict by agent.
            deterministic: return the likeliest action, or draw one.
            generator: a CPU generator to draw from; left out, the policies' own.
        """
        draw_options: dict[str, Any] = {"deterministic": deterministic, "generator": generator}
        if agent is not None:
            return self[agent].act(obs, legal, **draw_options)
        return {
            name: self[name].act(agent_obs, _agent_value(legal, name), **draw_options)
            for name, agent_obs in _require_dict(obs).items()
        }

    def value(self, obs: Any, legal: Any = None, *, agent: str | None = None) -> Any:  # noqa: ANN401  (as in `act`)
        """Return the critic's value of each agent's observation; the arguments are those of `act`."""
        if agent is not None:
            return self[agent].value(obs, legal)
        return {
            name: self[name].value(agent_obs, _agent_value(legal, name))
            for name, agent_obs in _require_dict(obs).items()
        }

    def predict(
        self,
        observation: Any,  # noqa: ANN401  (whatever the space holds)
        state: Any = None,  # noqa: ANN401  (arrays, or a dict of these by agent)
        episode_start: Array | None = None,
        deterministic: bool = False,  # noqa: FBT001, FBT002  (Stable-Baselines3's signature)
        action_masks: Any = None,  # noqa: ANN401  (an array, or a dict by agent)
        *,
        agent: str | None = None,
    ) -> tuple[Any, Any]:
        """Return actions, and the memory after them, as `TrainedPolicy.predict`; for a dict by agent, two dicts.

        Args:
            observation: observations by agent, or with `agent` an observation, or several.
            state: memory that the last call returned; None at the beginning, or without a memory.
            episode_start: bool [B], where an episode begins and the memory is cleared.
            deterministic: return the likeliest action, or draw one from `generator`.
            action_masks: masks of legal actions in the form of `observation`.
            agent: name of the agent that observes; None for a dict by agent.
        """
        if agent is not None:
            return self[agent].predict(observation, state, episode_start, deterministic, action_masks)
        results = {
            name: self[name].predict(
                agent_obs, _agent_value(state, name), episode_start, deterministic, _agent_value(action_masks, name)
            )
            for name, agent_obs in _require_dict(observation).items()
        }
        # None for a policy without a memory.
        states = {name: agent_state for name, (_, agent_state) in results.items() if agent_state is not None}
        actions = {name: action for name, (action, _) in results.items()}
        return actions, states or None

    def on_rows(self) -> "KindsOnRows":
        """Return the policies for the world's arrays."""
        return KindsOnRows({name: policy.on_rows() for name, policy in self.policies.items()}, self._spaces)

    def to_exports(self) -> dict[str, PolicyExport]:
        """Return the policy of each kind without its run, by the kind's name."""
        return {name: policy.to_export() for name, policy in self.policies.items()}


class KindsOnRows:
    """The policies of a run, which take and return the arrays of its world, of one environment."""

    def __init__(self, policies: Mapping[str, TrainedPolicy], spaces: Spaces) -> None:
        self._policies = [(KindRows(kind, spaces), policies[kind.name]) for kind in spaces.kinds]
        self._action_type = spaces.action_type
        self._shape = (1, spaces.agents, *spaces.action_shape)

    def begin(self) -> None:
        """Clear the memory of all agents."""
        for _, policy in self._policies:
            policy.begin()

    def act(self, obs: Array, legal: Array | None = None) -> Array:
        """Return the actions [A, *action] on observations [A, *obs], with masks [A, R] where there are masks."""
        actions: Array = np.zeros(self._shape, self._action_type)
        # `[None]` adds the axis of environments, of which there is one; `[0]` takes it away.
        for rows, policy in self._policies:
            # None for a kind whose actions are always legal, even if other kinds have masks.
            own_legal = None if legal is None or not rows.kind.spaces.masked else rows.read_legal(legal[None])[0]
            own_obs = rows.read_obs(obs[None])[0]
            own_actions = policy.act(own_obs, own_legal)
            rows.write_actions_(actions, own_actions[None])
        (env_actions,) = actions
        return np.asarray(env_actions)


def _require_dict(obs: Any) -> ByAgent:  # noqa: ANN401  (whatever the user gives)
    """Return observations that are a dict by agent.

    Raises:
        ConfigError: they are something else.
    """
    if not isinstance(obs, Mapping):
        raise ConfigError(
            f"obs is a {type(obs).__name__}: expected a dict of observations by agent, or the name of the agent that "
            "observes it: policy.act(obs, agent=...)"
        )
    return obs


def _agent_value(values: ByAgent | None, agent: str) -> Any:  # noqa: ANN401  (a mask, or a memory)
    """Return an agent's value in a dict by agent; None if there is no dict, or no such agent in it."""
    return None if values is None else values.get(agent)
