"""A new environment for each episode, and a registry on the class that never lets one go.

Looks like: memory climbs with the episodes, by the size of what an environment loads, although only one is in use.
Fix: build the environment once and reset it; or take it out of the registry in `close()`, or register it weakly
(`weakref.WeakValueDictionary`).
"""

import sys
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np


class MarketEnv(gymnasium.Env[np.ndarray, int]):
    """Prices of its own, a position, and a reward for holding it."""

    open_envs: ClassVar[dict[str, "MarketEnv"]] = {}

    def __init__(self, name: str, seed: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,))
        self.action_space = gymnasium.spaces.Discrete(3)
        self.prices = np.random.default_rng(seed).standard_normal((2000, 500))  # <- here
        MarketEnv.open_envs[name] = self
        self.at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return self.prices[0, :8].copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at += 1
        row = self.prices[self.at]
        return row[:8].copy(), float(row[0] * (action - 1)), self.at == 200, False, {}


def main(rounds: int) -> None:
    for episode in range(rounds):
        env = MarketEnv(f"market-{episode}", seed=episode)
        env.reset(seed=episode)
        over = False
        while not over:
            *_, over, _, _ = env.step(episode % 3)
        time.sleep(0.3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
