"""The numbers of a generation, read from the device once, when the round is settled."""

from typing import Any

from flatwater.algorithms.api import read_tally_
from flatwater.replay.rows import held
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl


def read_numbers_(setup: Setup, run: Erl) -> dict[str, float]:
    """Named numbers of the round. Clears the sums that the learner keeps over a round."""
    scores = run.scores
    fitness = scores.fitness.double().cpu()
    numbers: dict[str, Any] = {
        "fitness/mean": fitness.mean(),
        "fitness/max": fitness.max(),
        "fitness/min": fitness.min(),
        "fitness/deviation": fitness.std(correction=0),
        "validation/best": scores.validation[:-1].max(),
        "validation/mean": scores.validation[:-1].mean(),
        "validation/champion": scores.champion_value,
        "validation/return": scores.judged["total_return"][-1].mean(),
        "validation/holding": scores.holding,
        "champion/crowned": scores.crowned,
        "champion/born": run.lineage.born[-1],
        "policy/activity": scores.activity[-1],
        "mutation/rate": run.schedule.rate,
        "mutation/deviation": run.schedule.deviation,
        "mutation/plateau": run.scores.plateau,
        "updates": run.learner.tally.updates,
    }
    if run.replay is not None:
        numbers["buffer/fill"] = held(run.replay) / len(run.replay.row)
        numbers["buffer/missing"] = max(0, setup.config.replay.warmup - held(run.replay))
    numbers |= setup.algorithm.numbers(setup.config.learner, run.learner)
    played = _episodes(run)
    losses = read_tally_(run.learner.tally)
    return {name: float(value) for name, value in (numbers | played | losses).items()}


def _episodes(run: Erl) -> dict[str, float]:
    """The training episodes of all members, in one reading."""
    summary = {name: column.double().cpu() for name, column in run.scores.training.items()}
    count = summary["trades"].sum()
    return {
        "trades/count": float(count),
        "trades/win_rate": float((summary["win_rate"] * summary["trades"]).sum() / count.clamp(min=1)),
        "trades/mean_gain": float((summary["mean_gain"] * summary["trades"]).sum() / count.clamp(min=1)),
        "trades/refused": float(summary["refused"].mean()),
        "account/return": float(summary["total_return"].mean()),
        "account/drawdown": float(summary["drawdown"].mean()),
        "account/exposure": float(summary["exposure"].mean()),
    }


def lineage_record(run: Erl) -> dict[str, Any]:
    """Who is in each slot after this generation; the champion's is the last."""
    lineage, scores = run.lineage, run.scores
    return {
        "ids": lineage.ids.tolist(),
        "parents": lineage.parents.tolist(),
        "born": lineage.born.tolist(),
        "fitness": scores.fitness.tolist(),
        "validation": scores.validation.tolist(),
    }
