"""Alarms of a run that goes on: numbers that are not finite, steps skipped, policies that do nothing.

Each function looks at numbers that were read once for the round and returns findings; none raises or prints. An alarm
is told once, in a sentence that says what it means and what to do, and counted after that.
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
"""Standard deviation of a policy's actions over the days of its episodes at or below which it ignores the market."""


@dataclass(frozen=True)
class Alarm:
    """One finding about a round."""

    kind: AlarmKind
    where: str
    """Place or agent that it was found in: `losses/critic`, `member 3`, `champion`."""
    message: str
    """Full sentences about the alarm's meaning and remedy."""
    round: int


def array_alarms(round: int, arrays: Mapping[str, Iterable[float]]) -> list[Alarm]:
    """Return an alarm for each array that holds NaN or infinity.

    Args:
        round: the round that the numbers are from.
        arrays: one number a member (a norm or a mean is enough: it is not finite where one of its terms is not),
            under `inputs/*`, `losses/*`, `gradients/*` or `weights/*`.
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
    """Return the advice about a number that is not finite in an array under `inputs/*`, `losses/*` and so on."""
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


def skipped_steps(round: int, skipped: Mapping[str, int], steps_taken: int) -> list[Alarm]:
    """Return an alarm for each optimizer that skipped steps in the round, as it does when gradients are not finite.

    Args:
        round: the round.
        skipped: steps not taken, by learner (`member 3`, `critic`).
        steps_taken: steps that each should have taken.
    """
    return [
        Alarm(
            "skipped steps",
            learner,
            f"{learner.capitalize()} skipped {count} of {steps_taken} optimizer steps, so it learned less than the "
            "others. A few after a start in bf16 are harmless; lower the learning rates if they go on.",
            round,
        )
        for learner, count in skipped.items()
        if count
    ]


def learner_alarms(round: int, name: str, largest: float, metrics: Metrics, steps: int) -> list[Alarm]:
    """Return the alarms of one learner: about its weights, the round's numbers, and the steps that it did not take.

    Args:
        round: the round.
        name: name of the learner (`policy`).
        largest: largest magnitude of a weight; not finite where one weight is not.
        metrics: the round's numbers, `train/skipped` among them; none may be NaN.
        steps: steps that the learner should have taken.
    """
    return [
        *array_alarms(round, {f"weights/{name}": [largest]}),
        *metric_alarms(round, metrics),
        *skipped_steps(round, {name: int(metrics.get("train/skipped", 0))}, steps),
    ]


def constant_policies(round: int, deviation: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy whose actions do not change from day to day, or are not numbers.

    Args:
        round: the round.
        deviation: standard deviation of the actions over the days of the round's episodes, without noise, by who
            acts (`member 3`, `champion`).
    """
    # `not >`, so that NaN is found as well.
    return [
        _constant_alarm(round, agent, value) for agent, value in deviation.items() if not value > CONSTANT_DEVIATION
    ]


def _constant_alarm(round: int, policy: str, deviation: float) -> Alarm:
    """Return the alarm of a policy whose actions deviate by less than `CONSTANT_DEVIATION`, or by NaN."""
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
        round: the round.
        trades: positions opened, by agent (`member 3`, `champion`).
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
"""Share of the trading days on which an order may be refused without an alarm."""


def refused_orders(round: int, refused: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy whose orders are refused on more than a fifth of the days.

    Args:
        round: the round.
        refused: share of the trading days on which an order bought nothing, by agent.
    """
    return [
        Alarm(
            "refused orders",
            who,
            f"{share:.0%} of the orders of {who} are refused: an ordered instrument has no price on the day, or the "
            "target is not a number. Nothing is learned on such days. Look for instruments without data.",
            round,
        )
        for who, share in refused.items()
        if share > REFUSED_SHARE
    ]


LONG, BUSY = 5.0, 0.8
"""Seconds of a round, and CPU seconds in each of them, that several threads must take for an alarm, or miss for one."""


def waiting_threads(round: int, threads: int, seconds: float, cpu_seconds: float) -> list[Alarm]:
    """Return an alarm where several threads do not even get one core: each then waits for the others at every step.

    Args:
        round: the round.
        threads: number of threads that compute in this process.
        seconds: seconds that its phases took.
        cpu_seconds: CPU seconds of all threads in that time.
    """
    if threads == 1 or seconds < LONG or cpu_seconds >= BUSY * seconds:
        return []
    message = (
        f"{threads} threads had {cpu_seconds / seconds:.2f} cores in the round's {seconds:.0f} s, beside other work: "
        "threads then wait for each other, and can be many times slower than one thread. End other programs, or train "
        "with --threads 1, and traders also with --workers auto: workers do not wait for each other."
    )
    return [Alarm("threads wait", "threads", message, round)]


def lost_workers(round: int, exchange: Mapping[str, Any]) -> list[Alarm]:
    """Return an alarm where workers were lost.

    Args:
        round: the round.
        exchange: the ledger's record of the exchange. Nothing is `lost` in the round in which workers were started.
    """
    if not exchange.get("lost"):
        return []
    message = (
        f"Workers lost: {exchange['lost']}. New workers got the state of the lost ones, and the round moved "
        f"{format_bytes(exchange['moved'])} of numbers. Look at their machines."
    )
    return [Alarm("wire", "workers", message, round)]


MANY_MEMBERS_SHARE = 1 / 3
"""Share of the members that must be affected for an alarm: selection mends a few."""


def population_alarms(alarms: Sequence[Alarm], members: int) -> list[Alarm]:
    """Return the champion's alarms, and one of each kind for the members if `MANY_MEMBERS_SHARE` of them have it.

    Actions that are not numbers keep an alarm for each member.

    Args:
        alarms: about policies, by who acts.
        members: number of members.
    """
    by_member = [alarm for alarm in alarms if alarm.where.startswith(MEMBER) and alarm.kind != NOT_FINITE]
    kept_alarms = [alarm for alarm in alarms if alarm not in by_member]
    for kind in dict.fromkeys(alarm.kind for alarm in by_member):
        same_kind = [alarm for alarm in by_member if alarm.kind == kind]
        if same_kind and len(same_kind) >= MANY_MEMBERS_SHARE * members:
            message = f"{len(same_kind)} of {members} members, {same_kind[0].where} among them: {same_kind[0].message}"
            kept_alarms.append(replace(same_kind[0], where="members", message=message))
    return kept_alarms


MEMBER, NOT_FINITE = "member ", "not finite"


def name_by_member(values: Sequence[float], champion: float | None = None) -> dict[str, float]:
    """Return one number a member as `member 0`, `member 1`, ...; the champion's under `champion` where there is one."""
    numbers = {f"{MEMBER}{member}": value for member, value in enumerate(values)}
    return numbers if champion is None else numbers | {"champion": champion}


def take_new_alarms_(counts: Counter[tuple[str, str]], alarms: Iterable[Alarm]) -> list[Alarm]:
    """Count the alarms in `counts`, by kind and place, and return those that were not there before."""
    new_alarms = []
    for alarm in alarms:
        if not counts[alarm.kind, alarm.where]:
            new_alarms.append(alarm)
        counts[alarm.kind, alarm.where] += 1
    return new_alarms


def group_by_kind(alarms: Iterable[Alarm]) -> list[list[Alarm]]:
    """Return the alarms of each kind together."""
    # Sorted, as `groupby` joins neighbours alone.
    return [[*group] for _, group in groupby(sorted(alarms, key=_kind_title), key=_kind_title)]


def alarm_lines(alarms: Sequence[Alarm]) -> list[str]:
    """Return one line for each kind of alarm: the first of its kind in full, then where else the same was found."""
    lines = []
    for first, *repeats in group_by_kind(alarms):
        places = f" The same holds for {', '.join(alarm.where for alarm in repeats)}." if repeats else ""
        lines.append(f"round {first.round}: {first.message}{places}")
    return lines


def repeat_lines(counts: Counter[tuple[str, str]]) -> list[str]:
    """Return one line for each alarm that came more than once, the most frequent first, for the end of a run."""
    return [f"{kind}: {place}, in {count} rounds" for (kind, place), count in counts.most_common() if count > 1]


def _kind_title(alarm: Alarm) -> str:
    return alarm.kind
