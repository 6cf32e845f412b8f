"""The numbers of a generation, read from the device once, when the round is settled."""

from typing import Any

from flatwater.algorithms.api import read_tally_
from flatwater.trainers.evolve.state import Population, Setup
from flatwater.trainers.profile import Profile


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
