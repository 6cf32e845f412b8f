"""A small environment for PettingZoo's parallel face: its agents leave one after another, some cut short."""

from typing import Any

import gymnasium
import numpy as np


class Parting:
    """Agent i leaves after as many steps as its seed drew: an odd one terminates, an even one is truncated."""

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c"]
        self.agents: list[str] = []
        self.unwrapped = self

    def observation_space(self, _: str) -> gymnasium.spaces.Space[Any]:
        return gymnasium.spaces.Box(0, 255, (2, 2, 2), np.uint8)

    def action_space(self, _: str) -> gymnasium.spaces.Space[Any]:
        return gymnasium.spaces.Discrete(3, start=5)

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._leaves = dict(zip(self.agents, self._rng.permutation([3, 4, 6]).tolist(), strict=True))
        self._step = 0
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents)
        assert set(actions.values()) <= {5, 6, 7}
        self._step += 1
        seen, present = self._see(), self.agents
        over = {agent: self._step >= self._leaves[agent] for agent in present}
        terminated = {agent: over[agent] and self._leaves[agent] % 2 == 1 for agent in present}
        truncated = {agent: over[agent] and not terminated[agent] for agent in present}
        self.agents = [agent for agent in present if not over[agent]]
        return seen, {agent: float(actions[agent]) for agent in present}, terminated, truncated, {}

    def close(self) -> None:
        self.agents = []

    def _see(self) -> dict[str, Any]:
        return {agent: self._rng.integers(0, 200, (2, 2, 2), np.uint8) for agent in self.agents}


parallel_env = Parting
