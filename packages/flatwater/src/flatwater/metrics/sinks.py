"""What sinks of a round's numbers, such as a file or TensorBoard, are given: facts of the run, and the numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatwater_watch.events.background import ShowLine

Metrics = Mapping[str, float]
"""A round's numbers by name, such as `{"fitness/mean": 3.2, "time/learn": 11.4, "memory/resident": 412_000_256}`.

`fitness/*` and `validation/*` are in points of reward, `train/*` are losses and gradient norms, `time/*` seconds by
phase, `buffer/fill` and `trades/win_rate` shares of 1, `memory/*` bytes, and `system/*` what other tools show under
these names. A number that a round does not have is left out; NaN means that arithmetic went wrong, and raises an alarm.
"""


@dataclass(frozen=True)
class TrackedRun:
    """The facts about a run that a tracker is made from."""

    name: str
    """Name of the run folder."""
    folder: Path
    """Folder of the tracker in the run folder; the tracker makes it."""
    settings: Mapping[str, Any]
    """The run's configuration."""
    resume_at: int
    """Last complete round of the run; later rounds will be written again, with the same numbers."""
    say: ShowLine
    """Shows a line on the run's terminal, with the next round."""
