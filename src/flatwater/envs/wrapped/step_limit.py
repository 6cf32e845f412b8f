"""Episodes that take no longer than is wanted, whatever the environment thinks."""

import numpy as np

from flatwater.envs.world import Array


class StepLimit:
    """Counts the steps of each environment's episode."""

    def __init__(self, envs: int, steps: int) -> None:
        self._limit = steps
        self._taken = np.zeros(envs, np.int64)

    def begin_(self, which: Array) -> None:
        """Start counting anew."""
        self._taken[which] = 0

    def truncate_(self, terminated: Array, truncated: Array) -> None:
        """Count a step, and truncate whoever is left where the time is over."""
        self._taken += 1
        truncated |= ~terminated & (self._taken >= self._limit)[:, None]
