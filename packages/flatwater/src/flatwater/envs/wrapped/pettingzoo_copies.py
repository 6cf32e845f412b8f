"""Copies of an environment of PettingZoo: what its two interfaces, at once and in turns, have in common."""

from collections.abc import Callable
from typing import Any

from flatwater.border import Border
from flatwater.envs.open_envs import bind_closing
from flatwater.envs.wrapped.native import frame_pace
from flatwater_watch.errors import ConfigError


class PettingZooCopies:
    """E copies of one environment: their agents, the borders of calls to them, their frames and their end."""

    def __init__(self, make: Callable[[], Any], title: str, envs: int) -> None:
        """Build the copies.

        Args:
            make: returns a new copy.
            title: name of the environment, for messages.
            envs: number of copies, E.

        Raises:
            ConfigError: the environment has no agents, or agents of different spaces.
        """
        self._name, self._copies = title, [make() for _ in range(envs)]
        first_copy = self._copies[0]
        subject, self._own = f"environment {title}", first_copy.unwrapped
        self._stepping = Border(subject, self._own, "step")
        self._closing = bind_closing(self._copies, Border(subject, self._own, "close"))
        self._rendering = Border(subject, self._own, "render")
        self._resetting = Border(subject, self._own, "reset", expected="reset(self, seed=None, options=None)")
        self._agents, self._observation_space, self._action_space = _read_agents(first_copy, title)

    @property
    def frames_per_second(self) -> float:
        """Pace of the frames."""
        return frame_pace(self._copies[0])

    def render(self) -> object:
        """Return the first copy's frame."""
        with self._rendering:
            return self._copies[0].render()

    def close(self) -> None:
        """Close the copies."""
        self._closing()


def _read_agents(env: Any, title: str) -> tuple[list[Any], Any, Any]:  # noqa: ANN401  (an environment of PettingZoo's)
    """Return the agents of an environment, and the spaces that all of them have, of observations and of actions.

    Raises:
        ConfigError: there are no agents, or agents of different spaces.
    """
    with Border(f"environment {title}", env.unwrapped, "observation_space", call="its agents' spaces"):
        agents = list(env.possible_agents)
        spaces = [{agent: of(agent) for agent in agents} for of in (env.observation_space, env.action_space)]
    if not agents:
        raise ConfigError(f"{title}: possible_agents: expected one or more agents, got none")
    observations, actions = spaces
    return agents, _common_space(observations, "observations", title), _common_space(actions, "actions", title)


def _common_space(spaces: dict[str, Any], noun: str, title: str) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
    """Return the space that all agents have.

    Raises:
        ConfigError: the agents have different spaces.
    """
    first_agent, *other_agents = spaces
    for agent in other_agents:
        if spaces[agent] != spaces[first_agent]:
            raise ConfigError(
                f"{title}: {noun}: expected one space for all agents, got "
                f"{spaces[first_agent]} of {first_agent} "
                f"and {spaces[agent]} of {agent}. One policy plays all agents, and agents of different spaces are not "
                "supported. Pad them, --wrapped.wrappers supersuit:pad_observations_v0 supersuit:pad_action_space_v0, "
                "or give a gymnasium.Env for one of them, whose step also makes the moves of the others"
            )
    return spaces[first_agent]
