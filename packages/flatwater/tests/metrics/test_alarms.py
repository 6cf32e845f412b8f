"""Alarms name who, say what to do, and are told once."""

from collections import Counter
from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from flatwater.metrics.alarms import (
    Alarm,
    alarm_lines,
    array_alarms,
    lost_worker_alarms,
    metric_alarms,
    repeat_lines,
    skipped_step_alarms,
    take_new_alarms_,
    waiting_thread_alarms,
)


@given(st.lists(st.floats(), max_size=8))
def test_exactly_the_members_that_are_not_finite_are_named(values: list[float]) -> None:
    found = array_alarms(4, {"weights/actor": values})
    bad = [str(n) for n, value in enumerate(values) if value != value or abs(value) == inf]  # noqa: PLR0124
    assert len(found) == bool(bad)
    for alarm in found:
        assert (alarm.kind, alarm.where, alarm.round) == ("not finite", "weights/actor", 4)
        assert alarm.message.startswith(f"weights/actor is NaN or infinite for member {', '.join(bad)}. ")
        assert "resume from the last checkpoint" in alarm.message


def test_each_place_has_its_own_remedy() -> None:
    arrays = {f"{place}/x": [nan] for place in ("losses", "gradients", "weights", "elsewhere")}
    remedies = {alarm.message.split(". ", 1)[1] for alarm in array_alarms(1, arrays)}
    assert len(remedies) == 4


def test_named_numbers_that_are_not_finite_are_found() -> None:
    found = metric_alarms(2, {"losses/critic": nan, "fitness/mean": 1.0, "fitness/max": -inf})
    assert [alarm.where for alarm in found] == ["losses/critic", "fitness/max"]
    assert "fitness/max is -inf" in found[1].message


def test_skipped_step_alarms_are_counted_against_those_taken() -> None:
    (alarm,) = skipped_step_alarms(1, {"member 0": 0, "member 3": 5}, 32)
    assert alarm.message.startswith("Member 3 skipped 5 of 32 optimizer steps")


@given(st.lists(st.lists(st.sampled_from(["member 0", "member 1", "champion"]), max_size=3, unique=True), max_size=9))
def test_an_alarm_is_told_once_and_counted_each_time(rounds: list[list[str]]) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    told = [
        alarm.where
        for n, places in enumerate(rounds)
        for alarm in take_new_alarms_(seen, skipped_step_alarms(n, dict.fromkeys(places, 1), steps=2))
    ]
    everywhere = Counter(place for places in rounds for place in places)
    assert sorted(told) == sorted(everywhere)
    assert {where: count for (_, where), count in seen.items()} == everywhere
    assert len(repeat_lines(seen)) == sum(count > 1 for count in everywhere.values())


def test_alarms_of_one_kind_are_told_in_one_line() -> None:
    alarms = [Alarm("never trades", "member 0", "It is idle.", 3), Alarm("not finite", "losses", "It is NaN.", 3)]
    alarms.append(Alarm("never trades", "member 7", "It is idle too.", 3))
    assert alarm_lines(alarms) == ["round 3: It is idle. The same holds for member 7.", "round 3: It is NaN."]


def test_threads_that_do_not_get_one_core_together_are_told() -> None:
    (alarm,) = waiting_thread_alarms(3, 2, 46.0, 9.7)
    assert (alarm.kind, alarm.round) == ("threads wait", 3)
    assert "2 threads had 0.21 cores in the round's 46 s" in alarm.message
    assert "--workers auto" in alarm.message
    for fine in ((1, 46.0, 9.7), (2, 46.0, 46.0), (2, 4.0, 0.1)):
        assert waiting_thread_alarms(3, *fine) == []


def test_lost_workers_are_told() -> None:
    (alarm,) = lost_worker_alarms(4, {"moved": 3 << 20, "lost": 2})
    assert (alarm.kind, alarm.round) == ("lost workers", 4)
    assert "Workers lost: 2" in alarm.message
    for fine in ({}, {"moved": 3 << 20, "lost": 0}, {"moved": 3 << 20}):
        assert lost_worker_alarms(4, fine) == []
