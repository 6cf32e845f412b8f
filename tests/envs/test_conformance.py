"""A good env has no findings; each broken one has its own, and no other."""

import random
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from flatwater.envs.conformance import check_env_conformance

torch.set_num_threads(1)


class Walk(gymnasium.Env):
    """A bounded random walk that keeps every rule."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float32), "days": spaces.Discrete(6)})
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:  # noqa: ARG002
        super().reset(seed=seed)
        self.days, self.at = 0, self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.observe(), {}

    def observe(self) -> dict[str, Any]:
        return {"at": self.at.copy(), "days": self.days}

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        self.days += 1
        self.at = np.clip(self.at + 0.1 * action, -1, 1, dtype=np.float32)
        return self.observe(), float(self.at.sum()), self.days == 5, False, {}


class Reuses(Walk):
    def observe(self) -> dict[str, Any]:
        self.buffer = self.__dict__.get("buffer", np.zeros(2, np.float32))
        self.buffer[:] = self.at
        return {"at": self.buffer, "days": self.days}


class IgnoresTheSeed(Walk):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:  # noqa: ARG002
        return super().reset(options=options)


class RemembersEpisodes(Walk):
    drift = 0.0

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        self.drift += 0.01
        answer = super().step(action)
        return (answer[0], answer[1] + self.drift, *answer[2:])


class DiffersByInstance(Walk):
    made: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.made.append(1)
        self.number = len(self.made)

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        answer = super().step(action)
        return (answer[0], float(self.number), *answer[2:])


class KeepsArrays(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.history = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.history.append(np.zeros(20))
        return super().reset(seed=seed, options=options)


class KeepsTensors(KeepsArrays):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        answer = super().reset(seed=seed, options=options)
        self.history[-1] = torch.zeros(1000)
        return answer


class KeepsNumbers(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.history = []

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        answer = super().step(action)
        self.history.extend([answer[1]] * 4)
        return answer


class FillsOnce(KeepsArrays):
    """A bounded history is no leak, even while it fills."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        answer = super().reset(seed=seed, options=options)
        del self.history[:-8]
        return answer


class Answers(Walk):
    """Gives one wrong answer."""

    def __init__(self, **answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        answer = dict(zip(("seen", "reward", "terminated", "truncated", "info"), super().step(action), strict=True))
        return tuple((answer | self.answer).values())


class UsesGlobal(Walk):
    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.draw = draw

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        self.draw()
        return super().step(action)


class OldReset(Walk):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0]


class OldStep(Walk):
    def step(self, action: np.ndarray) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward, terminated or truncated, info


class Endless(Walk):
    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        answer = super().step(action)
        self.days = 1
        return (*answer[:2], False, *answer[3:])


class Masked(Walk):
    """One of three actions is illegal in turn, or one of each of two lists; the info says which."""

    def __init__(self, mask: Any = None, *, lists: bool = False, steps: bool = True) -> None:
        super().__init__()
        self.mask, self.lists, self.steps = mask, lists, steps
        self.action_space = spaces.MultiDiscrete([3, 3]) if lists else spaces.Discrete(3)

    def info(self) -> dict[str, Any]:
        one = (np.arange(3) != self.days % 3).astype(np.int8)
        mask = (one, one) if self.lists else one
        return {"action_mask": mask if self.mask is None else self.mask}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return super().reset(seed=seed, options=options)[0], self.info()

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict]:
        assert self.mask is not None or not self.steps or (np.asarray(action) != self.days % 3).all(), "illegal"
        answer = super().step(np.full(2, np.mean(action) - 1))
        return *answer[:4], self.info() if self.steps else {}


@pytest.mark.parametrize("make", [Walk, FillsOnce, Masked, lambda: Masked(lists=True)])
def test_a_good_env_has_no_findings(make: Any) -> None:
    assert check_env_conformance(make) == []


def seen(at: Any, days: Any = 1) -> dict[str, Any]:
    return {"seen": {"at": at, "days": days}}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Reuses, ["An observation returned by reset() was changed by the next call", "returned by step() was changed"]),
        (IgnoresTheSeed, ["The same env, reset with the same seed and", "A second env with the same seed and"]),
        (RemembersEpisodes, ["The same env, reset with the same seed and given the same actions behaves differently"]),
        (DiffersByInstance, ["A second env with the same seed and given the same actions behaves differently"]),
        (KeepsArrays, ["bytes more of Python and NumPy memory are held after each round of 3 episodes"]),
        (KeepsNumbers, ["bytes more of Python and NumPy memory are held after each round of 3 episodes"]),
        (KeepsTensors, ["12000 bytes more of tensors are held after each round of 3 episodes"]),
        (lambda: Answers(reward=float("nan")), ["the reward nan (float): must be a finite number"]),
        (lambda: Answers(reward="5"), ["the reward '5' (str)"]),
        (lambda: Answers(truncated=0), ["truncated = 0 (int): must be a bool"]),
        (
            lambda: Answers(**seen(np.array([0, 2], np.float32))),
            ["not in the observation space: ['days'] int, ['at'] float32"],
        ),
        (lambda: Answers(**seen(np.zeros(2))), ["not in the observation space: ['days'] int, ['at'] float64 (2,)"]),
        (lambda: Answers(**seen(np.array([np.nan, 0], np.float32))), ["not in the", "observation['at'] with NaN"]),
        (lambda: Answers(info=None), ["step() returned tuple of 5: must be observation, reward"]),
        (OldReset, ["reset() returned dict: must be an observation and an info dict"]),
        (OldStep, ["step() returned tuple of 4: must be observation, reward, terminated, truncated"]),
        (lambda: Masked(np.zeros(3)), ["The action_mask leaves nothing to choose in an episode that goes on"]),
        (lambda: Masked(np.array([1, 2, 0])), ["The action_mask has other numbers than 0 (illegal) and 1 (legal)"]),
        (lambda: Masked(np.ones(4)), ["The action_mask has 4 numbers: must be 3, one an action"]),
        (lambda: Masked(steps=False), ["The action_mask is missing from the info of a step"]),
        (Endless, ["An episode was not over after 200 steps"]),
        (lambda: UsesGlobal(random.random), ["The global generator of random was used"]),
        (lambda: UsesGlobal(np.random.rand), ["The global generator of numpy.random was used"]),
        (lambda: UsesGlobal(lambda: torch.rand(1)), ["The global generator of torch was used"]),
    ],
)
def test_a_broken_env_is_told_what_is_wrong(make: Any, told: list[str]) -> None:
    findings = check_env_conformance(make, max_steps=200)
    assert len(findings) == len(told), findings
    for sentence, part in zip(findings, told, strict=True):
        assert part in sentence
        assert sentence.endswith(".")
