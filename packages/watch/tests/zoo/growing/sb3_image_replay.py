"""Stable-Baselines3 DQN on images: its replay buffer is allocated whole, and filled while it trains.

Looks like: memory climbs with every step, for hours, in a program that has allocated all it needs.
Fix: it is no leak. It stops at the size of the buffer: `observations` and `next_observations`, a byte for each pixel.
Lower `buffer_size`, or use `optimize_memory_usage=True`, which stores each image once.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import DQN

BUFFER, SHAPE = 6000, (3, 64, 64)


class Images(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return self.image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at += 1
        return self.image(), float(action), self.at == 50, False, {}

    def image(self) -> np.ndarray:
        return self.np_random.integers(0, 255, SHAPE, np.uint8)


def main(rounds: int) -> None:
    agent = DQN(
        "CnnPolicy",
        Images(),
        buffer_size=BUFFER,
        learning_starts=100,
        batch_size=8,
        train_freq=25,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.5,
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 32}},
        device="cpu",
        seed=0,
    )
    agent.learn(total_timesteps=150 * rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
