"""The loop: a run stopped after any step and continued does the same steps as one that was not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from flatwater.trainers.loop import Phase, Progress, Trainer, train_


@dataclass
class Counting:
    """A trainer that writes down what it is told to do; `tiring` has fewer steps in odd rounds."""

    done: list[tuple[int, str, int]]
    progress: Progress = field(default_factory=Progress)

    @property
    def phases(self) -> tuple[Phase, ...]:
        def phase(name: str, steps: int) -> Phase:
            return Phase(
                name,
                lambda: steps if name != "tiring" or self.progress.round % 2 == 0 else 0,
                lambda step: self.done.append((self.progress.round, name, step)),
            )

        return phase("one", 1), phase("tiring", 3), phase("last", 2)

    def settle_(self) -> Mapping[str, float]:
        return {"steps": len(self.done)}


@dataclass
class StoppingAfter:
    """A watcher that asks to stop after a number of steps."""

    steps: float
    rounds: list[int] = field(default_factory=list)

    def on_step(self, phase: str, done: int, total: int) -> None:
        assert 0 < done <= total, phase
        self.steps -= 1

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        assert metrics
        self.rounds.append(round_)

    def should_stop(self) -> bool:
        return self.steps <= 0


def train_unbroken(rounds: int) -> list[tuple[int, str, int]]:
    trainer = Counting([])
    assert train_(trainer, rounds, StoppingAfter(float("inf")))
    return trainer.done


def test_a_round_is_its_phases_in_order_step_by_step() -> None:
    assert train_unbroken(2) == [
        (0, "one", 0),
        (0, "tiring", 0),
        (0, "tiring", 1),
        (0, "tiring", 2),
        (0, "last", 0),
        (0, "last", 1),
        (1, "one", 0),
        (1, "last", 0),
        (1, "last", 1),
    ]


@given(stops=st.lists(st.integers(1, 9), max_size=6), rounds=st.integers(1, 4))
def test_stopped_and_continued_equals_unbroken(stops: list[int], rounds: int) -> None:
    trainer, settled = Counting([]), []
    for steps in [*stops, float("inf")]:
        watcher = StoppingAfter(steps)
        finished = train_(trainer, rounds, watcher)
        settled += watcher.rounds
        # A new process knows the place alone.
        at = trainer.progress
        trainer = Counting(trainer.done, Progress(round=at.round, phase=at.phase, step=at.step))
    assert finished
    assert trainer.done == train_unbroken(rounds)
    assert settled == list(range(1, rounds + 1))


@given(stop=st.integers(1, 7))
def test_a_phase_leaves_out_the_steps_that_would_do_nothing(stop: int) -> None:
    """Two players of five steps each: the first has ended after its second step, the other after its third."""
    taken, progress, ends = list[int](), Progress(), {1: 5, 7: 10}
    phase = Phase("evaluate", lambda: 10, taken.append, next_step=lambda number: ends.get(number, number + 1))
    trainer = Trainer(None, Counting([], progress), (phase, Phase("last", lambda: 1, taken.append)), lambda: {"x": 0.0})
    assert phase.may_end_early
    train_(trainer, 1, StoppingAfter(stop))
    train_(trainer, 1, StoppingAfter(float("inf")))
    assert taken == [0, 1, 5, 6, 7, 0]


def test_a_finished_run_does_nothing_more() -> None:
    trainer = Counting([], Progress(round=3))
    assert train_(trainer, 3, StoppingAfter(0))
    assert trainer.done == []
