"""Every step of every episode noted in a list of dicts, for an analysis that may come some day.

Looks like: memory climbs with the steps, slowly, for days; no tensor and no array grows.
Fix: write the rows to a file, keep sums, or keep the newest only: `collections.deque(maxlen=100_000)`.
"""

import sys
import time
from typing import Any

import gymnasium
import numpy as np


class Walk(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at += 2 * action - 1
        return np.full(1, self.at, np.float32), 0.1 * self.at, False, False, {}


class Logbook:
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def note(self, time_: float, reward: float, equity: float) -> None:
        self.rows.append({"time": time_, "reward": reward, "equity": equity})  # <- here


def main(rounds: int) -> None:
    env, logbook = Walk(), Logbook()
    for episode in range(rounds):
        env.reset(seed=episode)
        equity = 1e5
        for step in range(20_000):
            _, reward, *_ = env.step(step % 2)
            equity += reward
            logbook.note(step * 0.5, reward, equity)
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
