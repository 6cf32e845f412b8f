"""The alarms of a round: what metrics/alarms.py looks for, read from the trainer's state."""

from collections.abc import Mapping

from flatwater.metrics.alarms import (
    Alarm,
    by_member,
    constant_policies,
    never_trading,
    not_finite,
    not_finite_metrics,
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
    trades = {who: int(count) for who, count in by_member(judged["trades"][:-1].sum(1).tolist()).items()}
    *refused, of_champion = judged["refused"].mean(1).tolist()
    *members, champion = run.scores.activity.tolist()
    return [
        *not_finite(round_, inputs | weights),
        *not_finite_metrics(round_, dict(metrics)),
        *skipped_steps(round_, skipped, config.learner.own.updates * len(learner.trained)),
        *constant_policies(round_, by_member(members, champion)),
        *never_trading(round_, trades),
        *refused_orders(round_, by_member(refused, of_champion)),
    ]
