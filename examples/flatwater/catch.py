"""Catch, an environment of images: a ball falls, and a paddle below it catches it or not.

    flatwater train ppo --env catch:Catch --wrapped.steps 12

in the folder of this file.

docs/flatwater/networks.md says what it is learned by: a network of convolutions, or a module of one's own.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

CELLS, SIDE = 12, 3
"""Cells on a side of the field, and pixels on a side of a cell."""


class Catch(gymnasium.Env[Any, Any]):
    """Left, stay or right; 1 is paid where the paddle is below the ball in the last row, else 0."""

    observation_space = Box(0, 255, (CELLS * SIDE, CELLS * SIDE, 1), np.uint8)
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin with the ball in the first row; its column and the paddle's follow from the seed."""
        super().reset(seed=seed, options=options)
        self.row, (self.ball, self.paddle) = 0, self.np_random.integers(CELLS, size=2)
        return self.draw(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the paddle by a cell, and let the ball fall by one."""
        self.row, self.paddle = self.row + 1, min(max(self.paddle + action - 1, 0), CELLS - 1)
        is_over = self.row == CELLS - 1
        return self.draw(), float(is_over and self.ball == self.paddle), is_over, False, {}

    def draw(self) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
        """Return the image."""
        cells = np.zeros((CELLS, CELLS, 1), np.uint8)
        cells[self.row, self.ball] = cells[-1, self.paddle] = 255
        return cells.repeat(SIDE, 0).repeat(SIDE, 1)
