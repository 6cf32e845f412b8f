"""What each phase of a round takes: seconds, CPU seconds, steps, and the peak of resident memory."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flatwater.memory.ledger import Effort
from flatwater.memory.probes.mappings import footprint, peak_bytes, reset_peak


@dataclass
class Efforts:
    """Counts between two moments to the phase that was at work; one for each process that trains a run."""

    spent: dict[str, Effort] = field(default_factory=dict)
    """By phase, since `take_`."""
    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)
    resident: int = field(default_factory=lambda: footprint().resident)
    highest: int = field(default_factory=lambda: peak_bytes() or 0)
    """The most that was ever resident, from before the first phase on; 0 where nobody counts it."""
    counts_peaks: bool = field(default_factory=reset_peak)

    def count_(self, phase: str, *, ends: bool = True) -> None:
        """Add what was spent since the last call, as one step of the phase.

        Args:
            phase: what was at work.
            ends: whether this was its last step of the round: then its peak is read, and the next phase's begins.
        """
        wall, cpu = time.monotonic(), time.process_time()
        before = self.spent.get(phase, Effort(0.0, 0.0, 0, None))
        self.spent[phase] = Effort(
            seconds=before.seconds + wall - self.wall,
            cpu_seconds=before.cpu_seconds + cpu - self.cpu,
            steps=before.steps + 1,
            peak=self._peak_() if ends else before.peak,
        )
        self.wall, self.cpu = wall, cpu

    def take_(self) -> dict[str, Effort]:
        """The phases since the last call, and begin anew."""
        taken, self.spent = self.spent, {}
        return taken

    def _peak_(self) -> int | None:
        reached = peak_bytes() if self.counts_peaks else None
        above = None if reached is None else max(0, reached - self.resident)
        self.resident = footprint().resident
        self.highest = max(self.highest, reached or 0)
        reset_peak()
        return above


def steps_per_second(efforts: Mapping[str, Effort], phases: Iterable[str]) -> float:
    """Steps of the loop in these phases over the seconds that they took; 0 where no time was measured."""
    spent = [efforts[name] for name in phases if name in efforts]
    seconds = sum(effort.seconds for effort in spent)
    return sum(effort.steps for effort in spent) / seconds if seconds else 0.0
