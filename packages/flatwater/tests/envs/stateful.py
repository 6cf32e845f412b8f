"""Environments that keep something over episodes, in every way that a user's might, and some that keep nothing.

`KINDS` says of each by which word its sentence names the cause; `EXACT` and `SAVED` have no sentence.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import wrappers

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Line(gymnasium.Env[Any, Any]):
    """A point on a line, pushed by the action and by chance; nothing is kept."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at, self.age = float(self.np_random.uniform(-1, 1)), 0
        return self.seen(), {}

    def step(self, action: Any) -> Step:
        self.age += 1
        self.at = float(np.clip(self.at + 0.3 * float(np.ravel(action)[0]) + 0.05 * self.np_random.normal(), -9, 9))
        return self.seen(), -abs(self.at), abs(self.at) > 2, self.age >= 12, {}

    def seen(self) -> Any:
        return np.array([self.at, self.age / 8], np.float32)


class Turns(Line):
    """The same with two actions, as a student of a teacher has them."""

    action_space = gymnasium.spaces.Discrete(2)

    def step(self, action: Any) -> Step:
        return super().step(2.0 * action - 1)


class Counts(Line):
    """Pays more in later episodes, as a curriculum does."""

    episodes = 0

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        self.episodes += 1
        return super().reset(**given)

    def step(self, action: Any) -> Step:
        seen, paid, *rest = super().step(action)
        return seen, paid * self.episodes, *rest  # type: ignore[return-value]


class Late(Line):
    """Pays more once it has taken more steps than the test at the beginning of a run takes."""

    taken = 0

    def step(self, action: Any) -> Step:
        self.taken += 1
        seen, paid, *rest = super().step(action)
        return seen, paid * (1 if self.taken < 80 else 5), *rest  # type: ignore[return-value]


class Shared(Line):
    """Counts in its class, so that new environments go on counting."""

    episodes = 0

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        Shared.episodes += 1
        return super().reset(**given)

    def step(self, action: Any) -> Step:
        seen, paid, *rest = super().step(action)
        return seen, paid + Shared.episodes, *rest  # type: ignore[return-value]


class Draws(Line):
    """Observes with noise from a generator of its own, which a reset leaves alone."""

    def __init__(self) -> None:
        self.noise = self.generator()

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(3)

    def step(self, action: Any) -> Step:
        seen, *rest = super().step(action)
        return seen + self.noise.normal(0, 0.1, 2).astype(np.float32), *rest  # type: ignore[return-value]


class Unseeded(Draws):
    """Another one for each environment."""

    def generator(self) -> np.random.Generator:
        return np.random.default_rng()


def paying(name: str, extra: Callable[[], float]) -> type[Line]:
    """A class whose reward has something added."""

    def step(self: Line, action: Any) -> Step:
        seen, paid, *rest = Line.step(self, action)
        return seen, paid + extra(), *rest  # type: ignore[return-value]

    return type(name, (Line,), {"step": step, "__module__": __name__})


OfPython = paying("OfPython", random.random)
OfNumpy = paying("OfNumpy", np.random.random_sample)
OfTorch = paying("OfTorch", lambda: float(torch.rand(())))
Clock = paying("Clock", lambda: time.monotonic_ns() % 1000)


class Reseeds(OfNumpy):  # type: ignore[misc, valid-type]
    """Seeds the global generator at each reset: right alone, and wrong beside others."""

    def reset(self, *, seed: int | None = None, **given: Any) -> tuple[Any, dict[str, Any]]:
        np.random.seed(seed)  # noqa: NPY002, TID251
        found: tuple[Any, dict[str, Any]] = super().reset(seed=seed, **given)
        return found


class Saves(Counts):
    """Says what it keeps."""

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self.episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes = state["episodes"]


class SavesAll(Saves, Draws):
    """A counter, and a generator with its big numbers and words."""

    def step(self, action: Any) -> Step:
        return super().step(action)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "noise": self.noise.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.noise.bit_generator.state = state["noise"]


class SavesHalf(Saves, Draws):
    """A counter, and not the generator."""


class SavesSums(Saves):
    """Sums up within an episode what depends on the counter: that has to be played again from the counter of then."""

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        self.total = 0.0
        return super().reset(**given)

    def step(self, action: Any) -> Step:
        seen, paid, *rest = super().step(action)
        self.total += paid
        return seen, self.total, *rest  # type: ignore[return-value]


class SavesObjects(Saves):
    """Its state cannot be saved."""

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self}


class SavesLate(Saves):
    """Has nothing to give before its first reset."""

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.age = state["age"]


class Grows(Saves):
    """Its state becomes longer with each episode."""

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "log": "x" * 3000 * self.episodes**4}


def wrap_class(name: str, wrap: Callable[[Any], Any], inner: type[Line] = Line) -> type[gymnasium.Env[Any, Any]]:
    """A class of an environment in wrappers."""

    def build(self: Any) -> None:
        gymnasium.Wrapper.__init__(self, wrap(inner()))

    return type(name, (gymnasium.Wrapper,), {"__init__": build, "__module__": __name__})


Stacked = wrap_class("Stacked", lambda env: wrappers.FlattenObservation(wrappers.FrameStackObservation(env, 3)))
Sticky = wrap_class("Sticky", lambda env: wrappers.StickyAction(env, 0.3))
Limited = wrap_class("Limited", lambda env: wrappers.TimeLimit(wrappers.OrderEnforcing(env), 7))
Normal = wrap_class("Normal", wrappers.NormalizeObservation)
Rewarded = wrap_class("Rewarded", wrappers.NormalizeReward)
Twice = wrap_class("Twice", lambda env: wrappers.NormalizeReward(wrappers.NormalizeObservation(env)))
Recorded = wrap_class("Recorded", lambda env: wrappers.RecordEpisodeStatistics(wrappers.NormalizeReward(env)))
Frames = wrap_class(
    "Frames",
    lambda env: wrappers.FlattenObservation(wrappers.FrameStackObservation(wrappers.NormalizeObservation(env), 3)),
)
Inner = wrap_class("Inner", lambda env: wrappers.NormalizeReward(wrappers.NormalizeObservation(env)), SavesAll)
NormalTurns = wrap_class("NormalTurns", lambda env: wrappers.NormalizeReward(wrappers.NormalizeObservation(env)), Turns)
NormalDraws = wrap_class("NormalDraws", wrappers.NormalizeReward, Draws)


class CountsTurns(Counts, Turns):
    """Two actions, and a counter."""

    def step(self, action: Any) -> Step:
        return super().step(action)


class LateTurns(Late, Turns):
    """Two actions, and a reward that changes late."""

    def step(self, action: Any) -> Step:
        return super().step(action)


EXACT = ("Line", "Turns", "Stacked", "Sticky", "Limited")
SAVED = ("Normal", "Rewarded", "Twice", "Recorded", "Frames", "Saves", "SavesAll", "SavesSums", "SavesLate", "Inner")
KINDS = {
    "Counts": "rewards of the same episode differ after another episode",
    "Draws": "observations of the same episode differ after another episode",
    "Shared": "all of them share",
    "Unseeded": "reset(seed=...)",
    "Clock": "the clock",
    "OfPython": "global generator of random ",
    "OfNumpy": "global generator of numpy.random ",
    "OfTorch": "global generator of torch ",
    "Reseeds": "beside it",
    "SavesHalf": "saved and given back",
    "SavesObjects": "state[0]['episodes'] is a SavesObjects",
    "NormalDraws": "saved and given back",
}
