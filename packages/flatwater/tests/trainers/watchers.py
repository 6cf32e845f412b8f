"""A watcher for tests, of any kind of run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flatwater.trainers.loop import Trainer

NEVER = 1 << 40
TIMED = ("profile/", "train/sps")


@dataclass
class Silent:
    """Keeps the numbers of each round, without times, and stops the run after some steps."""

    left: int = NEVER
    """Steps until it stops."""
    done: int | None = None
    """The round that was settled last; None takes any as the first."""
    rounds: list[dict[str, float]] = field(default_factory=list)

    def on_step(self, phase: str, done: int, total: int) -> None:
        assert 0 < done <= total, phase
        self.left -= 1

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        assert self.done is None or round_ == self.done + 1
        self.done = round_
        self.rounds.append({name: value for name, value in metrics.items() if not name.startswith(TIMED)})

    def should_stop(self) -> bool:
        return self.left <= 0


def phase_(trainer: Trainer[Any, Any], name: str) -> None:
    """Run one phase of a round, all its steps."""
    phase = next(phase for phase in trainer.phases if phase.name == name)
    for step in range(phase.steps()):
        phase.step_(step)
