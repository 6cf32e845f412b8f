"""One generation: play and learn, evaluate, evolve; then the loop settles it and saves a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flatwater.algorithms.api import read_tally_
from flatwater.algorithms.schedules import lr_factor
from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.trainers.episodes import give_back_, is_begun, replay_episodes_, save_world_state_
from flatwater.trainers.evolve.play import PopulationCollector
from flatwater.trainers.evolve.state import EvolveSetup, Population
from flatwater.trainers.evolve.trial import MemberEvaluator
from flatwater.trainers.loop import Phase, Progress
from flatwater.trainers.profile import Profile


@dataclass(frozen=True)
class EvolveTrainer:
    """The phases of a generation over a run's state, as the loop drives them."""

    setup: EvolveSetup
    run: Population
    player: PopulationCollector
    stage: MemberEvaluator
    profile: Profile
    phases: Sequence[Phase]

    @property
    def progress(self) -> Progress:
        """Place of the run in its generations."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """Return the generation's numbers."""
        return read_numbers_(self.setup, self.run, self.profile)


def build_trainer(
    setup: EvolveSetup, run: Population, player: PopulationCollector, stage: MemberEvaluator, profile: Profile
) -> EvolveTrainer:
    """Bind the phases to the state: train, evaluate, and evolve where there are several members.

    Fitness is measured after members have learned, before others replace them.

    Args:
        setup: constants of the run.
        run: the population, its state tree.
        player: the members' training world.
        stage: the world of fitness and of evaluation.
        profile: takes the time of each part of a step.
    """
    phases = [
        Phase("train", lambda: setup.config.steps, player.step_),
        Phase("evaluate", lambda: setup.trial.steps, stage.fitness_step_),
    ]
    if setup.config.population.evolves:
        phases.append(Phase("evolve", lambda: 1, lambda _: select_(setup, run)))
    return EvolveTrainer(setup, run, player, stage, profile, phases)


def measure_(run: Population) -> None:
    """Set the scores from the returns of the episodes without noise."""
    run.scores.values.copy_(run.trial.paid.view(len(run.scores.values), -1).mean(1))


def select_(setup: EvolveSetup, run: Population) -> None:
    """Crown the best member where it beats the champion on the same episodes, and make the next generation."""
    scores, values = run.scores, run.scores.values
    measure_(run)
    fitness = values[:-1].clone()
    # Before the next generation is made, which may write over the best member.
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


def keep_worlds_(trainer: EvolveTrainer) -> str:
    """Write both worlds' states over episodes, before a checkpoint; return why that cannot be, or nothing."""
    run = trainer.run
    return save_world_state_(trainer.player.world, run.episodes) or save_world_state_(
        trainer.stage.world, run.trial.episodes
    )


def rebuild_(trainer: EvolveTrainer, *, exact: bool = True) -> str:
    """Play the running episodes again, in worlds that were just built.

    Args:
        trainer: a restored trainer.
        exact: whether they can be; otherwise, and where it turns out that they cannot, new ones begin.

    Returns:
        Why the run does not go on bit for bit, as the end of a sentence; empty where it does.
    """
    run, progress, player, stage = trainer.run, trainer.progress, trainer.player, trainer.stage
    why = ""
    if run.transitions:
        why = replay_episodes_(player.world, None, run.episodes, player.seen) if exact else ""
        if why or not exact:
            give_back_(player.world, run.episodes)
            player.restart_episodes_()
    is_between = progress.step == 0 or trainer.phases[progress.phase].name != "evaluate"
    if is_between and not is_begun(run.trial.episodes):
        return why
    # One failure is enough: the run is not the same any more, so new episodes do.
    exact = exact and not why
    why = replay_episodes_(stage.world, None, run.trial.episodes, stage.seen) if exact else why
    if why or not exact:
        give_back_(stage.world, run.trial.episodes)
        progress.step = progress.step if is_between else 0  # the members' episodes begin again
    return why


def read_numbers_(setup: EvolveSetup, run: Population, profile: Profile) -> dict[str, float]:
    """Return named numbers of the round, and clear the sums of the round."""
    if not setup.config.population.evolves:
        measure_(run)
    episodes, total_return = run.ended.tolist()
    run.ended.zero_()
    numbers: dict[str, Any] = (read_population(run) if setup.config.population.evolves else {}) | {
        setup.config.measure: run.scores.values[-1],
        "updates": run.learner.tally.updates,
        "transitions": run.transitions,
        "buffer/fill": min(1.0, run.transitions / setup.config.replay.capacity),
        "buffer/missing": max(0, setup.config.replay.warmup - run.transitions),
    }
    if episodes:
        numbers["return/mean"] = total_return / episodes
    numbers |= setup.algorithm.numbers(setup.config.learner, run.learner)
    if (factor := lr_factor(setup.config.learner)) is not None:
        numbers["train/lr_factor"] = factor(run.learner.tally.updates)
    numbers |= read_tally_(run.learner.tally)
    steps = setup.config.steps * setup.spaces.envs
    if profile.steps >= steps:  # of a phase that was taken here whole
        numbers |= {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in profile.wall.items()}
    return {name: float(value) for name, value in numbers.items()}


def read_population(run: Population) -> dict[str, Any]:
    """Return the numbers of several members, of the champion and of the mutations."""
    fitness = run.scores.values[:-1].double()
    return {
        "fitness/mean": fitness.mean(),
        "fitness/max": fitness.max(),
        "fitness/min": fitness.min(),
        "fitness/deviation": fitness.std(correction=0),
        "champion/crowned": run.scores.crowned,
        "champion/born": run.lineage.born[-1],
        "mutation/rate": run.schedule.rate,
        "mutation/deviation": run.schedule.deviation,
        "mutation/plateau": run.scores.plateau,
    }


def lineage_record(run: Population) -> dict[str, Any]:
    """Return the member in each slot after this generation; the champion's slot is the last."""
    lineage = run.lineage
    return {
        "ids": lineage.ids.tolist(),
        "parents": lineage.parents.tolist(),
        "born": lineage.born.tolist(),
        "fitness": run.scores.values.tolist(),
    }
