"""Episodes that take no longer than is wanted, whatever the environment thinks."""

import numpy as np

from flatwater.envs.world import Array


class StepLimit:
    """Counts the steps of each environment's episode."""

    def __init__(self, envs: int, steps: int) -> None:
        self._limit = steps
        self._taken = np.zeros(envs, np.int64)
        self._seeds = np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array) -> None:
        """Start counting anew, in episodes of these seeds."""
        self._taken[which] = 0
        self._seeds[which] = seeds[which]

    def place(self, env: int, method: str) -> str:
        """Where an environment is, for messages, before its step is counted."""
        when = "at the beginning" if method == "reset" else f"in step {self._taken[env] + 1}"
        return f"{when} of the episode of seed {self._seeds[env] % 2**32} (copy {env})"

    def truncate_(self, terminated: Array, truncated: Array) -> None:
        """Count a step, and truncate whoever is left where the time is over."""
        self._taken += 1
        truncated |= ~terminated & (self._taken >= self._limit)[:, None]
