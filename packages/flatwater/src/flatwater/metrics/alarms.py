"""Alarms about a round of a run, such as numbers that are not finite, skipped steps, or policies that do nothing.

Each function takes numbers of the round and returns alarms; none raises or prints. An alarm is shown once in a run, in
sentences that say what it means and what to do; after that it is only counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite, isnan
from typing import Any, Literal

from flatwater.metrics.sinks import Metrics
from flatwater_watch.units import format_bytes

AlarmKind = Literal[
    "not finite", "skipped steps", "constant policy", "never trades", "refused orders", "threads wait", "wire"
]

CONSTANT_DEVIATION = 1e-6
"""A policy whose actions have at most this standard deviation over the days of its episodes ignores the market."""


@dataclass(frozen=True)
class Alarm:
    """One alarm about a round."""

    kind: AlarmKind
    where: str
    """Name of the number or of the agent: `losses/critic`, `member 3`, `champion`."""
    message: str
    """Sentences that say what the alarm means and what to do."""
    round: int


def array_alarms(round: int, arrays: Mapping[str, Iterable[float]]) -> list[Alarm]:
    """Return an alarm for each array that holds NaN or infinity.

    Args:
        round: number of the round.
        arrays: one number for each member, by name: `inputs/*`, `losses/*`, `gradients/*` or `weights/*`. A norm or a
            mean will do, as it is not finite if one of its terms is not.
    """
    alarms = []
    for name, values in arrays.items():
        members = [str(member) for member, value in enumerate(values) if not isfinite(value)]
        if members:
            message = f"{name} is NaN or infinite for member {', '.join(members)}. {_remedy(name)}"
            alarms.append(Alarm("not finite", name, message, round))
    return alarms


def metric_alarms(round: int, metrics: Metrics) -> list[Alarm]:
    """Return an alarm for each named number of the round that is NaN or infinite."""
    names = [name for name, value in metrics.items() if not isfinite(value)]
    return [
        Alarm("not finite", name, f"The number {name} is {metrics[name]}. {_remedy(name)}", round) for name in names
    ]


def _remedy(place: str) -> str:
    """Return the advice about a number that is not finite, by its name, such as `losses/critic`."""
    remedies = {
        "inputs": "Look at the panel with `flatwater panel show`: a price or a feature in it is not a number.",
        "losses": "Lower the learning rates, or bound the rewards; the checkpoint before this round is sound.",
        "gradients": "Lower the learning rates or the gradient clip; a step with these gradients "
        "would ruin the weights.",
        "weights": "These members are lost; resume from the last checkpoint with lower learning rates.",
    }
    return remedies.get(
        place.split("/", maxsplit=1)[0], "Look for the first round with such a number in metrics.jsonl."
    )


def skipped_steps(round: int, skipped: Mapping[str, int], steps: int) -> list[Alarm]:
    """Return an alarm for each learner that skipped optimizer steps, as happens when gradients are not finite.

    Args:
        round: number of the round.
        skipped: number of skipped steps, by learner (`member 3`, `critic`).
        steps: number of steps that each learner should have taken.
    """
    return [
        Alarm(
            "skipped steps",
            learner,
            f"{learner.capitalize()} skipped {count} of {steps} optimizer steps, so it learned less than the "
            "others. A few after a start in bf16 are harmless; lower the learning rates if they go on.",
            round,
        )
        for learner, count in skipped.items()
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
        *skipped_steps(round, {name: int(metrics.get("train/skipped", 0))}, steps),
    ]


def constant_policies(round: int, deviation: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy whose actions do not change from day to day, or are NaN.

    Args:
        round: number of the round.
        deviation: standard deviation of the actions, without noise, over the days of the round's episodes, by agent
            (`member 3`, `champion`).
    """
    # `not >`, so that NaN gives an alarm as well.
    return [
        _constant_alarm(round, agent, value) for agent, value in deviation.items() if not value > CONSTANT_DEVIATION
    ]


def _constant_alarm(round: int, policy: str, deviation: float) -> Alarm:
    """Return the alarm of a policy whose actions have a standard deviation of nearly 0, or of NaN."""
    if isnan(deviation):
        return Alarm("not finite", policy, f"The actions of {policy} are NaN or infinite. {_remedy('weights')}", round)
    message = (
        f"The policy of {policy} gives the same action every day (deviation {deviation:.1e}): it does not react to the "
        "market. Look at its inputs for columns that are all zero, and at the weights for values out of proportion."
    )
    return Alarm("constant policy", policy, message, round)


def never_trading(round: int, trades: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy that opened no trade in all its episodes of the round.

    Args:
        round: number of the round.
        trades: number of opened positions, by agent (`member 3`, `champion`).
    """
    return [
        Alarm(
            "never trades",
            agent,
            f"The policy of {agent} opened no position in any episode of the round. "
            "Early in a run, learning and selection mend this; later, no trade may be worth its costs.",
            round,
        )
        for agent, count in trades.items()
        if count == 0
    ]


REFUSED_SHARE = 0.2
"""Largest share of the trading days on which orders may be refused without an alarm."""


def refused_orders(round: int, refused: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy whose orders are refused on more than `REFUSED_SHARE` of the days.

    Args:
        round: number of the round.
        refused: share of the trading days on which an order bought nothing, by agent.
    """
    return [
        Alarm(
            "refused orders",
            agent,
            f"{share:.0%} of the orders of {agent} are refused: an ordered instrument has no price on the day, or the "
            "target is not a number. Nothing is learned on such days. Look for instruments without data.",
            round,
        )
        for agent, share in refused.items()
        if share > REFUSED_SHARE
    ]


MINIMUM_ROUND_SECONDS, MINIMUM_CORES = 5.0, 0.8
"""Several threads that compute for this many seconds in a round, on fewer cores than this, give an alarm."""


def waiting_threads(round: int, threads: int, seconds: float, cpu_seconds: float) -> list[Alarm]:
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
        "with --threads 1, and traders also with --workers auto: workers do not wait for each other."
    )
    return [Alarm("threads wait", "threads", message, round)]


def lost_workers(round: int, exchange: Mapping[str, Any]) -> list[Alarm]:
    """Return an alarm if workers were lost, and replaced, in the round.

    Args:
        round: number of the round.
        exchange: the ledger's record of the workers; see `Run.exchange`.
    """
    if not exchange.get("lost"):
        return []
    message = (
        f"Workers lost: {exchange['lost']}. New workers got the state of the lost ones, and the round moved "
        f"{format_bytes(exchange['moved'])} of numbers. Look at their machines."
    )
    return [Alarm("wire", "workers", message, round)]


MANY_MEMBERS_SHARE = 1 / 3
"""Share of the members that must have an alarm for it to be shown, as selection replaces a few bad members."""


def population_alarms(alarms: Sequence[Alarm], members: int) -> list[Alarm]:
    """Return the alarms of a population: the members' alarms of one kind become one alarm, or none if few have it.

    Alarms of the champion, and alarms about numbers that are not finite, stay as they are.

    Args:
        alarms: alarms of single policies.
        members: number of members.
    """
    member_alarms = [alarm for alarm in alarms if alarm.where.startswith(MEMBER_PREFIX) and alarm.kind != NOT_FINITE]
    kept_alarms = [alarm for alarm in alarms if alarm not in member_alarms]
    for kind in dict.fromkeys(alarm.kind for alarm in member_alarms):
        kind_alarms = [alarm for alarm in member_alarms if alarm.kind == kind]
        if kind_alarms and len(kind_alarms) >= MANY_MEMBERS_SHARE * members:
            message = (
                f"{len(kind_alarms)} of {members} members, {kind_alarms[0].where} among them: {kind_alarms[0].message}"
            )
            kept_alarms.append(replace(kind_alarms[0], where="members", message=message))
    return kept_alarms


MEMBER_PREFIX, NOT_FINITE = "member ", "not finite"


def name_by_member(values: Sequence[float], champion: float | None = None) -> dict[str, float]:
    """Return the members' numbers by name: `member 0`, `member 1`, ..., and `champion` if the champion has one."""
    numbers = {f"{MEMBER_PREFIX}{member}": value for member, value in enumerate(values)}
    return numbers if champion is None else numbers | {"champion": champion}


def take_new_alarms_(counts: Counter[tuple[str, str]], alarms: Iterable[Alarm]) -> list[Alarm]:
    """Count the alarms in `counts`, by kind and place. Returns the alarms that had no count before."""
    new_alarms = []
    for alarm in alarms:
        if not counts[alarm.kind, alarm.where]:
            new_alarms.append(alarm)
        counts[alarm.kind, alarm.where] += 1
    return new_alarms


def group_by_kind(alarms: Iterable[Alarm]) -> list[list[Alarm]]:
    """Return a list of alarms for each kind."""
    # Sorted, as `groupby` only groups neighbours.
    return [[*group] for _, group in groupby(sorted(alarms, key=_kind_title), key=_kind_title)]


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
