"""Progress of a sweep or a study by the rounds of its runs, with an estimate of the time left."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flatwater.metrics.jsonl import Record
from flatwater.metrics.short_numbers import short_duration
from flatwater.rundir.layout import RunFolder, recorded_rounds


@dataclass
class RoundProgress:
    """Rounds that are done of those of all runs together; every round counts alike."""

    rounds: int
    """Rounds of all runs together."""
    done: int
    """Rounds that are done, those of earlier starts included."""
    show: Callable[[], None] = lambda: None
    """Function that shows the progress; called when it changes."""
    rounds_before: int = field(init=False)
    """Rounds that were done when this start began."""
    began_at: float = field(default_factory=time.monotonic)
    """Clock of this start, in seconds of `time.monotonic`."""

    def __post_init__(self) -> None:
        # Rounds of an earlier start do not count for the speed of this start.
        self.rounds_before = self.done

    def count_record_(self, record: Record, known_rounds: int) -> None:
        """Count the round of a run's record, unless it is one of the first `known_rounds`, which `done` has already."""
        if record["round"] > known_rounds:
            self.done += 1
            self.show()

    def drop_(self, rounds: int) -> None:
        """Subtract rounds that will not be trained, of a run that was ended early."""
        self.rounds -= rounds
        self.show()

    def describe(self, unit: str) -> str:
        """Return a phrase such as `generation 3 of 40, 12m left`."""
        return f"{unit} {self.done:,} of {self.rounds:,}, {self.time_left()}"

    def time_left(self) -> str:
        """Return a phrase: `12m left`, or that only scores are left, or that this start has done no round yet."""
        rounds_since_start = self.done - self.rounds_before
        if self.done >= self.rounds:
            return "only the scores are left"
        if not rounds_since_start:
            return "time left unknown yet"
        seconds_per_round = (time.monotonic() - self.began_at) / rounds_since_start
        return f"{short_duration(seconds_per_round * (self.rounds - self.done))} left"


def rounds_of_trials(sweep: Path) -> int:
    """Return the rounds that the trials of a sweep have recorded; 0 if there is no such folder."""
    # Of the folders alone: a study asks this before it knows whether Optuna is needed.
    return sum(recorded_rounds(RunFolder(trial)) for trial in sweep.glob("trial-*"))
