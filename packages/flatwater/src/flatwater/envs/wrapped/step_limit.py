"""A limit on the steps of an episode, whatever the environment's own."""

import numpy as np

from flatwater.envs.world import Array

MAXIMUM_STEPS = 1000
"""Steps of an episode where neither the settings nor the environment have a limit."""


class StepLimit:
    """Counter of the steps of each environment's episode."""

    def __init__(self, envs: int, steps: int) -> None:
        self._limit, self._soonest = steps, steps
        self._steps_of_all = 0
        self._began_after = np.zeros(envs, np.int64)  # steps of all at which each episode began
        self._seeds = np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array) -> None:
        """Start counting again, in episodes of these seeds."""
        self._began_after[which] = self._steps_of_all
        self._seeds[which] = seeds[which]

    def place(self, env: int, method: str) -> str:
        """Return an environment's episode and step, for messages, before the step is counted."""
        step = self._steps_of_all - self._began_after[env] + 1
        moment = "at the beginning" if method == "reset" else f"in step {step}"
        return f"{moment} of the episode of seed {self._seeds[env] % 2**32} (copy {env})"

    def truncate_(self, terminated: Array, truncated: Array) -> None:
        """Count a step, and truncate agents that are left when the limit is reached."""
        self._steps_of_all += 1
        if self._steps_of_all < self._soonest:
            return
        reached = self._steps_of_all - self._began_after >= self._limit
        # After the environment's own flags: who has terminated is not truncated as well.
        truncated |= ~terminated & reached[:, None]
        # Episodes begin again only later: until then no agent is at its limit, and nothing is compared.
        self._soonest = int(self._began_after.min()) + self._limit
