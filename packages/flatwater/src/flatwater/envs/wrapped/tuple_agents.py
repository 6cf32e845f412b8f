"""Environments of Gymnasium with several agents: Tuples of observations and of actions, and a reward for each agent.

Robotic warehouses and level-based foraging have this form. `TupleAgents` gives it the parallel interface of PettingZoo.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple

from flatwater.user_code import CallGuard


def may_have_agents(env: gymnasium.Env[Any, Any]) -> bool:
    """Return whether both spaces of an environment are Tuples with the same number of parts."""
    with suppress(AttributeError):  # an environment without a space is refused where it is read
        observation, action = env.observation_space, env.action_space
        return isinstance(observation, Tuple) and isinstance(action, Tuple) and 0 < len(action) == len(observation)
    return False


def pays_each_agent(env: gymnasium.Env[Any, Any], title: str) -> bool:
    """Play a step, and return whether its reward has a number for each part of the actions.

    The spaces of one agent may be such Tuples as well: rewards alone tell several agents from one.

    Args:
        env: an environment that `may_have_agents`.
        title: its name, for messages.
    """
    with CallGuard(f"environment {title}", env.unwrapped, "reset"):
        env.reset(seed=0)
    env.action_space.seed(0)
    action: Any = env.action_space.sample()
    with CallGuard(f"environment {title}", env.unwrapped, "step"):
        reward: Any = env.step(action)[1]
    return len(np.shape(reward)) == 1 and len(reward) == len(action)


class TupleAgents:
    """The agents of such an environment, as PettingZoo's parallel interface has them: dicts by agent."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap the environment, which is called `env` as within Gymnasium's wrappers."""
        self.env, self.unwrapped, self.metadata = env, env.unwrapped, env.metadata
        spaces: tuple[Any, Any] = env.observation_space, env.action_space
        self._spaces: Sequence[tuple[Any, Any]] = [*zip(*spaces, strict=True)]
        """Observation space and action space of each agent."""
        self.possible_agents = [f"agent_{number}" for number in range(len(self._spaces))]
        self.agents = [*self.possible_agents]
        self._last_actions: dict[str, Any] = {}

    def observation_space(self, agent: str) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Return an agent's part of the observation space."""
        return self._spaces[self.possible_agents.index(agent)][0]

    def action_space(self, agent: str) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Return an agent's part of the action space."""
        return self._spaces[self.possible_agents.index(agent)][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        """Begin an episode of all agents; the info is that of each."""
        observations, info = self.env.reset(seed=seed, options=options)
        self.agents = [*self.possible_agents]
        return self._by_agent(observations), dict.fromkeys(self.agents, info)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Step the environment with the actions of all agents, ; an agent that is over repeats its last action."""
        self._last_actions |= actions
        observations, rewards, terminated, truncated, info = self.env.step(
            tuple(self._last_actions[agent] for agent in self.possible_agents)
        )
        flags = [self._by_agent(np.broadcast_to(each, len(self._spaces))) for each in (terminated, truncated)]
        answer = (self._by_agent(observations), self._by_agent(rewards), *flags, dict.fromkeys(self.agents, info))
        self.agents = [agent for agent in self.agents if not any(flag[agent] for flag in flags)]
        return answer

    def _by_agent(self, values: Any) -> dict[str, Any]:  # noqa: ANN401  (a part for each agent)
        """Return the parts of the agents that are still playing, by agent."""
        named_values = zip(self.possible_agents, values, strict=True)
        return {agent: value for agent, value in named_values if agent in self.agents}

    def render(self) -> Any:  # noqa: ANN401  (whatever the environment draws)
        """Return the frame that the environment's `render` gives."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
