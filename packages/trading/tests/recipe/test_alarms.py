"""Alarms about traders name who, and leave a few bad members to selection."""

from math import inf, nan

from flatwater_trading.recipe.alarms import (
    CONSTANT_DEVIATION,
    constant_policy_alarms,
    no_trade_alarms,
    panel_alarms,
    population_alarms,
    refused_order_alarms,
    values_by_agent,
)

IDLE = no_trade_alarms(1, {"champion": 0})[0].message.split(":")[0]


def test_columns_of_a_panel_that_are_not_numbers_are_told_by_their_places() -> None:
    """As columns of the panel: they were told as members of the population."""
    (alarm,) = panel_alarms(1, [0.0, nan, 3.0, inf])
    assert (alarm.kind, alarm.where) == ("not finite", "inputs/observations")
    assert alarm.message.startswith(
        "The observations of columns 2, 4 of the panel are NaN or infinite. Look at it with"
    )
    assert panel_alarms(1, [0.0, 3.0]) == panel_alarms(2, []) == []


def test_policies_that_ignore_the_market_or_never_trade_are_found() -> None:
    constant = constant_policy_alarms(1, values_by_agent([0.0, CONSTANT_DEVIATION, 2 * CONSTANT_DEVIATION, 0.0]))
    assert [alarm.where for alarm in constant] == ["member 0", "member 1", "champion"]
    idle = no_trade_alarms(1, {"member 0": 0, "champion": 3})
    assert [alarm.where for alarm in idle] == ["member 0"]


def test_a_few_members_are_left_to_selection_and_a_third_is_one_alarm() -> None:
    def alarm_subjects(trades: list[int], champion: int) -> list[tuple[str, str]]:
        found = population_alarms(no_trade_alarms(1, values_by_agent([*trades, champion])), len(trades))
        return [(alarm.where, alarm.message.split(":")[0]) for alarm in found]

    assert alarm_subjects([0, 3, 2, 5], champion=1) == []
    assert alarm_subjects([0, 3, 2, 5], champion=0) == [("champion", IDLE)]
    assert alarm_subjects([0, 3, 0], champion=1) == [("members", "2 of 3 members, member 0 among them")]
    lost = population_alarms(constant_policy_alarms(1, values_by_agent([nan, 1.0, 1.0, 1.0, 1.0, 1.0])), 5)
    assert [(alarm.kind, alarm.where) for alarm in lost] == [("not finite", "member 0")]


def test_days_lost_to_refused_orders_are_an_alarm() -> None:
    found = refused_order_alarms(3, {"member 0": 0.2, "member 1": 0.94, "champion": 0.0})
    assert [alarm.where for alarm in found] == ["member 1"]
    assert "94% of the orders of member 1 are refused" in found[0].message


def test_a_deviation_that_is_not_a_number_is_an_alarm() -> None:
    """A policy whose actions are NaN must not pass as one that varies."""
    (alarm,) = constant_policy_alarms(1, {"member 0": nan, "member 1": 1.0})
    assert (alarm.kind, alarm.where) == ("not finite", "member 0")
