"""A good env has no findings; each broken one has its own, and no other."""

import random
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import stateful
import torch
from gymnasium import spaces

from flatwater.envs.conformance import check_env_conformance
from flatwater.envs.world import Spaces
from flatwater_watch.errors import ConfigError

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


@pytest.mark.parametrize(
    "make", [Walk, FillsOnce, Masked, lambda: Masked(lists=True), stateful.Twice, stateful.SavesAll]
)
def test_a_good_env_has_no_findings(make: Any) -> None:
    assert check_env_conformance(make) == []


def day_seen(at: Any, days: Any = 1) -> dict[str, Any]:
    return {"seen": {"at": at, "days": days}}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Reuses, ["returned by reset() was changed", "returned by step() was changed"]),
        (IgnoresTheSeed, ["Observations['at'] of the same episode differ between two new environments"]),
        (RemembersEpisodes, ["of the same episode differ after another episode was played: at step 1, "]),
        (DiffersByInstance, ["Rewards of the same episode differ between two new environments"]),
        (stateful.SavesHalf, ["Observations of the same episode differ after its state was saved"]),
        (KeepsArrays, ["bytes more of Python and NumPy memory "]),
        (KeepsNumbers, ["bytes more of Python and NumPy memory "]),
        (KeepsTensors, ["12000 bytes more of tensors "]),
        (lambda: Answers(reward=float("nan")), ["the reward nan (float)"]),
        (lambda: Answers(reward="5"), ["the reward '5' (str)"]),
        (lambda: Answers(truncated=0), ["truncated = 0 (int)"]),
        (
            lambda: Answers(**day_seen(np.array([0, 2], np.float32))),
            ["not in the observation space: ['days'] int, ['at'] float32"],
        ),
        (
            lambda: Answers(**day_seen(np.zeros(2))),
            ["not in the observation space: ['days'] int, ['at'] float64 (2,)"],
        ),
        (
            lambda: Answers(**day_seen(np.array([np.nan, 0], np.float32))),
            ["not in the", "observation['at'] with NaN"],
        ),
        (lambda: Answers(info=None), ["step() returned tuple of 5"]),
        (OldReset, ["reset() returned dict"]),
        (OldStep, ["step() returned tuple of 4"]),
        (lambda: Masked(np.zeros(3)), ["The action_mask leaves nothing to choose"]),
        (lambda: Masked(np.array([1, 2, 0])), ["0 (illegal) and 1 (legal)"]),
        (lambda: Masked(np.ones(4)), ["The action_mask has 4 numbers"]),
        (lambda: Masked(steps=False), ["The action_mask is missing"]),
        (Endless, ["200 steps"]),
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


class Duel:
    """A parallel environment of two agents, of which one leaves earlier."""

    possible_agents: ClassVar[list[str]] = ["a", "b"]

    def __init__(self, reward: Any = 1.0) -> None:
        self.reward, self.agents = reward, list[str]()
        self.spaces = {agent: (spaces.Box(0, 9, (1,), np.float32), spaces.MultiDiscrete([2, 3])) for agent in "ab"}

    def observation_space(self, agent: str) -> Any:
        return self.spaces[agent][0]

    def action_space(self, agent: str) -> Any:
        return self.spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:  # noqa: ARG002
        self.rng = np.random.default_rng(seed) if seed is not None else self.rng
        self.agents, self.age, self.start = [*"ab"], 0, float(self.rng.integers(4))
        return self.seen(), {agent: {} for agent in self.agents}

    def seen(self) -> dict[str, Any]:
        return {agent: np.array([self.start + self.age], np.float32) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, ...]:
        self.age += 1
        over = {agent: self.age == {"a": 2, "b": 5}[agent] for agent in self.agents}
        paid = {agent: self.reward * actions[agent][0] for agent in self.agents}
        answer = (self.seen(), paid, over, dict.fromkeys(over, False), {agent: {} for agent in over})
        self.agents = [agent for agent in self.agents if not over[agent]]
        return answer


class Cells:
    """A world: each environment counts from its seed to its end; one keeps what `broken` names undone."""

    def __init__(self, broken: str = "", **acts: Any) -> None:
        self.spaces = Spaces(3, 1, "vector", (2,), ("left", "right"), 6, **acts)
        self.broken, self.at, self.made = broken, np.zeros(3, np.float32), 0

    def begin_(self, which: np.ndarray, seeds: np.ndarray, obs: np.ndarray) -> None:
        self.made += self.broken == "seed"
        self.at[which] = seeds[which] % 3 + self.made
        self.show(obs)

    def step_(self, actions: np.ndarray, obs: np.ndarray, reward: Any, terminated: Any, truncated: Any) -> None:
        assert actions.shape[:2] == (3, 1)
        self.at += 1
        if self.broken != "reward":
            reward[...] = actions.reshape(3, -1)[:, :1]
        terminated[...], truncated[...] = (self.at >= 5)[:, None], False
        self.show(obs)

    def show(self, obs: np.ndarray) -> None:
        obs[:, 0, 0] = self.at
        if self.broken != "obs":
            obs[:, 0, 1] = 1

    def close(self) -> None:
        """Nothing is held."""


class Doors(Cells):
    """Where the count is even, the left is shut; with `broken` everything is, at 4."""

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken, masked=True)

    def begin_(self, which: np.ndarray, seeds: np.ndarray, obs: np.ndarray, legal: np.ndarray) -> None:  # type: ignore[override]
        super().begin_(which, seeds, obs)
        self.shut(legal)

    def step_(self, actions: np.ndarray, *out: Any) -> None:  # type: ignore[override]
        assert self.broken or out[-1][np.arange(3), 0, actions[:, 0]].all(), "what is illegal is never given"
        super().step_(actions, *out[:-1])
        self.shut(out[-1])

    def shut(self, legal: np.ndarray) -> None:
        legal[:, 0, 0], legal[:, 0, 1] = self.at % 2 == 1, (self.at != 4) | (self.broken != "shut")


def several(env: Any, *, copy: bool = True) -> Any:
    return gymnasium.vector.SyncVectorEnv([env] * 3, copy=copy)


@pytest.mark.parametrize(
    "make",
    [
        lambda: several(Walk),
        Duel,
        Cells,
        lambda: Cells(bounds=((-1.0, 0.5), (0.0, 2.0))),
        lambda: Cells(choices=(2, 3)),
        Doors,
    ],
    ids=["vector env", "parallel", "world of choices", "world of numbers", "world of several choices", "masks"],
)
def test_environments_of_every_kind_are_played(make: Any) -> None:
    assert check_env_conformance(make) == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: several(Walk, copy=False), ["returned by reset() was changed", "returned by step() was changed"]),
        (lambda: several(DiffersByInstance), ["of the same episode differ between two new environments"]),
        (lambda: Duel(float("nan")), ["(nan) (float64)"]),
        (lambda: Cells("reward"), ["the reward nan"]),
        (lambda: Cells("obs"), ["reset() returned an observation with NaN", "step() returned an observation with NaN"]),
        (lambda: Doors("shut"), ["step() left an agent nothing to choose"]),
        (lambda: Cells("seed"), ["Observations of the same episode differ after another episode was played"]),
    ],
)
def test_one_of_every_kind_that_is_broken_is_told(make: Any, told: list[str]) -> None:
    findings = check_env_conformance(make)
    assert len(findings) == len(told), findings
    assert all(part in sentence for sentence, part in zip(findings, told, strict=True)), findings


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"make_env\(\).*dict.*gymnasium\.Env, a gymnasium\.vector|gymnasium\.Env, a gymnasium\.vector.* dict",
    ):
        check_env_conformance(dict)
