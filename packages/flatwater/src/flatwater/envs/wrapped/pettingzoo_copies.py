"""Copies of a PettingZoo environment: the base of the worlds of its two interfaces, parallel and in turns (AEC)."""

from collections.abc import Callable
from typing import Any

from flatwater.envs.open_envs import bind_closing
from flatwater.envs.wrapped.native_spaces import frame_rate
from flatwater.user_code import CallGuard
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
            ConfigError: the environment has no agents.
        """
        self._name, self._copies = title, [make() for _ in range(envs)]
        first_copy = self._copies[0]
        subject, self._user_env = f"environment {title}", first_copy.unwrapped
        self._step_guard = CallGuard(subject, self._user_env, "step")
        self._close_envs = bind_closing(self._copies, CallGuard(subject, self._user_env, "close"))
        self._render_guard = CallGuard(subject, self._user_env, "render")
        self._reset_guard = CallGuard(subject, self._user_env, "reset", expected="reset(self, seed=None, options=None)")
        self._agent_spaces = _read_agents(first_copy, title)
        """Observation space and action space of each agent."""
        self._agents = [*self._agent_spaces]

    @property
    def frames_per_second(self) -> float:
        """Number of frames of `render` that make a second."""
        return frame_rate(self._copies[0])

    def render(self) -> object:
        """Return the first copy's frame."""
        with self._render_guard:
            return self._copies[0].render()

    def close(self) -> None:
        """Close the copies."""
        self._close_envs()


def _read_agents(env: Any, title: str) -> dict[Any, tuple[Any, Any]]:  # noqa: ANN401  (an environment of PettingZoo's)
    """Return the observation space and the action space of each of an environment's agents.

    Raises:
        ConfigError: there are no agents.
    """
    with CallGuard(f"environment {title}", env.unwrapped, "observation_space", call="its agents' spaces"):
        spaces = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents}
    if not spaces:
        raise ConfigError(f"{title}: possible_agents: expected one or more agents, got none")
    return spaces
