"""The evolution phase: the next generation is written over the losers, in place."""

from flatwater.trainers.breeding import breed_
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl


def evolve_(setup: Setup, run: Erl) -> None:
    """By fitness on training days; what tells a plateau is the best validation value."""
    run.scores.plateau = breed_(
        run.learner,
        run.lineage,
        run.schedule,
        fitness=run.scores.fitness,
        best=float(run.scores.validation[:-1].max()),
        config=setup.config.evolution,
        generation=run.progress.round + 1,
        rng=run.generators["evolution"],
    )
