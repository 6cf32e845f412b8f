"""The one loop: rounds of phases of steps, resumable at every step.

A trainer is a list of phases over a state tree. After each step the whole run is in the tree, so a checkpoint taken
there continues bit for bit: the loop finds its place in `Progress` and goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flatwater.state.tree import state


@state
class Progress:
    """Place of a run: all rounds before `round` are complete, and so are all steps before `step` of `phase`."""

    round: int = 0
    phase: int = 0
    step: int = 0


@dataclass(frozen=True)
class Phase:
    """A part of a round with a name of its own in progress, metrics and time."""

    name: str
    steps: Callable[[], int]
    """Steps of this round's phase; it must not change while the phase runs."""
    step_: Callable[[int], None]
    """Do one step, by number, on the state tree."""


class RootState(Protocol):
    """The root of a state tree, in which the loop keeps its place."""

    @property
    def progress(self) -> Progress:
        """Place of the run in its rounds."""


T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", bound=RootState, covariant=True)


@dataclass(frozen=True)
class Trainer(Generic[T_co, R_co]):
    """A run that the loop drives: a state tree, and the phases of a round over it."""

    setup: T_co
    """Constants of the run, which are not state: its settings, networks as functions."""
    run: R_co
    """The root of the state tree."""
    phases: Sequence[Phase]
    """Phases in the order of a round."""
    settle_: Callable[[], Mapping[str, float]]
    """Read the round's numbers, once, from the device, and clear the sums of the round."""

    @property
    def progress(self) -> Progress:
        """Place of the run in its rounds."""
        return self.run.progress


class Watcher(Protocol):
    """The loop's listener: it shows, records and saves, and can ask the run to stop."""

    def stepped(self, phase: str, done: int, total: int) -> None:
        """Hear that a step is complete."""

    def settled(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Hear that a round is complete; `Progress` says so already."""

    def stopping(self) -> bool:
        """Return whether to stop before the next step."""


def train_(trainer: Trainer[Any, Any], rounds: int, watcher: Watcher) -> bool:
    """Train until `rounds` are complete in all; return False if the watcher stopped the run earlier."""
    progress, phases = trainer.progress, trainer.phases
    while progress.round < rounds:
        while progress.phase < len(phases):
            if not _phase_(phases[progress.phase], progress, watcher):
                return False
        # Before the watcher is told, which may save a checkpoint: it must go on with the next round.
        progress.phase = 0
        progress.round += 1
        watcher.settled(progress.round, trainer.settle_())
    return True


def _phase_(phase: Phase, progress: Progress, watcher: Watcher) -> bool:
    """Take the phase's remaining steps; return False if the watcher stops it, with `progress` at the next step."""
    total = phase.steps()
    while progress.step < total:
        if watcher.stopping():
            return False
        phase.step_(progress.step)
        # Before the watcher is told, which may save a checkpoint: this step must not be taken twice.
        progress.step += 1
        watcher.stepped(phase.name, progress.step, total)
    progress.phase, progress.step = progress.phase + 1, 0
    return True
