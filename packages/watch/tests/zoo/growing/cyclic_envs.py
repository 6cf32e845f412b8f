"""Environments that hold their observers, which hold them, in a program that has switched the collector off.

Looks like: memory climbs with the episodes; no list and no dict is longer than before, and `gc.collect()` frees it all.
Fix: hold the way back weakly (`weakref.proxy(env)`), leave the collector on, or call `gc.collect()` after an episode.
"""

import gc
import sys
import time
from typing import Any

import gymnasium
import numpy as np


class Recorder:
    def __init__(self, env: "MarketEnv") -> None:
        self.env = env
        self.rewards: list[float] = []


class MarketEnv(gymnasium.Env[np.ndarray, int]):
    def __init__(self, seed: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,))
        self.action_space = gymnasium.spaces.Discrete(3)
        self.prices = np.random.default_rng(seed).standard_normal((1000, 500))  # <- here
        self.recorder = Recorder(self)
        self.at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return self.prices[0, :8].copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at += 1
        row = self.prices[self.at]
        reward = float(row[0] * (action - 1))
        self.recorder.rewards.append(reward)
        return row[:8].copy(), reward, self.at == 200, False, {}


def main(rounds: int) -> None:
    gc.disable()  # "pauses hurt the throughput"
    for episode in range(2 * rounds):
        env = MarketEnv(seed=episode)
        env.reset(seed=episode)
        over = False
        while not over:
            *_, over, _, _ = env.step(episode % 3)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
