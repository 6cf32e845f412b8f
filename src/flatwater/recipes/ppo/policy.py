"""What a run of PPO or of teaching has trained, to be used: observations in, actions out."""

import numpy as np
import torch

from flatwater.envs.world import Array, Spaces
from flatwater.errors import ConfigError
from flatwater.learners.blocks import bound_weights, look
from flatwater.nets.policy import Weights
from flatwater.nets.student import Student
from flatwater.recipes.ppo.run import BlocksRun


def policy_of(run: BlocksRun) -> "TrainedPolicy":
    """The policy of a run that was restored; it keeps a copy of the weights, and nothing else of the run."""
    setup = run.trainer.setup
    weights = bound_weights(setup.student, run.trainer.run.learner)
    return TrainedPolicy(setup.student, setup.spaces, {name: weight.clone() for name, weight in weights.items()})


class TrainedPolicy:
    """The policy of a run, with its likeliest actions. It remembers each agent where it was trained with a memory.

    Observations are as the environment's agents see them: tokens [K, 3], or a vector [N]; one of them, or [B, ...] of
    several agents side by side.
    """

    def __init__(self, student: Student, spaces: Spaces, weights: Weights) -> None:
        """Remember nothing yet.

        Args:
            student: the network.
            spaces: of the environment that it was trained for.
            weights: of the network, by name; they are kept as they are.
        """
        self._student, self._spaces, self._weights = student, spaces, weights
        self._device = student.device
        self._memory = torch.zeros(2, 0, student.policy.cells, device=self._device)

    def begin(self, which: Array | None = None) -> None:
        """Forget what was seen: of all agents, or of those of `which`, bool [B]. Call it where an episode begins."""
        if which is None or not self._memory.shape[1]:
            self._memory = self._memory[:, :0]
        else:
            self._memory[:, torch.from_numpy(np.asarray(which, np.bool_))] = 0

    def act(self, obs: Array) -> Array:
        """The action on each observation: a position in the list, one of each list, or numbers within their bounds.

        Raises:
            ConfigError: an observation has another shape than those that were learned from, or there are other agents
                than before.
        """
        seen, shape = np.asarray(obs), self._spaces.obs
        alone = seen.shape == shape
        rows = seen[None] if alone else seen
        if rows.shape[1:] != shape:
            raise ConfigError(
                f"obs = an array {list(seen.shape)}: wanted is {list(shape)}, or {['B', *shape]} of several agents"
            )
        if self._memory.shape[1] == 0:
            self._memory = self._memory.new_zeros(2, len(rows), self._memory.shape[2])
        if self._memory.shape[1] != len(rows):
            raise ConfigError(
                f"obs = those of {len(rows)} agents: {self._memory.shape[1]} are remembered. Call begin() before others"
            )
        kind = np.uint8 if self._spaces.form == "tokens" else np.float32
        shown = torch.from_numpy(np.ascontiguousarray(rows, kind)).to(self._device)
        starts = torch.zeros(len(rows), dtype=torch.bool, device=self._device)
        given = look(self._student, self._weights, obs=shown, memory=self._memory, starts=starts)
        self._memory = given.memory
        action = self._student.actions.given(given.logits[0]).likeliest().cpu().numpy()
        if self._spaces.bounds is not None:
            action = np.clip(action, *np.array(self._spaces.bounds, np.float32).T)
        found: Array = action[0] if alone else action
        return found
