"""The training loop: rounds of phases of steps, resumable at every step.

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


def next_number(number: int) -> int:
    """Return the number after this one: of a phase that takes all of its steps."""
    return number + 1


@dataclass(frozen=True)
class Phase:
    """A named part of a round, made of steps."""

    name: str
    steps: Callable[[], int]
    """Steps of this round's phase; it must not change while the phase runs."""
    step_: Callable[[int], None]
    """Takes the step of this number on the state tree."""
    next_step: Callable[[int], int] = next_number
    """Returns the number of the step to take after this one. It may leave steps out, as when all episodes have ended;
    `steps` ends the phase."""

    @property
    def may_end_early(self) -> bool:
        """Whether `steps` is the most that the phase takes."""
        return self.next_step is not next_number


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
    """Returns the round's numbers, read from the device once, and clears the sums of the round."""

    @property
    def progress(self) -> Progress:
        """Place of the run in its rounds."""
        return self.run.progress


class Watcher(Protocol):
    """The loop's listener, which shows, records and saves the run, and may stop it."""

    def on_step(self, phase: str, done: int, total: int) -> None:
        """Be called after a step: `done` of the phase's `total` steps are complete."""

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Be called after a round, with its metrics; `Progress` counts it already."""

    def should_stop(self) -> bool:
        """Return whether the loop should stop before the next step."""


def train_(trainer: Trainer[Any, Any], rounds: int, watcher: Watcher) -> bool:
    """Train until the run has `rounds` complete rounds; return True, or False if the watcher stopped it earlier."""
    progress, phases = trainer.progress, trainer.phases
    while progress.round < rounds:
        while progress.phase < len(phases):
            if not _run_phase_(phases[progress.phase], progress, watcher):
                return False
        # Counted before the watcher is called: a checkpoint that it saves must go on with the next round.
        progress.phase = 0
        progress.round += 1
        metrics = trainer.settle_()
        watcher.on_round(progress.round, metrics)
    return True


def _run_phase_(phase: Phase, progress: Progress, watcher: Watcher) -> bool:
    """Take the phase's remaining steps; return False if the watcher stopped it before all were taken."""
    total = phase.steps()
    while progress.step < total:
        if watcher.should_stop():
            return False
        phase.step_(progress.step)
        # Counted before the watcher is called: a checkpoint that it saves must not take this step again.
        progress.step = phase.next_step(progress.step)
        watcher.on_step(phase.name, progress.step, total)
    progress.phase += 1
    progress.step = 0
    return True
