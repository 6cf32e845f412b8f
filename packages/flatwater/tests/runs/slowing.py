"""A run whose teacher keeps a map of all that anybody ever saw, for all environments, and never resets it.

python packages/flatwater/tests/runs/slowing.py FOLDER
"""

import sys

import numpy as np

from flatwater.cli.main import main
from flatwater.envs.world import Array, World


class Hoarder:
    """Looks through everything it has seen before it answers."""

    def __init__(self, world: World) -> None:
        self._actions = len(world.spaces.actions)
        self._seen: list[Array] = []

    def begin_(self, which: Array) -> None:
        """It forgets nothing."""

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Count how often each agent has seen what it sees."""
        self._seen.append(obs.reshape(-1, *obs.shape[2:]).copy())
        often = np.zeros(len(self._seen[0]), np.int64)
        for earlier in self._seen:
            often += (earlier == self._seen[-1]).all((1, 2))
        actions_out[...] = (often % self._actions).reshape(actions_out.shape)


if __name__ == "__main__":
    options = ["--world", "forage", "--teacher", "__main__:Hoarder", "--block", "16", "--envs", "4", "--rounds", "100"]
    options += ["--ledger-every", "1"]
    small = ["--learner.minibatches", "4", "--policy.width", "32", "--policy.hidden", "32", "--policy.memory", "32"]
    sys.exit(main(["train", "teach", "--threads", "1", *options, *small, "--run", sys.argv[1]]))
