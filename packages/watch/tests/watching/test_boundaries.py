"""All boundaries are counted; few of those that come often are looked at; a tick ends that."""

import sys
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice, pairwise

import pytest

from flatwater_watch.agent import boundaries, boundary_sampling
from flatwater_watch.agent.boundaries import MAXIMUM_TICKS, TICK, TICK_SECONDS, Boundaries, ticks_until_time
from flatwater_watch.agent.boundary_sampling import (
    MAXIMUM_UNREPORTED,
    REVIEW_SECONDS,
    ROUNDS_PER_SAMPLE,
    SAMPLE_INTERVAL_SECONDS,
)
from flatwater_watch.agent.call_counters import CallCounter, make_call_counter, set_listener
from flatwater_watch.agent.guard import Guard
from flatwater_watch.agent.main_thread_timer import start_ticking

KINDS = ("step", "episode", "update")
LOOKS = (1 + ROUNDS_PER_SAMPLE) / SAMPLE_INTERVAL_SECONDS
"""Looks in a second at one kind that comes often: when a grant is used up, and at the sample."""


@pytest.fixture(autouse=True)
def _nobody_is_told_after_a_test() -> Iterator[None]:
    yield
    set_listener(None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its last item is the time."""
    now = [100.0]
    monkeypatch.setattr(boundaries, "monotonic", lambda: now[-1])
    return now


class Program:
    """Passes boundaries and lets time pass; knows when it was looked at."""

    def __init__(self, clock: list[float], *, with_counters: bool = True) -> None:
        self.looks: list[tuple[str, float]] = []
        self.found = Boundaries(self._looked)
        self._clock = clock
        self._counters: dict[str, CallCounter] = (
            {kind: make_call_counter(kind) for kind in KINDS} if with_counters else {}
        )
        if with_counters:
            set_listener(self.found.step)
            self.found.attach_counters_(self._counters)

    def _looked(self, kind: str, now: float) -> bool:
        self.looks.append((kind, now))
        return False

    def run(self, *rounds: tuple[str, float], boundaries: int) -> None:
        """Pass that many: after so many seconds each, a boundary of the kind."""
        for kind, seconds in islice(cycle(rounds), boundaries):
            self._clock.append(self._clock[-1] + seconds)
            if kind in self._counters:
                self._counters[kind].count_call()
            else:
                self.found.step(kind)

    def since(self, time: float) -> list[str]:
        """The kinds that were looked at."""
        return [kind for kind, now in self.looks if now > time]


@pytest.fixture
def program(clock: list[float]) -> Program:
    return Program(clock)


def test_boundaries_that_come_often_are_counted_and_seldom_looked_at(program: Program) -> None:
    program.run(("step", 10e-6), boundaries=100_000)
    assert program.found.counts == {"step": 100_000}
    assert len(program.since(100 + 2 * REVIEW_SECONDS)) == pytest.approx(0.8 * LOOKS, rel=0.3)
    assert program.found.boundary_count("step", ticks=False) == 100_000


@pytest.mark.long
def test_the_grant_is_bounded(program: Program) -> None:
    program.run(("step", 1e-7), boundaries=3_000_000)
    assert len(program.since(100 + 2 * REVIEW_SECONDS)) >= 990_000 / (MAXIMUM_UNREPORTED + 1)


def test_each_kind_that_comes_often_is_granted_some(program: Program, clock: list[float]) -> None:
    """Twenty steps in an episode: neither is looked at each time, and their seconds are told apart by samples."""
    episode = [("step", 10e-6)] * 20 + [("episode", 30e-6)]
    program.run(*episode, boundaries=21 * 20_000)
    assert program.found.counts == {"step": 400_000, "episode": 20_000}
    assert len(program.since(100 + 2 * REVIEW_SECONDS)) <= 1.5 * (clock[-1] - 100) * LOOKS
    seconds = program.found.seconds
    assert sum(seconds.values()) == pytest.approx(clock[-1] - 100, abs=REVIEW_SECONDS + SAMPLE_INTERVAL_SECONDS), (
        "told, but for the newest"
    )
    assert seconds["step", "episode"] == pytest.approx(20_000 * 30e-6, rel=0.3)
    assert seconds["episode", "step"] == pytest.approx(20_000 * 10e-6, rel=0.3)


def test_a_kind_that_comes_seldom_is_always_looked_at(program: Program) -> None:
    """An update after a thousand steps: its seconds are its own, and the steps' theirs."""
    program.run(*[("step", 10e-6)] * 1000, ("update", 0.005), boundaries=1001 * 200)
    assert program.found.counts == {"step": 200_000, "update": 200}
    assert [kind for kind, _ in program.looks].count("update") == 200
    seconds = program.found.seconds
    assert seconds["step", "update"] == pytest.approx(200 * 0.005, rel=0.02)
    assert seconds["update", "step"] == pytest.approx(200 * 10e-6, rel=0.02)
    assert seconds["step", "step"] == pytest.approx(200 * 999 * 10e-6, rel=0.1)


def test_slow_boundaries_are_all_looked_at(program: Program) -> None:
    program.run(("update", 0.003), boundaries=300)
    assert len(program.looks) == 300


def test_a_tick_ends_the_hurry(program: Program, clock: list[float]) -> None:
    """Quick steps, as of a warm-up, and slow ones: they are looked at from the first tick on."""
    program.run(("step", 10e-6), boundaries=50_000)
    warm = clock[-1]
    program.run(("step", 1.0), boundaries=1)
    program.run((TICK, 1.0), boundaries=1)
    program.run(("step", 1.0), boundaries=3)
    assert program.since(warm)[-4:] == [TICK, "step", "step", "step"]
    assert program.found.counts == {"step": 50_004, TICK: 1}


def test_what_stopped_coming_leaves_no_sample_open(program: Program, clock: list[float]) -> None:
    program.run(("step", 10e-6), boundaries=50_000)
    program.run(("episode", 10e-6), boundaries=100_000)
    assert len(program.since(clock[-1] - 0.5)) <= 1.5 * 0.5 * LOOKS
    assert program.found.counts == {"step": 50_000, "episode": 100_000}


def test_ticks_are_all_looked_at_however_close_they_come(program: Program) -> None:
    program.run((TICK, 1e-6), boundaries=300_000)
    assert len(program.looks) == 300_000


def test_without_counters_every_boundary_is_looked_at(clock: list[float]) -> None:
    program = Program(clock, with_counters=False)
    program.run(("step", 1e-6), boundaries=200_000)
    assert len(program.looks) == 200_000


def test_what_comes_in_while_one_is_looked_at_is_counted_only() -> None:
    """As of another thread, or of a tick between two instructions of this one."""
    looks: list[str] = []

    def look(kind: str, _: float) -> bool:
        looks.append(kind)
        found.step("episode")
        return False

    found = Boundaries(look)
    found.step("step")
    assert looks == ["step"]
    assert found.counts == {"step": 1, "episode": 1}


def test_ticks_that_were_not_needed_are_counted(program: Program) -> None:
    program.found.tick(1)
    program.found.tick(7)
    program.run(("step", 1.0), boundaries=2)
    found = program.found
    assert found.boundary_count(None, ticks=True) == 8
    assert found.boundary_count(None, ticks=False) == found.boundary_count("step", ticks=False) == 2


def test_boundaries_that_stop_for_longer_than_they_came_are_regular_no_more(clock: list[float]) -> None:
    """A program that trained for a second and then played for ten was read at its last step, and never again."""
    found = Boundaries(lambda _kind, _now: False)

    def step(times: int) -> None:
        for _ in range(times):
            found.step("update")
            clock.append(clock[-1] + 1.0)

    assert not found.are_regular(None)
    step(10)
    clock.append(clock[-1] + 8.0)  # as long as they came, the last second included
    found.step(TICK)
    assert found.are_regular(None)
    clock.append(clock[-1] + 0.5)
    assert not found.are_regular(None)
    assert found.are_regular("update"), "the user chose it"
    found.found_steps = {"train.KEPT": 3}
    assert found.are_regular(None), "growth was found at them"
    found.found_steps = {}
    step(1)
    clock.append(clock[-1] + 15.0)
    assert found.are_regular(None), "shorter than all before it"
    clock.append(clock[-1] + 5.0)
    assert not found.are_regular(None)


def test_a_tick_sees_the_boundaries_that_were_only_counted_before_it(clock: list[float]) -> None:
    """Else all readings would be discarded, as if the program had come to its last step."""
    regular = list[bool]()

    def look(_kind: str, _now: float) -> bool:
        regular.append(found.are_regular(None))
        return False

    found = Boundaries(look)
    for _ in range(10):
        found.step("update")
    clock.append(clock[-1] + 2.5)
    found._counts["update"] += 1  # as a call counter does, without a call of `step`
    found.tick(1)
    assert regular[-1]
    clock.append(clock[-1] + 3.0)
    found.tick(1)
    assert not regular[-1], "none has come since"


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [(-3.0, 1), (0.0, 1), (0.04, 1), (0.06, 2), (0.5, 10), (60.0, MAXIMUM_TICKS), (float("inf"), MAXIMUM_TICKS)],
)
def test_a_tick_is_needed_when_a_reading_is_due(clock: list[float], seconds: float, ticks: int) -> None:
    assert ticks_until_time(clock[-1] + seconds) == ticks


def test_no_boundary_is_lost_or_counted_twice_where_threads_pass_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary_sampling, "REVIEW_SECONDS", 0.001)
    found, each = Boundaries(lambda _kind, _now: False), 100_000
    counters = {kind: make_call_counter(kind) for kind in KINDS}
    set_listener(found.step)
    found.attach_counters_(counters)

    def run(kind: str) -> None:
        for _ in range(each):
            counters[kind].count_call()

    threads = [threading.Thread(target=run, args=[kind]) for kind in ("step", "step", "episode", "update")]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            found.tick(1)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert {kind: found.counts[kind] for kind in KINDS} == {"step": 2 * each, "episode": each, "update": each}


def test_a_look_in_another_thread_is_waited_for_and_one_of_its_own_is_not() -> None:
    begun, ended, told = threading.Event(), threading.Event(), list[str]()

    def look(kind: str, _now: float) -> bool:
        begun.set()
        if kind == "own":
            with found.exclude_other_threads():
                told.append("own")
        else:
            told.append("other" if ended.wait(20) else "late")
        return False

    found = Boundaries(look)
    found.step("own")
    begun.clear()
    other = threading.Thread(target=found.step, args=("other",))
    other.start()
    begun.wait(20)
    threading.Timer(0.1, ended.set).start()
    with found.exclude_other_threads(), found.exclude_other_threads():
        told.append("alone")
    other.join()
    assert told == ["own", "other", "alone"]


def test_ticks_go_by_the_clock_where_the_main_thread_sleeps() -> None:
    """A call waits until the main thread wakes up: a growth of 1 MiB at each waking looked like eight times less."""
    guard, ticks = Guard(), list[tuple[float, int]]()

    def count(passed_ticks: int) -> int:
        ticks.append((time.monotonic(), passed_ticks))
        return 1 if len(ticks) % 2 else 20

    start_ticking(guard, count)
    until = time.monotonic() + 60
    while len(ticks) < 5 and time.monotonic() < until:
        time.sleep(0.3)
    guard.has_ended = True
    for (before, _), (now, passed_ticks) in pairwise(ticks[:5]):
        assert passed_ticks == pytest.approx((now - before) / TICK_SECONDS, abs=2)
