"""The profile of a training step: the wall and CPU seconds of each of its parts."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Profile:
    """Wall and CPU seconds of each part since the last clearing. A call takes a microsecond."""

    parts: Iterable[str]
    wall: dict[str, float] = field(init=False)
    cpu: dict[str, float] = field(init=False)
    steps: int = 0
    """Number of steps of single agents."""
    _last_times: tuple[float, float] = (0.0, 0.0)
    """Wall and CPU time at the end of the last part."""

    def __post_init__(self) -> None:
        self.clear_()

    def begin_(self) -> None:
        """Start the first part of a step; the time before it counts for no part."""
        self._last_times = time.perf_counter(), time.process_time()

    def end_part_(self, part: str) -> None:
        """Add the time since the last part's end to this part; with a GPU, it is the host's time alone."""
        wall, cpu = time.perf_counter(), time.process_time()
        last_wall, last_cpu = self._last_times
        self.wall[part] += wall - last_wall
        self.cpu[part] += cpu - last_cpu
        self._last_times = wall, cpu

    def microseconds(self, steps: int) -> dict[str, float]:
        """Return metrics: the mean microseconds of each part of a step, over `steps` steps."""
        return {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in self.wall.items()}

    def clear_(self) -> None:
        """Set all times and the number of steps to 0."""
        self.wall = dict.fromkeys(self.parts, 0.0)
        self.cpu = dict.fromkeys(self.parts, 0.0)
        self.steps = 0
