"""The map from a policy's actions in [-1, 1] to the bounds of a world's actions."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.world import Array, Spaces


class ActionScale:
    """The map from actions in [-1, 1] to a world's bounds; choices stay as they are."""

    def __init__(self, spaces: Spaces) -> None:
        """Read the bounds of actions; in a world without bounds an action is a choice."""
        self._chooses = spaces.bounds is None
        # Where an action is a choice, [-1, 1] stands for the missing bounds, and is not used.
        low, high = np.array(spaces.bounds or [(-1, 1)], np.float32).T
        self._low, self._high = low, high
        self._middle, self._half = (low + high) / 2, (high - low) / 2

    def __call__(self, action: Float[Tensor, "*any A"]) -> Array:
        """Return the world's actions, as an array."""
        if self._chooses:
            return np.asarray(action.cpu().numpy())
        # Clipped, because rounding may leave the bounds.
        scaled_action: Array = np.clip(action.cpu().numpy() * self._half + self._middle, self._low, self._high)
        return scaled_action
