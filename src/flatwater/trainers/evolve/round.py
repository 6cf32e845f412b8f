"""One generation: play and learn, evaluate, evolve; then the loop settles it and saves a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.trainers.episodes import bring_
from flatwater.trainers.evolve.numbers import read_numbers_
from flatwater.trainers.evolve.play import Player
from flatwater.trainers.evolve.state import Population, Setup
from flatwater.trainers.evolve.trial import Stage
from flatwater.trainers.loop import Phase, Progress
from flatwater.trainers.profile import Profile


@dataclass(frozen=True)
class EvolveTrainer:
    """The phases of a generation over a run's state; what the loop drives."""

    setup: Setup
    run: Population
    player: Player
    stage: Stage
    profile: Profile
    phases: Sequence[Phase]

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """The generation's numbers."""
        return read_numbers_(self.setup, self.run, self.profile)


def build_trainer(setup: Setup, run: Population, player: Player, stage: Stage, profile: Profile) -> EvolveTrainer:
    """Bind the phases to the state. Fitness is that of members that have learned, before others replace them."""
    phases = (
        Phase("train", lambda: setup.config.steps, player.step_),
        Phase("evaluate", lambda: setup.trial.steps, stage.fitness_step_),
        Phase("evolve", lambda: 1, lambda _: select_(setup, run)),
    )
    return EvolveTrainer(setup, run, player, stage, profile, phases)


def select_(setup: Setup, run: Population) -> None:
    """The best member is crowned where it beats the champion on the same episodes; the next generation is made."""
    scores, values = run.scores, run.scores.values
    values.copy_(run.trial.paid.view(len(values), -1).mean(1))
    fitness = values[:-1].clone()
    scores.crowned = crown_best_(run.learner, run.lineage, values) >= 0
    scores.plateau = evolve_(
        setup.config.evolution,
        run.learner,
        run.lineage,
        run.schedule,
        fitness=fitness.to(setup.device),
        best=float(fitness.max()),
        generation=run.progress.round,
        rng=run.generators["evolution"],
    )


def rebuild_(trainer: EvolveTrainer) -> None:
    """Play the episodes again that are under way, in worlds that were just built."""
    run, progress = trainer.run, trainer.progress
    if run.transitions:
        bring_(trainer.player.world, None, run.episodes, trainer.player.seen)
    if progress.step and trainer.phases[progress.phase].name == "evaluate":
        bring_(trainer.stage.world, None, run.trial.episodes, trainer.stage.seen)
