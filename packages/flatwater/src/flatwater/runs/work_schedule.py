"""When to do work that keeps a run's records, such as a save: every n-th round, or as often as its cost allows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

FIRST_ROUNDS = 4
"""Number of rounds at the start of a process after which the work is always done: a short run is recorded whole."""
TIME_SHARE = 1 / 800
"""Share of the run's time that one kind of work may take."""
MAXIMUM_GAP_SECONDS = 30.0
"""Longest pause, whatever the work costs: a killed run loses no more time than that, or one round."""


@dataclass
class WorkSchedule:
    """Decides after which rounds one kind of work is done, such as saving a checkpoint, in one training process."""

    rounds: int
    """Rounds of the run in all; after the last round the work is always done."""
    every: int = 0
    """The work is due after every n-th round; 0 if its cost decides."""
    always_every: int = 0
    """The work is due after every n-th round in addition, whatever it costs; 0 for none."""
    rounds_seen: int = 0
    """Rounds of this process so far."""
    due_time: float = 0.0
    """Time from which on the work is due, in seconds of `clock`."""
    clock: Callable[[], float] = monotonic

    def is_due_(self, round_: int) -> bool:
        """Return whether the work is due after this round. Call it once a round, as it counts the calls.

        With `every` the round's number decides; without it, the work is due in the first rounds, then from `due_time`.
        """
        self.rounds_seen += 1
        if round_ >= self.rounds or (self.always_every and round_ % self.always_every == 0):
            return True
        if self.every:
            return round_ % self.every == 0
        return self.rounds_seen <= FIRST_ROUNDS or self.clock() >= self.due_time

    @contextmanager
    def measure_cost(self) -> Iterator[None]:
        """Time the work in the `with` block, and set when it is due next, so that it takes `TIME_SHARE` of all time."""
        began = self.clock()
        yield
        end = self.clock()
        gap_seconds = (end - began) / TIME_SHARE  # the work takes its share of this time
        self.due_time = end + min(MAXIMUM_GAP_SECONDS, gap_seconds)
