"""Small games in turns (PettingZoo's AEC), whose rules are known: one for two players, and odd ones."""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

MAXIMUM_STONES = 3
"""Most stones that a move takes."""


class Nim(AECEnv[str, Any, int]):
    """Whoever takes the last of some stones wins 1, and the others lose 1; a move takes 1 to 3 of those that are left.

    Four stones or a multiple of them are lost against whoever leaves one of these each time.
    """

    metadata: dict[str, Any] = {"name": "nim"}  # noqa: RUF012  (as PettingZoo's environments have it)
    masks_in_info = False

    def __init__(self, players: int = 2, stones: int = 9) -> None:
        super().__init__()
        self.possible_agents = [f"player_{number}" for number in range(players)]
        self.stones = stones

    def observation_space(self, _: str) -> spaces.Space[Any]:
        seen = spaces.Box(0, 1, (self.stones + 1,), np.int8)
        mask = spaces.Box(0, 1, (MAXIMUM_STONES,), np.int8)
        return seen if self.masks_in_info else spaces.Dict({"observation": seen, "action_mask": mask})

    def action_space(self, _: str) -> spaces.Space[Any]:
        return spaces.Discrete(MAXIMUM_STONES)

    def draw_stones(self, seed: int | None) -> int:
        return self.stones - int(np.random.default_rng(seed).integers(3))

    def reset(self, seed: int | None = None, options: object = None) -> None:  # noqa: ARG002  (of the interface)
        self.left = self.draw_stones(seed)
        self.agents = [*self.possible_agents]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]
        self.moves: list[tuple[str, int]] = []
        self._show()

    def mask(self) -> Any:
        return (np.arange(1, MAXIMUM_STONES + 1) <= self.left).astype(np.int8)

    def observe(self, _: str) -> Any:
        seen = (np.arange(self.stones + 1) == self.left).astype(np.int8)
        return seen if self.masks_in_info else {"observation": seen, "action_mask": self.mask()}

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        assert action is not None
        assert self.mask()[action], f"{mover} took {action + 1} of {self.left}"
        self._cumulative_rewards[mover] = 0
        self.moves.append((mover, action + 1))
        self.left -= action + 1
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self.left == 0:
            self.rewards = {agent: 1.0 if agent == mover else -1.0 for agent in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.agents[(self.agents.index(mover) + 1) % len(self.agents)]
        self._accumulate_rewards()
        self._show()

    def _show(self) -> None:
        if self.masks_in_info:
            self.infos = {agent: {"action_mask": self.mask()} for agent in self.agents}

    def close(self) -> None:
        self.agents = []


class InfoNim(Nim):
    """The mask stands in the info."""

    masks_in_info = True


class OneStone(Nim):
    """A game that is over with the first move of the first player, before the second has moved at all."""

    def draw_stones(self, _: int | None) -> int:
        return 1


def three() -> Nim:
    """A game of three players."""
    return Nim(players=3)


env = Nim
