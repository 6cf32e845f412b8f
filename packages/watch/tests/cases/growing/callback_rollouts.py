"""A callback of Stable-Baselines3 that keeps what each step saw.

Thread: https://github.com/DLR-RM/stable-baselines3/issues/1966
Looks like: training grows although the buffers are allocated once.
Fix: keep numbers, not the observations.
"""

import sys
import time

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback


class Field(gym.Env[np.ndarray, int]):
    observation_space = gym.spaces.Box(-1, 1, (20_000,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, object]]:
        self.steps = 0
        return np.zeros(20_000, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.steps += 1
        time.sleep(0.005)
        return np.full(20_000, 0.5, np.float32), float(action), self.steps >= 20, False, {}


class Recorder(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[np.ndarray] = []

    def _on_step(self) -> bool:
        self.seen.append(self.locals["new_obs"].copy())  # <- here
        return True


def main(rounds: int) -> None:
    model = PPO("MlpPolicy", Field(), n_steps=32, batch_size=16, n_epochs=1, policy_kwargs={"net_arch": [8]})
    model.learn(20 * rounds, callback=Recorder())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
