"""One generation of traders: learn, evaluate, validate, evolve; then the loop settles it and saves a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.state.random import stream
from flatwater.trainers.erl.crew import Crew
from flatwater.trainers.erl.learn import updates_due
from flatwater.trainers.erl.numbers import read_numbers_
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl
from flatwater.trainers.erl.tile import held_return, remember_
from flatwater.trainers.loop import Phase, Progress


@dataclass(frozen=True)
class ErlTrainer:
    """The phases of a generation over a run's state; what the loop drives."""

    setup: Setup
    run: Erl
    crew: Crew
    phases: Sequence[Phase]

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """The generation's numbers."""
        return read_numbers_(self.setup, self.run)


def build_trainer(setup: Setup, run: Erl, crew: Crew) -> ErlTrainer:
    """Bind the phases to the state. What is validated has learnt, so the last learning of a run is judged as well."""
    count = len(setup.tiles)
    phases = (
        Phase("learn", lambda: updates_due(setup, run), lambda _: crew.learn_()),
        Phase("evaluate", lambda: count, lambda step: evaluate_(setup, run, crew, step)),
        Phase("validate", lambda: count, lambda step: validate_(setup, run, crew, step)),
        Phase("evolve", lambda: 1, lambda _: next_generation_(setup, run, crew)),
    )
    return ErlTrainer(setup, run, crew, phases)


def evaluate_(setup: Setup, run: Erl, crew: Crew, step: int) -> None:
    """One tile plays the random training slices, which are the same for all; with noise where that is learnt from."""
    span = setup.tiles[step]
    found, mine, scores = crew.train(step), slice(*span), run.scores
    scores.fitness[mine] = found.fitness
    for name, column in found.slices.items():
        scores.training[name][mine] = column
    if found.transitions is not None:
        remember_(setup, run, found.transitions, span)


def validate_(setup: Setup, run: Erl, crew: Crew, step: int) -> None:
    """One tile plays the walk-forward slices, the same for all, without noise; after the last one the best is crowned.

    The champion is chosen here and never on training fitness. It is scored again on this generation's slices, so that
    it is beaten by a better trader and not by easier days.
    """
    spans = setup.tiles
    found, scores = crew.judge(step), run.scores
    columns = ((scores.validation, found.value), (scores.activity, found.activity), (scores.attention, found.attention))
    for kept, new in (*columns, *((scores.judged[name], new) for name, new in found.slices.items())):
        kept[slice(*spans[step])], kept[-1] = new[:-1], new[-1]
    if step + 1 < len(spans):
        return
    best = crown_best_(run.learner, run.lineage, scores.validation, [scores.activity, *scores.judged.values()])
    scores.crowned.fill_(best >= 0)
    scores.holding.copy_(held_return(setup, run.market, run.progress.round))
    scores.champion_value.copy_(scores.validation[-1])
    scores.importance.copy_(scores.attention[best])


def next_generation_(setup: Setup, run: Erl, crew: Crew) -> None:
    """The next generation, by fitness on the training slices."""
    scores, generation = run.scores, run.progress.round
    scores.plateau = evolve_(
        setup.config.evolution,
        run.learner,
        run.lineage,
        run.schedule,
        fitness=scores.fitness,
        best=float(scores.validation[:-1].max()),
        generation=generation,
        rng=stream(setup.config.seed, "evolution", generation, device=setup.device),
    )
    crew.replaced_()
