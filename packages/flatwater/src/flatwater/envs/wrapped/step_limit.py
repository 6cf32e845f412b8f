"""A limit on the steps of an episode, whatever the environment's own."""

import numpy as np

from flatwater.envs.world import Array

MAXIMUM_STEPS = 1000
"""Steps of an episode where neither the settings nor the environment have a limit."""


class StepLimit:
    """Counter of the steps of each environment's episode, which truncates episodes of `steps` steps.

    All environments step together, so one counter is kept, and its value at the beginning of each episode.
    """

    def __init__(self, envs: int, steps: int) -> None:
        """Begin to count, for episodes of at most `steps` steps in each of `envs` environments."""
        self._limit = steps
        self._step_count = 0
        self._count_at_start = np.zeros(envs, np.int64)
        self._next_limit_at = steps  # no episode reaches the limit before this step
        self._seeds = np.zeros(envs, np.int64)

    def begin_(self, env_mask: Array, seeds: Array) -> None:
        """Start the episodes of `env_mask`, bool [E], with these seeds, int64 [E], at 0 steps."""
        self._count_at_start[env_mask] = self._step_count
        self._seeds[env_mask] = seeds[env_mask]

    def place(self, env: int, method: str) -> str:
        """Return an environment's episode and present step for a message: `in step 3 of the episode of ...`.

        `method` is the call that failed: `reset` or `step`.
        """
        # + 1, as `truncate_` counts the step only after the message.
        step = self._step_count - self._count_at_start[env] + 1
        moment = "at the beginning" if method == "reset" else f"in step {step}"
        return f"{moment} of the episode of seed {self._seeds[env] % 2**32} (copy {env})"

    def truncate_(self, terminated: Array, truncated: Array) -> None:
        """Count a step; where an episode reaches the limit, set `truncated`, bool [E, A], of agents that are left."""
        self._step_count += 1
        if self._step_count < self._next_limit_at:
            return
        is_reached = self._step_count - self._count_at_start >= self._limit
        truncated |= ~terminated & is_reached[:, None]
        # The next step at which an episode can reach the limit: that of the oldest. Until then no step compares arrays.
        self._next_limit_at = int(self._count_at_start.min()) + self._limit
