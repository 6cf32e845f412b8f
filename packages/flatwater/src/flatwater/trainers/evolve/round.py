"""One generation of a population: train, evaluate, evolve, and read its metrics."""

from typing import Any

from flatwater.algorithms.api import read_tally_
from flatwater.algorithms.schedules import lr_factor
from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.trainers.evolve.population_evaluator import MEMBERS, build_evaluator
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.evolve.state import Population
from flatwater.trainers.evolve.training_phase import PARTS, TrainingPhase
from flatwater.trainers.loop import Phase
from flatwater.trainers.profile import Profile
from flatwater.trainers.world_trainer import Worlds, WorldTrainer

EvolveTrainer = WorldTrainer[EvolveSetup, Population]


def build_trainer(setup: EvolveSetup, run: Population, worlds: Worlds) -> EvolveTrainer:
    """Return the trainer of a run, with the phases train, evaluate and, with several members, evolve.

    Args:
        setup: constants of the run.
        run: the population, its state tree.
        worlds: the members' training world, and the held-out world in which fitness is measured.
    """
    profile = Profile(PARTS)
    collector = TrainingPhase(setup, run, worlds.training, profile)
    evaluator = build_evaluator(setup, run, worlds.held_out)
    phases = [
        Phase("train", lambda: setup.config.steps, collector.step_),
        Phase(
            "evaluate",
            steps=lambda: evaluator.steps,
            step_=lambda number: evaluator.play_(MEMBERS, number),
            next_step=evaluator.next_step,
        ),
    ]
    if setup.config.population.evolves:
        phases.append(Phase("evolve", steps=lambda: 1, step_=lambda _number: select_(setup, run)))
    return WorldTrainer(
        setup,
        run,
        phases,
        settle_=lambda: read_numbers_(setup, run, profile),
        collector=collector,
        evaluator=evaluator,
        profile=profile,
    )


def set_scores_(run: Population) -> None:
    """Set the score of each member, and of the champion, to the mean return of its evaluation episodes."""
    returns = run.trial.paid.view(len(run.scores.values), -1)  # [policies, episodes of each]
    run.scores.values.copy_(returns.mean(1))


def select_(setup: EvolveSetup, run: Population) -> None:
    """Make the best member the champion if it beats the present champion, and make the next generation.

    The champion is a copy of the best member so far, in a slot after those of the members. All have played the same
    episodes.
    """
    scores, values = run.scores, run.scores.values
    set_scores_(run)
    fitness = values[:-1].clone()  # without the champion, whose value is the last
    # Before `evolve_`, which may overwrite the best member. The slot is -1 if the champion stays.
    scores.crowned = crown_best_(run.learner, run.lineage, values) >= 0
    scores.plateau = evolve_(
        setup.config.evolution,
        run.learner,
        run.lineage,
        run.schedule,
        fitness=fitness.to(setup.device),
        plateau_value=float(fitness.max()),
        generation=run.progress.round,
        rng=run.generators["evolution"],
    )


def read_numbers_(setup: EvolveSetup, run: Population, profile: Profile) -> dict[str, float]:
    """Return the metrics of the generation that was completed last, by name, and clear its sums."""
    if not setup.config.population.evolves:  # a single agent; with several members `select_` has set the scores
        set_scores_(run)
    episodes, total_return = run.ended.tolist()
    run.ended.zero_()
    numbers: dict[str, Any] = read_population(run) if setup.config.population.evolves else {}
    numbers |= {
        setup.config.measure: run.scores.values[-1],  # of the champion, or of the single agent
        "updates": run.learner.tally.updates,
        "transitions": run.transitions,
        "buffer/fill": min(1.0, run.transitions / setup.config.replay.capacity),
        "buffer/missing": max(0, setup.config.replay.warmup - run.transitions),
    }
    if episodes:
        numbers["return/mean"] = total_return / episodes
    numbers |= setup.algorithm.numbers(setup.config.learner, run.learner)
    factor = lr_factor(setup.config.learner)  # None if learning rates are constant
    if factor is not None:
        numbers["train/lr_factor"] = factor(run.learner.tally.updates)
    numbers |= read_tally_(run.learner.tally)
    steps = setup.config.steps * setup.spaces.envs
    if profile.steps >= steps:  # not of a phase whose first steps were taken before this process resumed the run
        numbers |= profile.microseconds(steps)
    return {name: float(value) for name, value in numbers.items()}


def read_population(run: Population) -> dict[str, Any]:
    """Return the metrics of a population of several members: fitness, champion and mutation."""
    fitness = run.scores.values[:-1].double()  # of the members; the champion's value is the last
    return {
        "fitness/mean": fitness.mean(),
        "fitness/max": fitness.max(),
        "fitness/min": fitness.min(),
        "fitness/deviation": fitness.std(correction=0),
        "champion/crowned": run.scores.crowned,
        "champion/born": run.lineage.born[-1],  # the generation in which it was made
        "mutation/rate": run.schedule.rate,
        "mutation/deviation": run.schedule.deviation,
        "mutation/plateau": run.scores.plateau,
    }


def lineage_record(run: Population) -> dict[str, Any]:
    """Return the member in each slot after this generation, for the run's records: numbers, parents, birth, fitness.

    Each is a list with an entry for each slot; the last slot is the champion's, the copy of the best member so far.
    """
    lineage = run.lineage
    return {
        "ids": lineage.ids.tolist(),
        "parents": lineage.parents.tolist(),
        "born": lineage.born.tolist(),
        "fitness": run.scores.values.tolist(),
    }
