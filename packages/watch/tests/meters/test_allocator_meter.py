"""The allocator is asked at each reading; where its answers take long, in another process and seldom."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flatwater_watch.meters import allocator, allocator_meter
from flatwater_watch.meters.allocator import AllocatorTotals, allocator_totals, expected_seconds, note_seconds
from flatwater_watch.meters.allocator_meter import SLOW_QUERY_SECONDS, SLOW_QUERY_SHARE, AllocatorMeter

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an answer took is kept for the process."""
    monkeypatch.setattr(allocator, "_last_query_seconds", allocator._last_query_seconds)


@pytest.fixture
def places_asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the allocator was asked: here, or in another process, whose answer comes with the second look at it."""
    asked: list[str] = []

    def here() -> AllocatorTotals:
        asked.append("here")
        return AllocatorTotals(in_use=len(asked), free=0)

    class Apart:
        def __init__(self, *work: Callable[[], Any]) -> None:
            asked.append("forked" if work else "apart")
            self.looks, self.number = 0, len(asked)

        def is_done(self) -> bool:
            self.looks += 1
            return self.looks > 1

        def result(self) -> list[float]:
            return [self.number, 0, 5 * SLOW_QUERY_SECONDS]

    monkeypatch.setattr(allocator_meter, "allocator_totals", here)
    monkeypatch.setattr(allocator_meter, "ProcessCopy", Apart)
    monkeypatch.setattr(allocator_meter, "DetachedFork", Apart)
    monkeypatch.setattr(allocator_meter, "footprint", lambda: SimpleNamespace(anonymous=GIB))
    return asked


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(allocator_meter, "monotonic", lambda: now[0])
    return now


def in_use(asking: AllocatorMeter) -> int | None:
    found = asking.newest_totals_()
    return None if found is None else found.in_use


def test_a_quick_answer_is_asked_for_each_time(places_asked: list[str]) -> None:
    note_seconds(SLOW_QUERY_SECONDS / 2)
    asking = AllocatorMeter()
    assert [in_use(asking) for _ in range(3)] == [1, 2, 3]
    assert places_asked == ["here"] * 3


def test_a_slow_answer_is_given_apart_and_stands_for_a_while(places_asked: list[str], now: list[float]) -> None:
    note_seconds(5 * SLOW_QUERY_SECONDS)
    asking = AllocatorMeter()
    assert [asking.awaits_first_answer_() for _ in range(3)] == [True, True, False], "the first answer is not there yet"
    assert [in_use(asking) for _ in range(3)] == [1, 1, 1]
    now[0] += 5 * SLOW_QUERY_SECONDS / SLOW_QUERY_SHARE + 1
    assert [in_use(asking) for _ in range(3)] == [1, 1, 2], "the last one stands until the next is there"
    assert places_asked == ["apart", "apart"]


def test_between_two_readings_an_answer_is_heard_and_none_is_asked_for(
    places_asked: list[str], now: list[float]
) -> None:
    note_seconds(5 * SLOW_QUERY_SECONDS)
    asking = AllocatorMeter()
    assert asking.awaits_first_answer_()
    for _ in range(3):
        asking.take_answer_()
        now[0] += 5 * SLOW_QUERY_SECONDS / SLOW_QUERY_SHARE + 1
    assert places_asked == ["apart"]
    assert asking._query_process is None
    assert in_use(asking) == 1, "asked for anew, the last one stands"


def refuse(*_work: Callable[[], Any]) -> Any:
    raise OSError("no fork beside CUDA")


def test_where_no_copy_can_be_made_a_fork_is_asked(places_asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_meter, "ProcessCopy", refuse)
    note_seconds(5 * SLOW_QUERY_SECONDS)
    asking = AllocatorMeter()
    assert [asking.awaits_first_answer_() for _ in range(3)] == [True, True, False]
    assert places_asked == ["forked"]


@pytest.mark.parametrize("cause", ["larger", "larger for a fork", "neither"])
def test_where_that_would_take_longer_or_fails_it_is_asked_here(
    places_asked: list[str], now: list[float], monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    if cause == "larger":
        monkeypatch.setattr(allocator_meter, "footprint", lambda: SimpleNamespace(anonymous=100 * GIB))
    else:
        monkeypatch.setattr(allocator_meter, "ProcessCopy", refuse)
    if cause == "larger for a fork":
        monkeypatch.setattr(allocator_meter, "footprint", lambda: SimpleNamespace(anonymous=2 * GIB))
    if cause == "neither":
        monkeypatch.setattr(allocator_meter, "DetachedFork", refuse)
    note_seconds(5 * SLOW_QUERY_SECONDS)
    asking = AllocatorMeter()
    assert not asking.awaits_first_answer_()
    assert [in_use(asking) for _ in range(2)] == [1, 1]
    now[0] += 5 * SLOW_QUERY_SECONDS / SLOW_QUERY_SHARE + 1
    assert in_use(asking) == 2
    assert places_asked == ["here", "here"]


def test_one_that_was_killed_is_asked_for_no_second_time(
    places_asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_answer(_self: object) -> Any:
        raise RuntimeError("a fork of this process ended without an answer")

    monkeypatch.setattr(allocator_meter.ProcessCopy, "result", fail_answer)
    note_seconds(5 * SLOW_QUERY_SECONDS)
    asking = AllocatorMeter()
    assert asking.awaits_first_answer_()
    assert [in_use(asking) for _ in range(3)] == [None, None, 2]
    assert places_asked == ["apart", "here"]


@pytest.mark.parametrize("way", ["a copy", "a fork"])
def test_a_real_one_says_what_this_process_would(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if allocator_totals() is None:
        pytest.skip("this C library does not tell")
    monkeypatch.setattr(allocator_meter, "CLONE_SECONDS_PER_BYTE", 0.0)
    monkeypatch.setattr(allocator_meter, "FORK_SECONDS_PER_BYTE", 0.0)
    if way == "a fork":
        monkeypatch.setattr(allocator_meter, "ProcessCopy", refuse)
    note_seconds(2 * SLOW_QUERY_SECONDS)
    asking = AllocatorMeter()
    until = time.monotonic() + 240
    while asking.awaits_first_answer_():
        assert time.monotonic() < until
    found, here = asking.newest_totals_(), allocator_totals()
    asking.close()
    assert found is not None
    assert here is not None
    assert found.in_use == pytest.approx(here.in_use, rel=0.1, abs=4 << 20)
    assert expected_seconds() < SLOW_QUERY_SECONDS, "as long as it took there"


def test_before_the_first_answer_a_large_heap_may_be_full_of_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    if allocator_totals() is None:
        pytest.skip("this C library does not tell")
    monkeypatch.setattr(allocator, "_last_query_seconds", None)
    first = allocator._heap_start()
    monkeypatch.setattr(allocator, "_load_libc", lambda: SimpleNamespace(sbrk=lambda _: first + GIB))
    assert expected_seconds() == pytest.approx(0.25)
