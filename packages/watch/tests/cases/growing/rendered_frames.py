"""A wrapper that collects the frames of each step, and is never asked for them.

Thread: https://github.com/Farama-Foundation/Gymnasium/issues/1377
Looks like: an evaluation with pictures grows until the environment is closed.
Fix: call `env.render()` once an episode, or leave `pop_frames` and `reset_clean` on.
"""

import sys
import time
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import RenderCollection


class Field(gym.Env[np.ndarray, int]):
    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, object]]:
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.steps += 1
        time.sleep(0.02)
        return np.full(4, 0.5, np.float32), float(action), self.steps >= 10, False, {}

    def render(self) -> np.ndarray:
        return np.full((320, 320, 3), self.steps, np.uint8)  # <- here


def main(rounds: int) -> None:
    env = RenderCollection(Field(), pop_frames=False, reset_clean=False)
    for _ in range(rounds):
        env.reset()
        done = False
        while not done:
            _, _, done, _, _ = env.step(1)
    env.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
