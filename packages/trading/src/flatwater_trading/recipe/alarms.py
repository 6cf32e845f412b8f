"""Alarms about traders: panels with NaN, policies that ignore the market or never trade, refused orders."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan

from flatwater.metrics.alarms import NOT_FINITE, Alarm, not_finite_remedy
from flatwater_watch.phrases import noun_form

CONSTANT_DEVIATION = 1e-6
"""A policy whose actions have at most this standard deviation over the days of its episodes ignores the market."""
REFUSED_SHARE = 0.2
"""Largest share of the trading days on which orders may be refused without an alarm."""
MANY_MEMBERS_SHARE = 1 / 3
"""Share of the members that must have an alarm for it to be shown, as selection replaces a few bad members."""
MEMBER_PREFIX = "member "


def panel_alarms(round: int, column_sums: Sequence[float]) -> list[Alarm]:
    """Return one alarm that names the columns with NaN or infinite observations; empty without such a column.

    Args:
        round: number of the round.
        column_sums: sum of the observations in each column of the panel.
    """
    # A sum is finite only if all its terms are. The message counts columns from 1.
    columns = [str(column) for column, value in enumerate(column_sums, start=1) if not isfinite(value)]
    if not columns:
        return []
    message = (
        f"The observations of {noun_form(len(columns), 'column')} {', '.join(columns)} of the panel are NaN or "
        "infinite. Look at it with `flatwater panel show`: a price or a feature in it is not a number."
    )
    return [Alarm(NOT_FINITE, "inputs/observations", message, round)]


def constant_policy_alarms(round: int, deviation_by_agent: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy whose actions do not change from day to day, or are NaN.

    Args:
        round: number of the round.
        deviation_by_agent: standard deviation of the actions, without noise, over the days of the round's episodes, by
            agent (`member 3`, `champion`).
    """
    # `not value > ...` instead of `value <= ...`: it is also true for NaN.
    return [
        _constant_alarm(round, agent, value)
        for agent, value in deviation_by_agent.items()
        if not value > CONSTANT_DEVIATION
    ]


def _constant_alarm(round: int, policy: str, deviation: float) -> Alarm:
    """Return the alarm of a policy whose actions have this `deviation`: nearly 0, or NaN if actions are not finite."""
    if isnan(deviation):
        return Alarm(
            NOT_FINITE, policy, f"The actions of {policy} are NaN or infinite. {not_finite_remedy('weights')}", round
        )
    message = (
        f"The policy of {policy} gives the same action every day (deviation {deviation:.1e}): it does not react to the "
        "market. Look at its inputs for columns that are all zero, and at the weights for values out of proportion."
    )
    return Alarm("constant policy", policy, message, round)


def no_trade_alarms(round: int, trades_by_agent: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy that opened no trade in all its episodes of the round.

    Args:
        round: number of the round.
        trades_by_agent: number of opened positions, by agent (`member 3`, `champion`).
    """
    return [
        Alarm(
            "never trades",
            agent,
            f"The policy of {agent} opened no position in any episode of the round. "
            "Early in a run, learning and selection mend this; later, no trade may be worth its costs.",
            round,
        )
        for agent, count in trades_by_agent.items()
        if count == 0
    ]


def refused_order_alarms(round: int, refused_share_by_agent: Mapping[str, float]) -> list[Alarm]:
    """Return an alarm for each policy whose orders are refused on more than `REFUSED_SHARE` of the days.

    Args:
        round: number of the round.
        refused_share_by_agent: share of the trading days on which an order bought nothing, by agent.
    """
    return [
        Alarm(
            "refused orders",
            agent,
            f"{share:.0%} of the orders of {agent} are refused: an ordered instrument has no price on the day, or the "
            "target is not a number. Nothing is learned on such days. Look for instruments without data.",
            round,
        )
        for agent, share in refused_share_by_agent.items()
        if share > REFUSED_SHARE
    ]


def population_alarms(alarms: Sequence[Alarm], members: int) -> list[Alarm]:
    """Merge the alarms of single members: one alarm for each kind that at least a third of the members have.

    A kind of alarm that fewer members have is dropped. Alarms of the champion, and alarms about numbers that are not
    finite, are returned unchanged.

    Args:
        alarms: alarms of single policies, whose `where` is `member 3` or `champion`.
        members: number of members in the population.
    """
    member_alarms = [alarm for alarm in alarms if alarm.where.startswith(MEMBER_PREFIX) and alarm.kind != NOT_FINITE]
    kept_alarms = [alarm for alarm in alarms if alarm not in member_alarms]
    for kind in dict.fromkeys(alarm.kind for alarm in member_alarms):
        kind_alarms = [alarm for alarm in member_alarms if alarm.kind == kind]
        if len(kind_alarms) >= MANY_MEMBERS_SHARE * members:
            # One message stands for all of them: that of the first member, with the number of members before it.
            message = (
                f"{len(kind_alarms)} of {members} members, {kind_alarms[0].where} among them: {kind_alarms[0].message}"
            )
            kept_alarms.append(replace(kind_alarms[0], where="members", message=message))
    return kept_alarms


def values_by_agent(values: Sequence[float]) -> dict[str, float]:
    """Return numbers by agent: `member 0`, `member 1`, ..., and `champion` for the last."""
    *numbers, champion = values
    return {f"{MEMBER_PREFIX}{member}": value for member, value in enumerate(numbers)} | {"champion": champion}
