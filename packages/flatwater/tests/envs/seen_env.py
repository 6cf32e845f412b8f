"""Environments that can be seen, drawn without a library: for tests of videos."""

from typing import Any

import gymnasium
import numpy as np

from flatwater_watch.meters.process import resident_bytes

HEIGHT, WIDTH = 40, 60


class Seen(gymnasium.Env[Any, Any]):
    """A dot that actions move; an episode ends where it leaves the picture."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  (Gymnasium's form)
    steps = 12
    held: list[int] = []  # noqa: RUF012  (of all copies)
    """Resident bytes at each frame."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place, self.taken = self.np_random.uniform(-0.5, 0.5), 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.taken = self.place + 0.1 * (2 * action - 1), self.taken + 1
        return self._look(), float(self.place), abs(self.place) >= 1, self.taken >= self.steps, {}

    def _look(self) -> Any:
        return np.array([self.place], np.float32).clip(-1, 1)

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        self.held.append(resident_bytes())
        frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        frame[:, int((min(max(self.place, -1), 0.99) + 1) / 2 * WIDTH)] = 255
        return frame


class Long(Seen):
    """Large pictures, and many of them: all together would take 720 MB."""

    steps = 300

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, paid, _, truncated, info = super().step(action)
        return seen, paid, False, truncated, info

    def render(self) -> Any:
        return np.tile(super().render(), (20, 16, 1))


class Blind(Seen):
    """Without pictures: its class takes no `render_mode`."""

    def __init__(self) -> None:
        super().__init__()


class Odd(Seen):
    """Pictures that are none."""

    def render(self) -> Any:
        return np.zeros((3, 3))


def scaled(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return an environment whose wrapper keeps the scales of observations over episodes."""
    return gymnasium.wrappers.NormalizeObservation(Seen(render_mode))
