"""Environments that tell what is legal next to the observation, and fail at any illegal action."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

CELLS = 6


def steps_mask(cell: int) -> Any:
    """Return what is legal in a cell: a step back, a step, two cells from even ones alone, and never the fourth."""
    return np.array([cell > 0, cell < CELLS - 1, cell < CELLS - 2 and cell % 2 == 0, False], np.int8)


class Corridor(gymnasium.Env[Any, Any]):
    """Six cells; the last pays. The mask is in the observation, which is a Dict."""

    action_space: Any = spaces.Discrete(4)
    seen: Any = spaces.Box(0, 1, (CELLS,), np.float32)
    mask_space: Any = spaces.Box(0, 1, (4,), np.int8)

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"observation": self.seen, "action_mask": self.mask_space})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at, self.age = int(self.np_random.integers(CELLS - 2)), 0
        return self.observe(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert steps_mask(self.at)[action], f"{action} is illegal in cell {self.at}"
        self.at, self.age = self.at + (-1, 1, 2)[action], self.age + 1
        is_last = self.at == CELLS - 1
        return self.observe(), float(is_last) - 0.1, is_last, self.age >= 12, self.info()

    def observe(self) -> Any:
        return {"observation": self.draw(), "action_mask": steps_mask(self.at)}

    def draw(self) -> Any:
        return np.eye(CELLS, dtype=np.float32)[self.at]

    def info(self) -> dict[str, Any]:
        return {}


class InInfo(Corridor):
    """The same with the mask in the info."""

    def __init__(self) -> None:
        self.observation_space = self.seen

    def observe(self) -> Any:
        return self.draw()

    def info(self) -> dict[str, Any]:
        return {"action_mask": steps_mask(self.at)}


class ByMethod(Corridor):
    """The same by a method, as sb3-contrib asks for it."""

    def __init__(self) -> None:
        self.observation_space = self.seen

    def observe(self) -> Any:
        return self.draw()

    def action_masks(self) -> Any:
        return steps_mask(self.at)


class Late(InInfo):
    """The info of a reset has no mask, and an illegal action is taken for a legal one."""

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(**given)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        legal = steps_mask(self.at)
        return super().step(action if legal[action] else int(legal.argmax()))


class Beside(Corridor):
    """Two observations beside the mask, under other names, as RLlib's users have it."""

    def __init__(self) -> None:
        numbers = spaces.Box(0, CELLS, (1,), np.float64)
        self.observation_space = spaces.Dict({"obs": self.seen, "goal": numbers, "action_mask": self.mask_space})

    def observe(self) -> Any:
        seen = super().observe()
        return {"obs": seen["observation"], "goal": np.array([CELLS - 1.0]), "action_mask": seen["action_mask"]}


class Pictures(Corridor):
    """The cell as an image of 9 x 7 pixels."""

    seen = spaces.Box(0, 255, (9, 7, 1), np.uint8)

    def draw(self) -> Any:
        image = np.zeros((9, 7, 1), np.uint8)
        image[:, self.at] = 255
        return image


class Lists(Corridor):
    """A step and a second choice, of which the first is illegal; a mask for each list."""

    action_space = spaces.MultiDiscrete([4, 2])
    mask_space = spaces.Tuple((spaces.Box(0, 1, (4,), np.int8), spaces.Box(0, 1, (2,), np.int8)))

    def observe(self) -> Any:
        return {"observation": self.draw(), "action_mask": (steps_mask(self.at), np.array([0, 1], np.int8))}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action[1] == 1
        return super().step(action[0])


class LogMasks(Corridor):
    """What is added to logits in place of flags: all but zeros would count as legal."""

    mask_space = spaces.Box(-1e9, 0, (4,), np.float32)

    def observe(self) -> Any:
        return {"observation": self.draw(), "action_mask": np.log(steps_mask(self.at) + 1e-30, dtype=np.float32)}


class TooShort(Corridor):
    """A mask of three for four actions."""

    mask_space = spaces.Box(0, 1, (3,), np.int8)

    def observe(self) -> Any:
        return {"observation": self.draw(), "action_mask": steps_mask(self.at)[:3]}


class Two(ParallelEnv[str, Any, int]):
    """Two agents in corridors of their own, until the slower one is at the end."""

    metadata: dict[str, Any] = {"name": "two"}  # noqa: RUF012  (as PettingZoo's environments have it)
    corridor: type[Corridor] = Corridor

    def __init__(self) -> None:
        self.possible_agents = ["first", "second"]

    def observation_space(self, _: str) -> Any:
        return self.corridor().observation_space

    def action_space(self, _: str) -> Any:
        return self.corridor.action_space

    def reset(self, seed: int | None = None, options: object = None) -> tuple[Any, Any]:  # noqa: ARG002  (of the interface)
        self.agents = [*self.possible_agents]
        self.envs = {agent: self.corridor() for agent in self.agents}
        seen = {agent: env.reset(seed=(seed or 0) + place) for place, (agent, env) in enumerate(self.envs.items())}
        return {agent: observation for agent, (observation, _) in seen.items()}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        taken = {agent: self.envs[agent].step(actions[agent]) for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (taken[agent][2] or taken[agent][3])]
        return tuple({agent: outcome[part] for agent, outcome in taken.items()} for part in range(5))


class TwoLists(Two):
    """The same with two choices at once."""

    corridor = Lists


class TwoLate(Two):
    """Two whose infos have masks from the first step on."""

    corridor = Late


class TwoWithoutInfos(TwoLate):
    """The same, whose infos of steps are None in the place of dicts."""

    def step(self, actions: dict[str, Any]) -> Any:
        *results, infos = super().step(actions)
        return (*results, dict.fromkeys(infos))
