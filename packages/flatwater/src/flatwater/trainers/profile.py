"""Time of a step by its parts: marks between them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Profile:
    """Seconds by part since the last clearing, on the wall and of the CPU. A mark takes a microsecond."""

    parts: Iterable[str]
    wall: dict[str, float] = field(init=False)
    cpu: dict[str, float] = field(init=False)
    steps: int = 0
    """Number of steps of single agents."""
    _at: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self.clear_()

    def begin_(self) -> None:
        """Start a part; time before it counts for no part."""
        self._at = time.perf_counter(), time.process_time()

    def end_part_(self, part: str) -> None:
        """Count the time since the last mark for this part. On a GPU it is the time that the host waited."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.wall[part] += wall - self._at[0]
        self.cpu[part] += cpu - self._at[1]
        self._at = wall, cpu

    def microseconds(self, steps: int) -> dict[str, float]:
        """Return the time of each part of a step as a metric, averaged over `steps` steps."""
        return {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in self.wall.items()}

    def clear_(self) -> None:
        """Start counting again."""
        self.wall = dict.fromkeys(self.parts, 0.0)
        self.cpu = dict.fromkeys(self.parts, 0.0)
        self.steps = 0
