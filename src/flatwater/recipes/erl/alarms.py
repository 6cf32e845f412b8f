"""The alarms of a round: what metrics/alarms.py looks for, read from the trainer's state."""

from collections.abc import Mapping

from flatwater.metrics.alarms import (
    Alarm,
    by_member,
    constant_policies,
    never_trading,
    not_finite,
    not_finite_metrics,
    of_many,
    refused_orders,
    skipped_steps,
)
from flatwater.trainers.erl.round import ErlTrainer


def find_alarms(trainer: ErlTrainer, round_: int, metrics: Mapping[str, float]) -> list[Alarm]:
    """Everything wrong with the round, as findings; reads the device once for each kind."""
    run, config = trainer.run, trainer.setup.config
    learner = run.learner
    weights = {f"weights/{name}": rows.abs().amax(1).tolist() for name, (rows, _) in learner.trained.items()}
    inputs = {"inputs/observations": run.market.observations.sum((1, 2)).tolist()} if round_ == 1 else {}
    skipped = {f"member {n}": int(count) for n, count in enumerate(learner.tally.skipped_total.tolist()) if count}
    judged = run.scores.judged
    *trades, by_champion = judged["trades"].sum(1).tolist()
    *refused, of_champion = judged["refused"].mean(1).tolist()
    *members, champion = run.scores.activity.tolist()
    return [
        *not_finite(round_, inputs | weights),
        *not_finite_metrics(round_, dict(metrics)),
        *skipped_steps(round_, skipped, config.learner.own.updates * len(learner.trained)),
        *of_many(constant_policies(round_, by_member(members, champion)), config.population.size),
        *of_many(never_trading(round_, by_member(trades, by_champion)), config.population.size),
        *of_many(refused_orders(round_, by_member(refused, of_champion)), config.population.size),
    ]
