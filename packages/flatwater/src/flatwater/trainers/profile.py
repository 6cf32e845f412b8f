"""Where the time of a step goes: marks between its parts."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Profile:
    """Seconds by part since they were taken, on the wall and of the CPU. A mark takes a microsecond."""

    parts: Iterable[str]
    wall: dict[str, float] = field(init=False)
    cpu: dict[str, float] = field(init=False)
    steps: int = 0
    """Steps of single agents."""
    _at: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self.clear_()

    def begin_(self) -> None:
        """What came before counts to nobody."""
        self._at = time.perf_counter(), time.process_time()

    def end_part_(self, part: str) -> None:
        """What was spent since the last mark is this part's. On a GPU it is what the host waited for."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.wall[part] += wall - self._at[0]
        self.cpu[part] += cpu - self._at[1]
        self._at = wall, cpu

    def clear_(self) -> None:
        """Count anew."""
        self.wall = dict.fromkeys(self.parts, 0.0)
        self.cpu = dict.fromkeys(self.parts, 0.0)
        self.steps = 0
