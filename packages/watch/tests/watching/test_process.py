"""One watched process: boundaries cost nothing, readings follow the pace, arrays that fill are told from leaks."""

import subprocess
import sys
import time
from math import isclose
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched import READING

from flatwater_watch.agent.boundaries import MAXIMUM_TICKS, TICK, TICK_SECONDS, Boundaries
from flatwater_watch.agent.budget import CREDIT_SECONDS, FIRST_SECONDS, TIME_SHARE, Budget
from flatwater_watch.agent.growth import Sample
from flatwater_watch.agent.process import ProcessWatch
from flatwater_watch.agent.reading_schedule import (
    FIRST_GAP_SECONDS,
    LEAST_SLICE_SECONDS,
    MAXIMUM_GAP_SECONDS,
    PLAIN_SHARE,
    REGULAR_COUNT,
    SLICE_SECONDS,
    UNPAID_GAP_SECONDS,
    ReadingSchedule,
    census_slice_seconds,
    schedule_next_,
)
from flatwater_watch.agent.slow_segments import find_slow_segment
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.reset_tracker import ResetTracker
from flatwater_watch.heap.census import CensusTaker
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.allocations import Frames, allocation_frames
from flatwater_watch.meters.mappings import Footprint, footprint
from flatwater_watch.meters.system_calls import process_seconds
from flatwater_watch.series.slope import MAXIMUM_POINTS

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """What a watch needs is loaded: the first one of a process takes time and memory for that."""
    first = ProcessWatch()
    for _ in range(REGULAR_COUNT):
        first.step("episode")
    first.close(conclude=False)


@pytest.fixture
def free_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings that cost nothing: those of a large process, such as that of the tests, are not paid for at once."""
    monkeypatch.setattr(f"{ProcessWatch.__module__}.thread_seconds", lambda: 0.0)


@pytest.mark.usefixtures("free_readings")
def test_slow_boundaries_are_all_read() -> None:
    watch = ProcessWatch()
    for _ in range(6):
        watch.step("update")
        time.sleep(0.3)  # longer than the gaps of an investigation, which the heap of the tests may set off
    summary = watch.summary()
    watch.close(conclude=False)
    assert (summary["readings"], summary["steps"], summary["unit"]) == (6, 6, "update")


@pytest.mark.usefixtures("free_readings")
def test_ticks_rest_while_a_program_has_boundaries_of_its_own_as_often() -> None:
    watch = ProcessWatch()
    needed = [watch.tick(1)]
    watch.step("update")
    watch.step("update")
    watch.step("update")
    needed.append(watch.tick(1))
    for boundaries in (1, 2, 4, 8, 16, 32, 64, 40, 39, 0):
        for _ in range(boundaries):
            watch.step("update")
        needed.append(watch.tick(needed[-1]))
    watch.close(conclude=False)
    assert needed[0] <= 1 + FIRST_GAP_SECONDS / TICK_SECONDS
    assert needed[1:] == [2, 1, 2, 4, 8, 16, 32, MAXIMUM_TICKS, MAXIMUM_TICKS, 1, 1]


@pytest.mark.usefixtures("free_readings")
def test_a_program_that_comes_to_a_loop_of_its_own_is_read_there_at_once() -> None:
    watch = ProcessWatch()
    watch.tick(1)  # read in time, so that the next reading is not due yet
    for _ in range(REGULAR_COUNT):
        watch.step("update")
    for _ in range(6):
        time.sleep(0.06)
        watch.step("update")
    series = watch.summary()["series"]
    watch.close(conclude=False)
    assert series["steps"][0] == REGULAR_COUNT


def test_a_program_whose_steps_have_ended_is_read_at_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clicks were scored for eleven seconds after sixteen updates, and memory was read twice."""
    monkeypatch.setattr(f"{Boundaries.__module__}.STOPPED_SECONDS", 0.2)
    watch = ProcessWatch()
    for _ in range(REGULAR_COUNT):
        watch.step("update")
    ends, readings = time.monotonic() + 60, 0
    while readings < 3 and time.monotonic() < ends:
        time.sleep(0.06)
        watch.tick(1)
        summary = watch.summary()
        readings = summary["readings"] if summary["unit"] == "second" else 0
    watch.close(conclude=False)
    assert readings == 3


@pytest.mark.usefixtures("free_readings")
def test_a_boundary_that_comes_once_is_no_clock() -> None:
    """A program that goes through its data once passes one epoch, and was read once."""
    watch = ProcessWatch()
    watch.step("epoch")
    for _ in range(6):
        time.sleep(0.3)
        watch.tick(1)
    summary = watch.summary()
    watch.close(conclude=False)
    assert (summary["readings"], summary["unit"]) == (6, "second")


class Looks:
    """Levels with something to look at: counts the looks."""

    has_containers = has_recent_container = True
    periodically_emptied_paths = frozenset[str]()
    times = 0

    def negligible_paths(self, _resident: int) -> set[str]:
        return set()

    def track_owners(self, _owners: object, _resident: int) -> None:
        """Nothing is followed."""

    def check_lengths(self, _roots: Roots) -> None:
        self.times += 1
        began = time.thread_time()
        while time.thread_time() < began + 0.01:
            pass


def test_what_was_found_is_looked_at_between_two_boundaries() -> None:
    """At a boundary the list of the last episode is always full."""
    watch = ProcessWatch()
    watch._budget.is_credit_open = True  # the heap of the tests may cost more than a minute of rest earns
    for _ in range(REGULAR_COUNT):
        watch.step("episode")
    looks = Looks()
    watch._monitor.reset_tracker = cast("ResetTracker", looks)
    for _ in range(200):
        time.sleep(0.06)
        watch.step("episode")
        assert not looks.times
        time.sleep(0.06)
        watch.tick(1)
        if looks.times:
            break
    watch.close(conclude=False)
    assert looks.times == 1


class Slices:
    """A census that makes an object in each slice, and looks for its line."""

    is_under_way = True

    def __init__(self) -> None:
        self.lines: list[Frames] = []

    def run_slice_(self, _seconds: float) -> None:
        made = Looks()
        self.lines.append(allocation_frames(made))
        burn = time.thread_time() + 0.1
        while time.thread_time() < burn:
            pass

    def discard_(self) -> None:
        """Nothing is under way."""


def test_a_slice_of_a_census_between_two_boundaries_is_not_traced_and_paid_once() -> None:
    watch, slices = ProcessWatch(), Slices()
    for _ in range(REGULAR_COUNT):
        watch.step("episode")
    watch._monitor.censuses = cast("CensusTaker", slices)
    tracer = watch._monitor._tracer = Tracer()
    tracer.start(tensors=False)
    watch._census_kind, watch._budget.cpu_at_last_payment = TICK, process_seconds()
    watch._budget.is_credit_open = True  # growth is proven while a trace runs
    before = watch._budget.spent_seconds
    watch._handle_due_boundary_(TICK, time.monotonic())
    watch._budget.pay_for_trace_()
    paid = watch._budget.spent_seconds - before
    traced = bool(allocation_frames(Looks()))
    watch.close(conclude=False)
    assert (slices.lines, traced) == ([()], True)
    assert 0.1 <= paid < 0.14


def test_looks_that_take_long_come_seldom() -> None:
    watch, looks, times = ProcessWatch(), Looks(), list[int]()
    watch._monitor.reset_tracker = cast("ResetTracker", looks)
    for now in (100.0, 101.0, 200.0):
        watch._check_resets_(now)
        times.append(looks.times)
    watch.close(conclude=False)
    assert times == [1, 1, 2]


@pytest.mark.usefixtures("free_readings")
def test_a_unit_that_is_given_is_the_only_clock() -> None:
    watch = ProcessWatch(unit="round")
    for _ in range(4):
        watch.step("update")
        watch.step("round")
        time.sleep(0.06)
    summary = watch.summary()
    watch.close(conclude=False)
    assert (summary["readings"], summary["steps"], summary["unit"]) == (4, 4, "round")


def test_nothing_is_read_after_the_end() -> None:
    watch = ProcessWatch()
    watch.step("update")
    watch.close()
    watch.close()
    time.sleep(0.06)
    watch.step("update")
    assert watch.summary()["readings"] == 1


@given(costs=st.lists(st.floats(1e-4, 2.0), min_size=1, max_size=200), counting=st.booleans())
def test_an_investigation_is_paid_back(costs: list[float], *, counting: bool) -> None:
    """After each reading the next one waits until what was spent is earned, or until it has paid for itself."""
    pace, now = ReadingSchedule(0.0, Budget(0.0)), 0.0
    for cost in costs:
        now += cost
        schedule_next_(pace, now, cost, {"update": 1}, is_investigating=counting, is_taking_census=counting)
        assert pace.due - now >= min(FIRST_GAP_SECONDS, MAXIMUM_GAP_SECONDS) - 1e-9
        is_paid = pace.budget.left_seconds(pace.due) >= -SLICE_SECONDS - 1e-6
        assert is_paid or pace.due - now >= min(MAXIMUM_GAP_SECONDS, max(UNPAID_GAP_SECONDS, cost / TIME_SHARE)) - 1e-6
        now = pace.due


@given(cost=st.floats(1e-4, 0.1), busy=st.floats(1e-4, 1.0))
def test_readings_of_a_flat_program_follow_its_own_cpu_time(cost: float, busy: float) -> None:
    """At the beginning as the clock says; then within their share of what the program takes, or as seldom as may be."""
    pace, by_clock = ReadingSchedule(0.0, Budget(0.0)), ReadingSchedule(0.0, Budget(0.0))
    for number in range(3 * MAXIMUM_POINTS):
        now = pace.due
        schedule_next_(pace, now, cost, {"tick": 1}, is_investigating=False, quiet_cpu=busy * now)
        schedule_next_(by_clock, now, cost, {"tick": 1}, is_investigating=False)
        least = by_clock.due - now
        allowed = (
            least if number < MAXIMUM_POINTS - 1 else max(least, min(MAXIMUM_GAP_SECONDS, cost / PLAIN_SHARE / busy))
        )
        assert isclose(pace.due - now, allowed, rel_tol=1e-6)
    pace.pace_by_clock_()
    schedule_next_(pace, now, cost, {"tick": 1}, is_investigating=False, quiet_cpu=busy * now)
    assert isclose(pace.due, now + pace.gap)


def test_memory_that_rises_in_a_program_that_rests_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next reading is hours away; what is material between two glances brings it here."""
    said = [footprint().resident]  # not asked again: the machine may take pages of files back at any time
    monkeypatch.setattr(f"{ProcessWatch.__module__}.footprint", lambda: Footprint(said[-1], 0))
    watch, readings = ProcessWatch(), list[int]()
    watch.tick(1)
    watch._schedule.due = watch._schedule.latest = watch._schedule.due + 9000
    for more in (-1, +1):
        said.append(int(watch._rss_alarm_bytes) + more)
        watch._rss_check_due = 0.0
        watch.tick(1)
        readings.append(watch.summary()["readings"])
    watch.close(conclude=False)
    assert readings == [1, 2]


def test_what_answers_for_the_allocator_is_let_go_before_the_next_reading() -> None:
    """Which is hours away."""

    class Apart:
        looks = 0

        def is_done(self) -> bool:
            self.looks += 1
            return False

        def stop(self) -> None:
            pass

    watch, apart = ProcessWatch(), Apart()
    watch.tick(1)
    watch._schedule.due = watch._schedule.latest = watch._schedule.due + 9000
    watch._allocator._query_process = apart  # type: ignore[assignment]
    watch._rss_check_due = 0.0
    watch.tick(1)
    watch.close(conclude=False)
    assert apart.looks == 1


def test_a_slice_is_short_unless_boundaries_are_rare() -> None:
    pace = ReadingSchedule(0.0, Budget(0.0))
    assert census_slice_seconds(pace, 100.0, 10_000) == SLICE_SECONDS
    assert census_slice_seconds(pace, 100.0, 10) == 2.0


def seconds_taken(pace: ReadingSchedule, now: float) -> float:
    """CPU seconds of all slices of a census at a reading each twentieth of a second until now."""
    for reading in range(1, round(20 * now) + 1):
        pace.budget.spent_seconds += census_slice_seconds(pace, now=0.05 * reading, boundaries=reading)
    return pace.budget.spent_seconds


def test_a_census_takes_what_is_earned_and_lent_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Budget.__module__}.process_seconds", lambda: 0.0)  # the program rests
    proven, suspected = ReadingSchedule(0.0, Budget(0.0)), ReadingSchedule(0.0, Budget(0.0))
    proven.budget.is_credit_open = True
    for pace, credit in ((proven, CREDIT_SECONDS), (suspected, 0.0)):
        earned = FIRST_SECONDS + credit + TIME_SHARE * 20.0
        assert 0.0 <= earned - seconds_taken(pace, 20.0) < LEAST_SLICE_SECONDS
        assert census_slice_seconds(pace, now=20.0, boundaries=400) == 0.0


def test_a_short_program_pays_for_a_part_of_the_first_census(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large heap: a tenth of a second of CPU was made in a second; ten seconds of work are lent the whole."""
    monkeypatch.setattr(f"{Budget.__module__}.process_seconds", lambda: 0.0)
    short, long = ReadingSchedule(0.0, Budget(0.0)), ReadingSchedule(0.0, Budget(0.0))
    monkeypatch.setattr(f"{Budget.__module__}.process_seconds", lambda: 0.1)
    assert seconds_taken(short, 1.25) < 0.08
    monkeypatch.setattr(f"{Budget.__module__}.process_seconds", lambda: 100.0)
    assert seconds_taken(long, 10.0) > CREDIT_SECONDS


@given(price=st.floats(0.0, 0.5), spent=st.floats(0.0, 0.5), passed=st.floats(0.1, 10.0), busy=st.floats(0.0, 1.0))
def test_what_is_waited_for_is_paid_for_then(price: float, spent: float, passed: float, busy: float) -> None:
    """In a program that works on as before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{Budget.__module__}.process_seconds", lambda: 0.0)
        budget = Budget(0.0)
        budget.spent_seconds = spent
        patch.setattr(f"{Budget.__module__}.process_seconds", lambda: busy * passed + spent)
        later = passed + budget.wait_seconds(passed, price)
        patch.setattr(f"{Budget.__module__}.process_seconds", lambda: busy * later + spent)
        assert budget.left_seconds(later) >= price - 1e-6


def test_a_census_that_waits_for_its_slice_delays_no_reading() -> None:
    """Else a short program would have too few readings to tell growth from warm-up."""
    waiting, plain = ReadingSchedule(0.0, Budget(0.0)), ReadingSchedule(0.0, Budget(0.0))
    for pace, is_taking_census in ((waiting, True), (plain, False)):
        now = 0.0
        for _ in range(40):
            schedule_next_(pace, now, 0.001, {}, is_investigating=False, is_taking_census=is_taking_census)
            now = pace.due
    assert waiting.due <= plain.due


def test_the_part_that_became_slower_is_named() -> None:
    parts, rows, now, before = dict[tuple[str, str], float](), list[Sample](), 0.0, "update"
    for step in range(90):
        for kind, took in (("step", 0.001), ("update", 0.002 + 0.001 * step)):
            now += took
            parts[before, kind] = parts.get((before, kind), 0.0) + took
            before = kind
        rows.append(Sample(now, {}, READING._replace(step=2 * step), 0, dict(parts)))
    segment = find_slow_segment(rows)
    assert segment is not None
    assert segment.name == "from step to update"
    assert find_slow_segment(rows[:5]) is None


LEAK = Finding(
    verdict="leak",
    owner="train.KEPT",
    holders=("train.py, global KEPT",),
    made_at=None,
    bytes_per_step=1.0,
    interval=(0.5, 2.0),
    share=1.0,
    count=1,
    what="",
    plateau_bytes=None,
    plateau_step=None,
    limit_bytes=None,
    limit_step=None,
    advice="",
)


def test_the_anchor_is_the_slowest_boundary_that_comes_by_often_enough() -> None:
    pace = ReadingSchedule(0.0, Budget(0.0))
    schedule_next_(pace, 10.0, 0.001, {"step": 5000, "episode": 100, "epoch": 5}, is_investigating=False)
    assert pace.anchor == "episode"
    schedule_next_(pace, 10.0, 0.001, {"epoch": 5}, is_investigating=False)
    assert (pace.anchor, pace.latest) == (None, pace.due)


FILLING = """
import numpy as np
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots
from flatwater_watch.agent.filling_arrays import FillingArrays, add_untouched_arrays_, planned_by_path, touched_by_path_

MIB = 1 << 20


class Replay:
    def __init__(self):
        self.frames = np.zeros(32 * MIB, dtype=np.uint8)


def main():
    replay = Replay()
    replay.frames[: 4 * MIB] = 1
    pages = FillingArrays()
    add_untouched_arrays_(pages, take_census(Roots()))
    (path,) = [path for path in planned_by_path(pages) if path.endswith("replay.frames")]
    assert planned_by_path(pages)[path] == 32 * MIB
    assert abs(touched_by_path_(pages)[path] - 4 * MIB) <= 2 * MIB  # the system may back it with huge pages
    replay.frames[:] = 1
    assert touched_by_path_(pages)[path] >= 31 * MIB
    del replay
    assert path not in touched_by_path_(pages)


main()
"""


def test_an_array_that_fills_is_owned_by_its_touched_pages() -> None:
    """In a process of its own: an allocator that has freed memory before may give pages that were touched already."""
    ended = subprocess.run([sys.executable, "-c", FILLING], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


LATE = """
import atexit, threading, time
from flatwater_watch.agent.process import ProcessWatch
from flatwater_watch.agent.reading import has_main_returned

watch = ProcessWatch()
for _ in range(8):
    watch.step("update")
    time.sleep(0.25)
assert not has_main_returned()

def late():
    watch.step("update")
    rows = len(watch._samples)
    watch.find_final_findings_(in_loop=False)
    print(has_main_returned(), rows, len(watch._samples))

threading._register_atexit(late)
"""


def test_readings_after_the_main_code_has_returned_are_not_of_its_loop() -> None:
    """A pool's waiting jobs are dropped as the program ends, while Python waits for the pool's thread."""
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "True 9 8\n", ran.stderr


FREED = """
import time
from flatwater_watch.agent.process import ProcessWatch

KEPT = []
watch = ProcessWatch()
for _ in range(40):
    KEPT.append(bytearray(b"1") * 2_000_000)
    watch.step("update")
    time.sleep(0.1)
KEPT.clear()
watch._schedule.due = watch._schedule.latest = 0.0
watch.step("update")
rows = len(watch._samples)
print([found.owner for found in watch.find_final_findings_(in_loop=False)], rows - len(watch._samples))
"""


def test_what_is_let_go_just_before_the_end_has_grown() -> None:
    """A reading may fall between the end of a nursery, which frees its channel, and the return of the main code."""
    ran = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "['__main__.KEPT'] 1\n", ran.stderr


FREED_BY_C = """
import ctypes, time
from flatwater_watch.agent.process import ProcessWatch

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
store = libc.malloc(8 * 60)
places = (ctypes.c_void_p * 60).from_address(store)
watch = ProcessWatch()
for number in range(60):
    places[number] = libc.malloc(2_000_000)
    ctypes.memset(places[number], 1, 2_000_000)
    watch.step("update")
    time.sleep(0.1)
found = [found.verdict for found in watch.findings()]
for place in places:
    libc.free(place)
watch._schedule.due = watch._schedule.latest = 0.0
watch.step("update")
rows = len(watch._samples)
print(found, [found.verdict for found in watch.find_final_findings_(in_loop=False)], rows - len(watch._samples))
"""


def test_native_memory_that_is_freed_just_before_the_end_has_grown() -> None:
    """A store of WebAssembly, which no object of Python's explains, was freed as the main code returned."""
    ran = subprocess.run([sys.executable, "-c", FREED_BY_C], capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "['native'] ['native'] 1\n", ran.stderr


COMPILING = """
import time
from flatwater_watch.agent.process import ProcessWatch

KEPT = []
watch = ProcessWatch()
until = time.monotonic() + 60
while not watch._monitor.is_tracing and time.monotonic() < until:
    KEPT.append([str(n) for n in range(10_000)])
    watch.step("update")
    time.sleep(0.02)
watch.tick(1)
was_tracing = watch._monitor.is_tracing
watch._budget.cpu_at_last_payment -= 60  # as if the step under way had taken a minute
watch.tick(1)
print(was_tracing, watch._monitor.is_tracing, watch._monitor.state.name)
"""


def test_a_trace_ends_in_a_step_that_costs_more_than_the_budget_has() -> None:
    """A trace through a compiler took 16 s, which the watch paid back for the rest of the program."""
    ran = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "True False TRACING\n", ran.stderr


ENDING = """
import ctypes, time
from flatwater_watch.agent.process import ProcessWatch

malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
KEPT = []
watch = ProcessWatch()
until = time.monotonic() + 60
while len(watch.findings()) < 2 and time.monotonic() < until:
    KEPT.append([str(n) for n in range(5000)])
    ctypes.memset(malloc(400_000), 1, 400_000)
    watch.step("update")
    time.sleep(0.02)
before = watch.censuses
watch.close()
print(sorted(found.verdict for found in watch.findings()), watch.censuses - before)
"""


def test_a_program_waits_for_one_census_at_its_end() -> None:
    """It says whether an owner has stopped, whether roots hold what seems native, and where the rest may be."""
    ran = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "['leak', 'native'] 1\n", ran.stderr
