"""Environments of PettingZoo whose agents have different spaces."""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

MOST = 8


class Hunt(ParallelEnv[str, Any, Any]):
    """Two hunters say which of three they see; the prey, which has five actions, three of them legal, another of five.

    A right answer pays 1. The prey of an even seed is over after three steps, and so has no more observations.
    """

    metadata = {"name": "hunt"}  # noqa: RUF012  (as PettingZoo has it)

    def __init__(self, render_mode: str | None = None) -> None:
        self.possible_agents, self.render_mode = ["hunter_0", "prey", "hunter_1"], render_mode

    def observation_space(self, agent: str) -> Any:
        if agent == "prey":
            seen = spaces.Box(0, 1, (5,), np.float32)
            return spaces.Dict({"observation": seen, "action_mask": spaces.MultiBinary(5)})
        return spaces.Box(0, 1, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(5 if agent == "prey" else 3)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ARG002  (PettingZoo's)
        self.rng, self.age = np.random.default_rng(seed), 0
        self.agents, self.last = [*self.possible_agents], 3 if seed is not None and seed % 2 == 0 else MOST
        self.draw()
        return self.observe(), {agent: {} for agent in self.agents}

    def draw(self) -> None:
        self.cue = {agent: int(self.rng.integers(5 if agent == "prey" else 3)) for agent in self.possible_agents}

    def legal(self) -> Any:
        return np.roll(np.array([1, 1, 1, 0, 0], np.int8), self.cue["prey"])

    def observe(self) -> dict[str, Any]:
        seen: dict[str, Any] = {
            agent: np.eye(3, dtype=np.float32)[self.cue[agent]] for agent in self.agents if agent != "prey"
        }
        if "prey" in self.agents:
            cue = np.eye(5, dtype=np.float32)[self.cue["prey"]]
            seen["prey"] = {"observation": cue, "action_mask": self.legal()}
        return seen

    def render(self) -> Any:
        return np.full((8, 8, 3), self.age, np.uint8)

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        assert all(actions[agent] in self.action_space(agent) for agent in self.agents)
        assert "prey" not in actions or self.legal()[actions["prey"]]
        self.age += 1
        rewards = {agent: float(actions[agent] == self.cue[agent]) for agent in self.agents}
        over = {agent: self.age >= (self.last if agent == "prey" else MOST) for agent in self.agents}
        none = dict.fromkeys(self.agents, False)
        self.draw()
        seen, infos = self.observe(), {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not over[agent]]
        return seen, rewards, over, none, infos


class Crew(ParallelEnv[str, Any, Any]):
    """A camera that moves by two numbers, and a wheel that reads a vector and turns by one: rows are bytes."""

    metadata = {"name": "crew"}  # noqa: RUF012  (as PettingZoo has it)

    def __init__(self) -> None:
        self.possible_agents = ["camera", "wheel"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 255, (12, 12, 1), np.uint8) if agent == "camera" else spaces.Box(-1, 1, (4,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (2,), np.float32) if agent == "camera" else spaces.Box(0, 3, (1,), np.float32)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ARG002  (PettingZoo's)
        self.rng, self.age, self.agents = np.random.default_rng(seed), 0, [*self.possible_agents]
        return self.observe(), {agent: {} for agent in self.agents}

    def observe(self) -> dict[str, Any]:
        self.aim = self.rng.uniform(-1, 1, 4).astype(np.float32)
        return {"camera": self.rng.integers(0, 256, (12, 12, 1), np.uint8), "wheel": self.aim.copy()}

    def step(self, actions: dict[str, Any]) -> Any:
        assert all(actions[agent] in self.action_space(agent) for agent in self.agents), actions
        self.age += 1
        rewards = {"camera": float(actions["camera"].sum()), "wheel": -float(abs(actions["wheel"][0] - self.aim[0]))}
        is_over, agents = self.age == MOST, [*self.agents]
        self.agents = [] if is_over else agents
        none, infos = dict.fromkeys(agents, False), {agent: {} for agent in agents}
        return self.observe(), rewards, none, dict.fromkeys(agents, is_over), infos


class Mixed(Crew):
    """The wheel chooses from a list, and the camera's actions are numbers."""

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (2,), np.float32) if agent == "camera" else spaces.Discrete(2)
