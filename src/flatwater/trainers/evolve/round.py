"""One generation: play and learn, evaluate, evolve; then the loop settles it and saves a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flatwater.algorithms.api import read_tally_
from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.trainers.episodes import bring_
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


def read_numbers_(setup: Setup, run: Population, profile: Profile) -> dict[str, float]:
    """Named numbers of the round. Clears what the run sums up over a round."""
    values = run.scores.values.double()
    fitness, (episodes, paid) = values[:-1], run.ended.tolist()
    run.ended.zero_()
    numbers: dict[str, Any] = {
        "fitness/mean": fitness.mean(),
        "fitness/max": fitness.max(),
        "fitness/min": fitness.min(),
        "fitness/deviation": fitness.std(correction=0),
        "champion/return": values[-1],
        "champion/crowned": run.scores.crowned,
        "champion/born": run.lineage.born[-1],
        "mutation/rate": run.schedule.rate,
        "mutation/deviation": run.schedule.deviation,
        "mutation/plateau": run.scores.plateau,
        "updates": run.learner.tally.updates,
        "transitions": run.transitions,
        "buffer/fill": min(1.0, run.transitions / setup.config.replay.capacity),
        "buffer/missing": max(0, setup.config.replay.warmup - run.transitions),
    }
    if episodes:
        numbers["return/mean"] = paid / episodes
    numbers |= setup.algorithm.numbers(setup.config.learner, run.learner)
    numbers |= read_tally_(run.learner.tally)
    steps = setup.config.steps * setup.spaces.envs
    if profile.steps >= steps:  # of a phase that was taken here whole
        numbers |= {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in profile.wall.items()}
    return {name: float(value) for name, value in numbers.items()}


def lineage_record(run: Population) -> dict[str, Any]:
    """Who is in each slot after this generation; the champion's is the last."""
    lineage = run.lineage
    return {
        "ids": lineage.ids.tolist(),
        "parents": lineage.parents.tolist(),
        "born": lineage.born.tolist(),
        "fitness": run.scores.values.tolist(),
    }
