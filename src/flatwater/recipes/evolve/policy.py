"""The champion of a run, to be used: observations in, actions out."""

import numpy as np
import torch

from flatwater.envs.world import Array
from flatwater.errors import ConfigError
from flatwater.nets.stack import views
from flatwater.recipes.evolve.run import EvolveRun
from flatwater.trainers.evolve.play import Scale
from flatwater.trainers.evolve.state import Setup


def policy_of(run: EvolveRun) -> "Champion":
    """The champion of a run that was restored; it keeps a copy of its weights, and nothing else of the run."""
    return Champion(run.trainer.setup, run.trainer.run.learner.actor[-1:].clone())


class Champion:
    """The policy of the champion, without noise. It remembers nothing of what it saw."""

    def __init__(self, setup: Setup, row: torch.Tensor) -> None:
        """Bind the weights.

        Args:
            setup: of the run.
            row: [1, n], the weights of the actor.
        """
        self._actor, self._shape, self._device = setup.nets.actor, setup.spaces.obs, setup.device
        self._params, self._scale = views(row, setup.nets.actor.layout), Scale(setup.spaces)

    def act(self, obs: Array) -> Array:
        """The action on an observation [N], or the actions on several, [B, N]: numbers within their bounds.

        Raises:
            ConfigError: an observation has another shape than those that were learned from.
        """
        seen = np.asarray(obs, np.float32)
        alone = seen.shape == self._shape
        rows = seen[None] if alone else seen
        if rows.shape[1:] != self._shape:
            raise ConfigError(
                f"obs = an array {list(seen.shape)}: wanted is {list(self._shape)}, or {['B', *self._shape]} of several"
            )
        with torch.no_grad():
            action = self._actor(self._params, torch.from_numpy(np.ascontiguousarray(rows))[None].to(self._device))[0]
        found = self._scale(action)
        one: Array = found[0] if alone else found
        return one
