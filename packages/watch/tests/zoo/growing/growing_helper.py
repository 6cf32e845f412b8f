"""A reward that is scaled by a percentile of all rewards so far: the work of a step grows with the steps.

Looks like: steps per second fall, from the first hour on, while memory hardly moves.
Fix: scale by running moments, or by the newest thousand rewards: `collections.deque(maxlen=1000)`.
"""

import sys
import time
from typing import Any

import gymnasium
import numpy as np


class Scale:
    def __init__(self) -> None:
        self.rewards: list[float] = []

    def scaled(self, reward: float) -> float:
        self.rewards.append(reward)
        return reward / (1e-6 + abs(float(np.percentile(np.asarray(self.rewards), 90))))  # <- here


class Walk(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.at = 0
        self.scale = Scale()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at += 2 * action - 1
        reward = self.scale.scaled(float(self.np_random.standard_normal()))
        return np.full(1, self.at, np.float32), reward, False, False, {}


def main(rounds: int) -> None:
    env = Walk()
    for episode in range(rounds):
        env.reset(seed=episode)
        for step in range(1600):
            env.step(step % 2)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
