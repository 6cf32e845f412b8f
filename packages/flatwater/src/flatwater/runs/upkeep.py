"""Work that keeps a run's records: due by number where the user says so, and else as often as its last cost allows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

FIRST_ROUNDS = 4
"""Rounds of a process after which the work is always done: a short run is recorded whole."""
TIME_SHARE = 1 / 800
"""Share of the run's time that each such work may take."""
MAXIMUM_GAP_SECONDS = 30.0
"""Seconds after which the work is due whatever it costs: a killed run loses no more, or one round."""


@dataclass
class Upkeep:
    """The times of one such work, such as saving a checkpoint, in one training process."""

    rounds: int
    """Rounds of the run in all; after the last round the work is always done."""
    every: int = 0
    """Rounds from one time to the next; 0 if the cost decides."""
    lasting: int = 0
    """Rounds whose multiples are due besides; 0 for none."""
    seen: int = 0
    """Rounds of this process so far."""
    due: float = 0.0
    """Time from which on the work is due, by `clock`."""
    clock: Callable[[], float] = monotonic

    def is_due_(self, round_: int) -> bool:
        """Return whether the work is due after this round, at its begin or its end; asked once a round."""
        self.seen += 1
        if round_ >= self.rounds or (self.lasting and round_ % self.lasting == 0):
            return True
        if self.every:
            return round_ % self.every == 0
        return self.seen <= FIRST_ROUNDS or self.clock() >= self.due

    @contextmanager
    def measure_cost(self) -> Iterator[None]:
        """Do the work within: the pause after it is as long as its cost is a small share of."""
        began = self.clock()
        yield
        ended = self.clock()
        self.due = ended + min(MAXIMUM_GAP_SECONDS, (ended - began) / TIME_SHARE)
