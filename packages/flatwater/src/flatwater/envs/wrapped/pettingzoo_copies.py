"""Copies of a PettingZoo environment: the base of the worlds of its two interfaces, parallel and in turns (AEC)."""

from collections.abc import Callable
from typing import Any

from flatwater.border import Border
from flatwater.envs.open_envs import bind_closing
from flatwater.envs.wrapped.native import frame_pace
from flatwater_watch.errors import ConfigError


class PettingZooCopies:
    """E copies of one environment with their agents and spaces; it renders and closes them, and guards their calls."""

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
        subject, self._user_env = f"environment {title}", first_copy.unwrapped
        self._step_border = Border(subject, self._user_env, "step")
        self._closing = bind_closing(self._copies, Border(subject, self._user_env, "close"))
        self._render_border = Border(subject, self._user_env, "render")
        self._reset_border = Border(subject, self._user_env, "reset", expected="reset(self, seed=None, options=None)")
        self._agents, self._observation_space, self._action_space = _read_agents(first_copy, title)

    @property
    def frames_per_second(self) -> float:
        """Number of frames of `render` that make a second."""
        return frame_pace(self._copies[0])

    def render(self) -> object:
        """Return the first copy's frame."""
        with self._render_border:
            return self._copies[0].render()

    def close(self) -> None:
        """Close the copies."""
        self._closing()


def _read_agents(env: Any, title: str) -> tuple[list[Any], Any, Any]:  # noqa: ANN401  (an environment of PettingZoo's)
    """Return an environment's agents, and the observation space and the action space that all of them have.

    Raises:
        ConfigError: there are no agents, or agents of different spaces.
    """
    with Border(f"environment {title}", env.unwrapped, "observation_space", call="its agents' spaces"):
        agents = list(env.possible_agents)
        observation_spaces = {agent: env.observation_space(agent) for agent in agents}
        action_spaces = {agent: env.action_space(agent) for agent in agents}
    if not agents:
        raise ConfigError(f"{title}: possible_agents: expected one or more agents, got none")
    observation_space = _common_space(observation_spaces, "observations", title)
    return agents, observation_space, _common_space(action_spaces, "actions", title)


def _common_space(spaces: dict[str, Any], noun: str, title: str) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
    """Return the one space that all agents have, from the space of each agent; `noun` is the spaces' name in messages.

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
