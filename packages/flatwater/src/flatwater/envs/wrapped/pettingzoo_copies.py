"""Copies of a PettingZoo environment: the base of the worlds of its two interfaces, parallel and in turns (AEC)."""

from collections.abc import Callable
from typing import Any

from flatwater.envs.wrapped.env_copies import EnvCopies
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError


class PettingZooCopies(EnvCopies):
    """E copies of one environment, with their agents and spaces."""

    def __init__(self, make: Callable[[], Any], title: str, envs: int) -> None:
        """Build the copies, and read the agents of the first one.

        Args:
            make: returns a new copy.
            title: name of the environment, for messages.
            envs: number of copies, E.

        Raises:
            ConfigError: the environment has no agents.
        """
        copies = [make() for _ in range(envs)]
        super().__init__(copies, copies[0].unwrapped, title, reset_signature="reset(self, seed=None, options=None)")
        with CallGuard(self._subject, self._user_layer, "observation_space", call="its agents' spaces"):
            self._agent_spaces = {
                agent: (copies[0].observation_space(agent), copies[0].action_space(agent))
                for agent in copies[0].possible_agents
            }  # observation space and action space of each agent
        if not self._agent_spaces:
            raise ConfigError(f"{title}: possible_agents: expected one or more agents, got none")
        self._agents = [*self._agent_spaces]
