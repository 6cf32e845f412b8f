"""Environments whose infos say how high they came, and functions that hear of a run."""

from typing import Any

import gymnasium
import numpy as np


class Hill(gymnasium.Env[Any, Any]):
    """A place on a line, which actions move; its episodes have lengths of their own."""

    observation_space = gymnasium.spaces.Box(-20, 20, (2,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.x, self.t, self.end = float(self.np_random.normal()), 0, int(self.np_random.integers(2, 9))
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.x, self.t], np.float32)

    def step(self, action: Any) -> Any:
        self.x += 0.3 * (2 * float(np.sum(action)) - 1)
        self.t += 1
        info = {"height": np.float32(self.x), "is_success": self.x > 0, "words": "high"}
        return self.seen(), self.x, self.t >= self.end, False, info


class Slope(Hill):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


def fleet(num_envs: int) -> gymnasium.vector.SyncVectorEnv:
    return gymnasium.vector.SyncVectorEnv([Hill] * num_envs)


def hear_round(round_: Any) -> None:
    round_.log("mine/twice", 2 * round_.metrics["agent_steps"])


def hear_episode(episode: Any) -> None:
    episode.log("mine/length", episode.length)
    episode.log("mine/share", np.array([episode.mean_return / (1 + episode.seed)]))


def write_metrics(round_: Any) -> None:
    round_.metrics["mine/x"] = 3


def log_text(round_: Any) -> None:
    round_.log("mine/x", "3")


def log_ours(episode: Any) -> None:
    episode.log("return/mean", 3)


def log_many(episode: Any) -> None:
    for number in range(65):
        episode.log(f"mine/{number}", number)


def fail(episode: Any) -> None:
    raise KeyError(episode.env)


async def hear_later(round_: Any) -> None:
    """Nobody awaits it."""
    round_.log("mine/x", 1)


def hear_lazily(round_: Any) -> Any:
    """Nobody asks it for its items."""
    yield round_.log("mine/x", 1)


class Listener:
    """Its call is a coroutine."""

    async def __call__(self, round_: Any) -> None:
        round_.log("mine/x", 1)


class PatientListener(Listener):
    """Has the call of its base."""


patient = PatientListener()


def log_two_lines(round_: Any) -> None:
    round_.log("mine/x\ny", 1)


def log_huge(round_: Any) -> None:
    round_.log("mine/x", 10**400)


def ask_what_is_missing(round_: Any) -> None:
    round_.log("mine/x", round_.metrics["return/man"])


def no_argument() -> None:
    """Of no use."""
