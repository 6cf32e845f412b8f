"""A limit on the steps of an episode, whatever the environment's own."""

import numpy as np

from flatwater.envs.world import Array

MOST_STEPS = 1000
"""Steps of an episode where neither the settings nor the environment have a limit."""


class StepLimit:
    """Counter of the steps of each environment's episode."""

    def __init__(self, envs: int, steps: int) -> None:
        self._limit = steps
        self._steps_taken = np.zeros(envs, np.int64)
        self._seeds = np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array) -> None:
        """Start counting again, in episodes of these seeds."""
        self._steps_taken[which] = 0
        self._seeds[which] = seeds[which]

    def place(self, env: int, method: str) -> str:
        """Return an environment's episode and step, for messages, before the step is counted."""
        moment = "at the beginning" if method == "reset" else f"in step {self._steps_taken[env] + 1}"
        return f"{moment} of the episode of seed {self._seeds[env] % 2**32} (copy {env})"

    def truncate_(self, terminated: Array, truncated: Array) -> None:
        """Count a step, and truncate agents that are left when the limit is reached."""
        # After the environment's own flags: who has terminated is not truncated as well.
        self._steps_taken += 1
        truncated |= ~terminated & (self._steps_taken >= self._limit)[:, None]
