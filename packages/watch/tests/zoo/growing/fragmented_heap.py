"""Episodes of ever more records are loaded and dropped again, and a small summary between the records stays.

Looks like: memory climbs, and nothing that the program holds does; `malloc_trim` does not bring all of it back.
Fix: nothing is held. Load into one buffer that is used again; build the summaries after the records are gone; bound how
many records are in memory at once.
"""

import sys
import time
from typing import Any

import gymnasium
import numpy as np


class RecordedEnv(gymnasium.Env[np.ndarray, int]):
    """Plays back episodes from a log."""

    observation_space = gymnasium.spaces.Box(0, 255, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.episode = 0
        self.summaries: list[bytes] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.episode += 1
        records = []
        for step in range(800 * self.episode):
            records.append(bytes(3600))
            if step % 200 == 0:
                self.summaries.append(bytes(520))  # lies after the records, and keeps the heap from shrinking
        return np.full(1, records[0][0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(1, np.float32), float(action), True, False, {}


def main(rounds: int) -> None:
    env = RecordedEnv()
    for _ in range(2 * rounds):
        env.reset()
        env.step(0)
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
