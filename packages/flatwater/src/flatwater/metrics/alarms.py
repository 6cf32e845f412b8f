"""Alarms about a round of a run: numbers that are not finite, skipped steps, threads that wait, lost workers.

Each function takes numbers of the round and returns alarms; none raises or prints. An alarm is shown once in a run, in
sentences that say what it means and what to do; after that it is only counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Any

from flatwater.metrics.sinks import Metrics
from flatwater_watch.units import format_bytes

NOT_FINITE = "not finite"
"""Kind of an alarm about a number that is NaN or infinite."""


@dataclass(frozen=True)
class Alarm:
    """One alarm about a round."""

    kind: str
    """Kind of the fault, by which alarms are counted: `not finite`, `skipped steps`, or a recipe's own."""
    where: str
    """Name of the number or of the agent: `losses/critic`, `member 3`, `champion`."""
    message: str
    """Sentences that say what the alarm means and what to do."""
    round: int


def array_alarms(round: int, arrays: Mapping[str, Iterable[float]]) -> list[Alarm]:
    """Return an alarm for each array that holds NaN or infinity.

    Args:
        round: number of the round.
        arrays: one number for each member, by name: `losses/*`, `gradients/*` or `weights/*`. A norm or a mean will
            do, as it is not finite if one of its terms is not.
    """
    alarms = []
    for name, values in arrays.items():
        members = [str(member) for member, value in enumerate(values) if not isfinite(value)]
        if members:
            message = f"{name} is NaN or infinite for member {', '.join(members)}. {not_finite_remedy(name)}"
            alarms.append(Alarm(kind=NOT_FINITE, where=name, message=message, round=round))
    return alarms


def metric_alarms(round: int, metrics: Metrics) -> list[Alarm]:
    """Return an alarm for each named number of the round that is NaN or infinite."""
    alarms = []
    for name, value in metrics.items():
        if not isfinite(value):
            message = f"The number {name} is {value}. {not_finite_remedy(name)}"
            alarms.append(Alarm(kind=NOT_FINITE, where=name, message=message, round=round))
    return alarms


def not_finite_remedy(place: str) -> str:
    """Return the advice about a number that is not finite, by its name, such as `losses/critic`."""
    remedies = {
        "losses": "Lower the learning rates, or bound the rewards; the checkpoint before this round is sound.",
        "gradients": "Lower the learning rates or the gradient clip; a step with these gradients "
        "would ruin the weights.",
        "weights": "These members are lost; resume from the last checkpoint with lower learning rates.",
    }
    group, _, _ = place.partition("/")
    return remedies.get(group, "Look for the first round with such a number in metrics.jsonl.")


def skipped_step_alarms(round: int, skipped_counts: Mapping[str, int], steps: int) -> list[Alarm]:
    """Return an alarm for each learner that skipped optimizer steps, as happens when gradients are not finite.

    Args:
        round: number of the round.
        skipped_counts: number of skipped steps, by learner (`member 3`, `critic`).
        steps: number of steps that each learner should have taken.
    """
    return [
        Alarm(
            kind="skipped steps",
            where=learner,
            message=f"{learner.capitalize()} skipped {count} of {steps} optimizer steps, so it learned less than the "
            "others. A few after a start in bf16 are harmless; lower the learning rates if they go on.",
            round=round,
        )
        for learner, count in skipped_counts.items()
        if count
    ]


def learner_alarms(round: int, name: str, largest: float, metrics: Metrics, steps: int) -> list[Alarm]:
    """Return the alarms of one learner: about its weights, the round's numbers, and skipped optimizer steps.

    Args:
        round: number of the round.
        name: name of the learner (`policy`).
        largest: largest magnitude of a weight; not finite if a weight is not.
        metrics: the round's numbers, with `train/skipped`; each should be finite.
        steps: number of steps that the learner should have taken.
    """
    return [
        *array_alarms(round, {f"weights/{name}": [largest]}),
        *metric_alarms(round, metrics),
        *skipped_step_alarms(round, {name: int(metrics.get("train/skipped", 0))}, steps),
    ]


MINIMUM_ROUND_SECONDS, MINIMUM_CORES = 5.0, 0.8
"""Several threads that compute for this many seconds in a round, on fewer cores than this, give an alarm."""


def waiting_thread_alarms(round: int, threads: int, seconds: float, cpu_seconds: float) -> list[Alarm]:
    """Return an alarm if several threads together got less than `MINIMUM_CORES` cores: each waits for the others.

    Args:
        round: number of the round.
        threads: number of threads that compute in this process.
        seconds: seconds that the round's phases took.
        cpu_seconds: CPU seconds of all threads in that time.
    """
    if threads == 1 or seconds < MINIMUM_ROUND_SECONDS or cpu_seconds >= MINIMUM_CORES * seconds:
        return []
    message = (
        f"{threads} threads had {cpu_seconds / seconds:.2f} cores in the round's {seconds:.0f} s, beside other work: "
        "threads then wait for each other, and can be many times slower than one thread. End other programs, or train "
        "with --threads 1, and with --workers auto if the recipe has workers: these do not wait for each other."
    )
    return [Alarm(kind="threads wait", where="threads", message=message, round=round)]


def lost_worker_alarms(round: int, exchange: Mapping[str, Any]) -> list[Alarm]:
    """Return an alarm if workers were lost, and replaced, in the round.

    Args:
        round: number of the round.
        exchange: figures about the workers in the round; `lost` is their number, `moved` the bytes sent and received.
    """
    if not exchange.get("lost"):
        return []
    message = (
        f"Workers lost: {exchange['lost']}. New workers got the state of the lost ones, and the round moved "
        f"{format_bytes(exchange['moved'])} of numbers. Look at their machines."
    )
    return [Alarm(kind="lost workers", where="workers", message=message, round=round)]


def take_new_alarms_(counts: Counter[tuple[str, str]], alarms: Iterable[Alarm]) -> list[Alarm]:
    """Count the alarms in `counts`, by kind and place; return the alarms that were not counted before."""
    new_alarms = []
    for alarm in alarms:
        if not counts[alarm.kind, alarm.where]:
            new_alarms.append(alarm)
        counts[alarm.kind, alarm.where] += 1
    return new_alarms


def group_by_kind(alarms: Iterable[Alarm]) -> list[list[Alarm]]:
    """Return a list of alarms for each kind, in the alphabetical order of the kinds."""
    sorted_alarms = sorted(alarms, key=_kind_title)  # `groupby` only groups neighbours
    return [[*group] for _, group in groupby(sorted_alarms, key=_kind_title)]


def alarm_lines(alarms: Sequence[Alarm]) -> list[str]:
    """Return one line for each kind of alarm: the message of the first alarm, and the places of the others."""
    lines = []
    for first, *repeats in group_by_kind(alarms):
        places = f" The same holds for {', '.join(alarm.where for alarm in repeats)}." if repeats else ""
        lines.append(f"round {first.round}: {first.message}{places}")
    return lines


def repeat_lines(counts: Counter[tuple[str, str]]) -> list[str]:
    """Return one line for each alarm that came in more than one round, the most frequent first."""
    return [f"{kind}: {place}, in {count} rounds" for (kind, place), count in counts.most_common() if count > 1]


def _kind_title(alarm: Alarm) -> str:
    return alarm.kind
