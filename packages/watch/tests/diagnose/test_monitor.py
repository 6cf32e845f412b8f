"""From readings to findings, on object graphs that really grow and numbers that say so."""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from watched import FLAT, grown_reading

from flatwater_watch.diagnose import investigator
from flatwater_watch.diagnose.evidence import NOT_ASKED_ADVICE
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.garbage import GarbageSearch
from flatwater_watch.diagnose.investigation import Investigation, SoughtContainers, missing_since_lengths
from flatwater_watch.diagnose.line_search import search_owner_line_, start_trace_
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.monitor import CaseState, Monitor
from flatwater_watch.heap.census import Census, CensusTaker, take_census
from flatwater_watch.heap.libraries import GrownHolders, heap_lengths
from flatwater_watch.heap.roots import Roots
from flatwater_watch.series.readings import Reading
from flatwater_watch.thresholds import CASE, DRIFT

pytestmark = pytest.mark.usefixtures("_bears_forks")

MIB = 1 << 20

SOURCE = """
from collections import deque
import numpy as np
import torch

HISTORY = []
OTHERS = []
TRIALS = []
REPLAY = deque(maxlen=CAPACITY)

def act(n):
    return torch.zeros(n, 1024, 256)

BELOW = {"values": ([act(1)], [act(1) for _ in range(3)], [act(1)])}

def keep(n):
    HISTORY.append(act(n))

def begin():
    TRIALS.append({"number": [len(TRIALS)]})

def fill():
    TRIALS[-1]["values"] = [bytes(272) for _ in range(4_000)]

def keep_below(n):
    BELOW["values"][1].append(act(n))

def keep_others(n):
    for _ in range(n):
        OTHERS.append(np.ones((1024, 128)))

def page(n):
    OTHERS[n].append({"letters": [float(n) for n in range(1000)]})

def store(n):
    for _ in range(n):
        REPLAY.append(np.ones((1024, 128)))
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Any]:
    """A program of the user's, with one container for each way to grow."""
    path = tmp_path / "train.py"
    source = SOURCE.replace("CAPACITY", "64")
    path.write_text(source)
    module = ModuleType("train")
    module.__file__ = str(path)
    sys.modules["train"] = module
    exec(compile(source, str(path), "exec"), vars(module))
    yield module
    del sys.modules["train"]
    gc.collect()


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    monitor = Monitor(Roots())
    yield monitor
    monitor.close()
    assert not monitor._tracer.running


Step = Callable[[int], Reading]


def watch(monitor: Monitor, step: Step, rounds: int) -> dict[int, list[Finding]]:
    """Findings by the step at which they were told. Real steps take longer than these: a search is waited for."""
    told = {}
    for number in range(1, rounds + 1):
        told[number] = monitor.observe(step(number))
        if (search := search_of(monitor)) is not None:
            assert search.is_done(60)
    return {number: found for number, found in told.items() if found}


def test_what_roots_gained_and_what_lies_behind_handles_is_asked_of_one_census() -> None:
    """At the end, when the program stands still: a second census could see nothing else."""
    censuses: list[int] = []
    monitor = Monitor(Roots(), on_census=lambda census: censuses.append(census.step))
    watch(monitor, lambda number: FLAT._replace(step=number), 3)
    before = len(censuses)
    latest = monitor.take_whole_census()
    monitor.find_behind_handles(80 * MIB, latest)
    monitor.root_gains(latest)
    assert len(censuses) == before + 1


def sought_history() -> dict[str, SoughtContainers]:
    """The history of `user`, whose line is sought."""
    holding = take_census(Roots()).holdings["train.HISTORY"]
    return {"train.HISTORY": SoughtContainers(("train.HISTORY",), holding, in_more_items=False)}


def search_of(monitor: Monitor) -> GarbageSearch | None:
    """The look for cyclic garbage that goes on."""
    return monitor._case.garbage_search


def leaking(user: Any, per_step: int = 1, noise: float = 0.0) -> Step:
    rng = np.random.default_rng(11)

    def step(number: int) -> Reading:
        user.keep(per_step)
        size = sum(tensor.nbytes for tensor in user.HISTORY) / MIB
        return grown_reading(number, size + noise * rng.normal())

    return step


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_leak_is_told_once_with_owner_and_line(user: Any, monitor: Monitor, noise: float) -> None:
    told = watch(monitor, leaking(user, noise=noise), 30)
    (at,) = told
    (found,) = told[at]
    assert at <= 10
    assert (found.verdict, found.owner) == ("leak", "train.HISTORY")
    assert found.made_at is not None
    assert (Path(found.made_at.file).name, found.made_at.function, found.made_at.operation) == (
        "train.py",
        "act",
        "aten::zeros",
    )
    assert found.bytes_per_step == pytest.approx(MIB, rel=0.02)
    assert found.interval[0] <= found.bytes_per_step <= found.interval[1]
    assert found.share > 0.8
    assert monitor.findings()[0].limit_step == pytest.approx(1600, rel=0.02), "1600 MiB were left"


def test_a_finding_tells_what_the_newest_census_counted(user: Any, monitor: Monitor) -> None:
    watch(monitor, leaking(user), 30)
    (before,) = monitor.findings()
    monitor.take_census(seconds=10.0)
    (now,) = monitor.findings()
    assert 0 < before.count < now.count == 30
    assert now.what == "30 × float32[1, 1024, 256]"
    assert "list of 30" in now.holders
    assert replace(now, count=before.count, what=before.what, holders=before.holders) == before


def test_what_is_emptied_and_filled_again_is_not_told(user: Any, monitor: Monitor) -> None:
    watch(monitor, leaking(user), 30)
    assert [found.owner for found in monitor.findings()] == ["train.HISTORY"]
    kept = [*user.HISTORY]
    user.HISTORY.clear()
    monitor.reset_tracker.check_lengths(Roots())
    assert [found.owner for found in monitor.findings()] == ["train.HISTORY"]
    user.HISTORY.extend(kept)
    monitor.reset_tracker.check_lengths(Roots())
    assert monitor.findings() == []


def test_the_fingerprint_is_the_same_in_a_rerun_with_other_sizes(user: Any) -> None:
    prints = []
    for per_step in (1, 2):
        user.HISTORY.clear()
        monitor = Monitor(Roots())
        told = watch(monitor, leaking(user, per_step), 10)
        prints += [finding.fingerprint for found in told.values() for finding in found]
    assert len(prints) == 2
    assert len({*prints}) == 1


def test_a_second_look_at_a_process_traces_nothing_that_is_known(user: Any) -> None:
    """Python before 3.12.5 keeps the stacks that `tracemalloc` noted for ever: each trace less is memory saved."""
    lines: dict[str, AllocationSite] = {}
    traced, made = [], []
    for _ in range(2):
        user.HISTORY.clear()
        counts: list[bool] = []
        monitor = Monitor(Roots(), lines=lines)
        step = leaking(user)

        def note_step(
            number: int, monitor: Monitor = monitor, step: Step = step, counts: list[bool] = counts
        ) -> Reading:
            counts.append(monitor.is_tracing)
            return step(number)

        told = watch(monitor, note_step, 10)
        monitor.close()
        traced.append(any(counts))
        made += [finding.made_at for found in told.values() for finding in found]
    assert traced == [True, False]
    assert made[0] == made[1] == lines["train.HISTORY"]


@pytest.mark.few(2)
@pytest.mark.parametrize("period", [2, 3, 4, 5, 6])
def test_a_leak_that_comes_in_bursts_is_found_with_its_line(user: Any, period: int) -> None:
    """Allocations stay traced until the next burst, whatever its rhythm: no census is taken in vain until then."""
    traced = []
    monitor = Monitor(Roots(), on_census=lambda *_: traced.append(monitor.is_tracing))

    def step(number: int) -> Reading:
        if number % period == 0:
            user.keep(period)
        return grown_reading(number, number - number % period)

    told = watch(monitor, step, 12 * period)
    (found,) = [finding for found in told.values() for finding in found]
    assert found.owner == "train.HISTORY"
    assert found.made_at is not None
    assert found.made_at.function == "act"
    assert True not in traced


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("period", "each", "function"),
    [(1, 0, "fill"), (6, 0, "begin"), (6, MIB, "fill")],
    ids=["soon", "nothing is made", "slowly"],
)
def test_an_item_that_is_being_filled_has_the_line_that_fills_it(
    user: Any, monkeypatch: pytest.MonkeyPatch, period: int, each: int, function: str
) -> None:
    """A second one says that it is whole; where none comes, and nothing is made, a line is better than none."""
    traced, made = [], count(0, each)
    monkeypatch.setattr(Tracer, "live_bytes", property(lambda _: next(made)))
    monitor = Monitor(Roots(), on_census=lambda *_: traced.append(monitor.is_tracing))
    user.begin()

    def step(number: int) -> Reading:
        if number % period == 0:
            user.fill()
            user.begin()
        return grown_reading(number, 1.25 * (number - number % period))

    told = watch(monitor, step, 9 * period)
    (found,) = [finding for found in told.values() for finding in found if finding.owner == "train.TRIALS"]
    assert found.made_at is not None
    assert found.made_at.function == function
    assert True not in traced


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("each", "readings"),
    [
        (0, CASE.maximum_idle_traced_readings),
        (MIB // 200, CASE.maximum_idle_traced_readings),
        (MIB // 50, CASE.maximum_idle_traced_readings + CASE.maximum_building_readings),
    ],
    ids=["nothing is made", "too little", "more and more"],
)
def test_a_traced_program_is_waited_for_while_it_makes_its_next_item(
    user: Any, monitor: Monitor, monkeypatch: pytest.MonkeyPatch, each: int, readings: int
) -> None:
    """A container that has rested for some readings is left, but not one whose next item is under way: for a while."""
    watch(monitor, leaking(user), 10)
    case = Investigation({}, last_evidence=monitor.evidence())
    assert [cause.owner for cause in case.last_evidence] == ["train.HISTORY"]
    case.sought_containers = sought_history()
    made = count(0, each)
    monkeypatch.setattr(Tracer, "live_bytes", property(lambda _: next(made)))
    waited = 0
    while search_owner_line_(case, Tracer(), Roots()):
        waited += 1
    assert waited == readings


@pytest.mark.few(1)
@pytest.mark.parametrize("falls", [False, True])
def test_native_growth_that_the_record_shows_at_its_end_is_told(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, *, falls: bool
) -> None:
    """While a program goes on, a drift is judged some times in a row; at its end there is no next time."""
    monkeypatch.setattr(
        "flatwater_watch.diagnose.monitor.search_garbage_at_end_", lambda *_: None
    )  # other tests leave some
    for number in range(1, 60):
        monitor.observe(grown_reading(number, 2 * number + (30 if falls and number == 3 else 0)))
        if monitor._history.drift_counts["native"]:
            break
    assert monitor._history.drift_counts["native"] < DRIFT.judgements_in_row
    monitor.close()  # a census may be under way
    assert monitor._latest_reading is not None
    assert monitor._unexplained_evidence(monitor._latest_reading) == []
    found = [each.verdict for each in monitor.explain_open_bytes_at_end(number * MIB, number)]
    assert found == ([] if falls else ["native"]), "what was freed at once may have been garbage"


def test_an_item_is_whole_when_the_next_container_on_its_path_has_one(
    user: Any, monitor: Monitor, request: pytest.FixtureRequest
) -> None:
    """As pages do that are read one after the other, each with a cache of its own that takes one text."""
    tracer = Tracer()
    request.addfinalizer(tracer.stop)
    watch(monitor, leaking(user), 10)
    user.OTHERS += [[], [], []]
    held = take_census(Roots()).holdings["train.OTHERS[*]"]
    (found,) = monitor.evidence()
    case = Investigation({}, last_evidence=[replace(found, owner=held.path)])
    case.sought_containers = {held.path: SoughtContainers(("train.OTHERS", "[*]"), held, in_more_items=False)}
    tracer.start()
    start_trace_(case, tracer, Roots(), in_watch_thread=False)
    assert search_owner_line_(case, tracer, Roots())
    user.page(0)
    assert search_owner_line_(case, tracer, Roots()), "it may be filled still"
    assert case.lines[held.path].function == "page"
    user.page(1)
    assert not search_owner_line_(case, tracer, Roots())
    assert case.has_new_line


def test_the_number_of_items_that_keep_one_is_not_the_length_of_what_one_keeps(user: Any, monitor: Monitor) -> None:
    watch(monitor, leaking(user), 10)
    user.OTHERS += [[], [], []]
    held = take_census(Roots()).holdings["train.OTHERS[*]"]
    (found,) = monitor.evidence()
    case = Investigation({}, last_evidence=[replace(found, owner=held.path)], first_owner_length=3)
    case.sought_containers = {held.path: SoughtContainers(("train.OTHERS", "[*]"), held, in_more_items=True)}
    tracer = cast("Tracer", SimpleNamespace(live_bytes=0, find_line=lambda _: None, start=lambda **_: None))
    start_trace_(case, tracer, Roots(), in_watch_thread=False)
    user.OTHERS[1] = ["text"] * 50
    search_owner_line_(case, tracer, Roots())
    assert case.first_owner_length == 3


@pytest.mark.parametrize("what", ["waits", "registers", "makes"])
def test_the_line_that_adds_is_sought_where_one_call_makes_all_or_a_library_registers(
    user: Any, monitor: Monitor, what: str
) -> None:
    watch(monitor, leaking(user), 10)
    case = Investigation({}, last_evidence=monitor.evidence())
    sought = {path: each._replace(is_registry=what == "registers") for path, each in sought_history().items()}
    case.sought_containers = sought
    line = AllocationSite("train.py", 1, "main", "python")
    tracer = cast(
        "Tracer",
        SimpleNamespace(
            live_bytes=0,
            find_line=lambda _: line,
            start=lambda **_: None,
            is_waiting_line=lambda _: what == "waits",
        ),
    )
    start_trace_(case, tracer, Roots(), in_watch_thread=False)
    user.keep(1)
    user.keep(1)
    assert not search_owner_line_(case, tracer, Roots())
    expected = None if what == "makes" else (next(iter(sought)), [user.HISTORY])
    assert case.owner_to_watch == expected


def test_what_came_before_the_trace_began_is_not_asked_for_its_line(user: Any, monitor: Monitor) -> None:
    """A census in slices is older than the trace: it asked for the same objects at each reading, in vain."""
    watch(monitor, leaking(user), 10)
    case = Investigation({}, last_evidence=monitor.evidence())
    case.sought_containers = sought_history()
    user.keep(1)
    asked: list[Any] = []
    tracer = cast("Tracer", SimpleNamespace(live_bytes=0, find_line=asked.append, start=lambda **_: None))
    start_trace_(case, tracer, Roots(), in_watch_thread=False)
    assert search_owner_line_(case, tracer, Roots())
    assert asked == []
    user.keep(1)
    assert search_owner_line_(case, tracer, Roots())
    assert len(asked) == 1
    user.HISTORY.clear()
    assert not search_owner_line_(case, tracer, Roots()), "what is emptied leaks nothing"
    assert len(asked) == 1


def test_of_several_containers_in_one_place_the_line_of_the_one_that_grows_is_found(
    user: Any, monitor: Monitor
) -> None:
    """It needs no census while the program is slow: each of them is asked whether it has become longer."""

    def step(number: int) -> Reading:
        user.keep_below(1)
        return grown_reading(number, sum(tensor.nbytes for tensor in user.BELOW["values"][1]) / MIB)

    counted: list[bool] = []
    monitor._census_callback = lambda _census: counted.append(monitor.is_tracing)
    told = watch(monitor, step, 30)
    (at,) = told
    (found,) = told[at]
    assert (found.verdict, found.owner) == ("leak", "train.BELOW['values'][*]")
    assert found.made_at is not None
    assert found.made_at.function == "act"
    assert counted
    assert True not in counted


def test_of_containers_that_grow_together_each_has_its_line(user: Any, monitor: Monitor) -> None:
    """Which of them has most bytes may be another one at each look."""

    def step(number: int) -> Reading:
        user.keep(2)
        user.keep_below(2)
        return grown_reading(number, 4 * number)

    told = watch(monitor, step, 30)
    (at,) = told
    assert {found.owner for found in told[at]} == {"train.HISTORY", "train.BELOW['values'][*]"}
    assert [found.made_at and found.made_at.function for found in told[at]] == ["act", "act"]


def test_a_container_that_is_in_use_at_the_second_census_only_is_no_owner(user: Any, monitor: Monitor) -> None:
    """As pyplot's table of figures is, which has one as long as it is drawn."""

    def step(number: int) -> Reading:
        user.keep_others(1)
        user.TRIALS[:] = [] if monitor.state in {CaseState.WATCHING, CaseState.COUNTING} else [bytearray(9 * MIB)]
        return grown_reading(number, number)

    told = watch(monitor, step, 40)
    assert {found.owner for findings in told.values() for found in findings} == {"train.OTHERS"}


@pytest.mark.parametrize("table", [None, {}])
def test_a_container_that_is_made_after_the_first_census_is_the_owner(user: Any, monitor: Monitor, table: Any) -> None:
    """A service makes its table, or the list in it, when it is first asked for."""
    user.BELOW["table"] = table

    def step(number: int) -> Reading:
        if monitor.state is CaseState.PROVING:
            user.BELOW["table"] = {"entries": []}
        if user.BELOW["table"]:
            user.BELOW["table"]["entries"].append(bytearray(MIB))
        return grown_reading(number, number)

    told = watch(monitor, step, 60)
    owners = {found.owner for findings in told.values() for found in findings}
    assert owners == {"train.BELOW['table']['entries']"}


def test_a_trace_that_imports_suspend_goes_on_after_them(user: Any, monitor: Monitor) -> None:
    """A trace makes an import fifty times slower, so it ends there; that is none of the tries to find a line."""
    suspended = 0

    def step(number: int) -> Reading:
        nonlocal suspended
        if monitor.is_tracing and suspended < 2 * CASE.maximum_fruitless_traces:
            suspended += 1
            monitor.suspend_trace()
        return leaking(user)(number)

    told = watch(monitor, step, 40)
    (at,) = told
    (found,) = told[at]
    assert suspended == 2 * CASE.maximum_fruitless_traces
    assert found.made_at is not None
    assert found.made_at.function == "act"


def test_a_line_that_is_not_paid_for_is_found_later_and_its_owner_at_once(user: Any, monitor: Monitor) -> None:
    """A trace that has cost too much ends, and begins again when it is affordable for twice as long."""
    step, told, traced = leaking(user), list[Finding](), list[bool]()
    for number in range(1, 60):
        told += monitor.observe(step(number), budget=-0.1 if number < 30 else 3 * CASE.least_trace_cpu_seconds)
        traced.append(monitor.is_tracing)
        if (search := search_of(monitor)) is not None:
            assert search.is_done(60)
    assert [(finding.owner, finding.made_at) for finding in told] == [("train.HISTORY", None)]
    assert not any(traced[:29])
    assert traced[29]
    (found,) = monitor.findings()
    assert found.made_at is not None
    assert found.made_at.function == "act"


def test_a_container_that_stops_growing_is_not_traced_for_ever(user: Any, monitor: Monitor) -> None:
    traced = 0
    for number in range(1, 61):
        if number <= 8:
            user.keep(2)
        monitor.observe(grown_reading(number, 2 * min(number, 8)))
        traced += monitor._tracer.running
    assert traced <= 1 + CASE.maximum_idle_traced_readings


def test_a_census_goes_on_between_two_steps(user: Any) -> None:
    """And is handed over at the next one, as begun at the step at which it was."""
    told: list[Census] = []
    step_now = 1
    censuses = CensusTaker(Roots(), told.append, lambda: step_now)
    for number in range(100):
        user.keep(1)
        user.HISTORY.append([[number]] * 1000)
    censuses.slice_seconds = 1e-9
    assert censuses.advance_census_() is None
    slices = 0
    while censuses.is_under_way:
        censuses.run_slice_(1e-9)
        step_now += 1
        slices += 1
    assert slices > 1
    assert told == []
    censuses.slice_seconds = 1e-9
    taken = censuses.advance_census_()
    assert taken is not None
    assert taken is told[0]
    assert taken.step == 1
    assert 1 < taken.holdings["train.HISTORY"].step < slices, "it is of the step of the slice that read it"


def test_a_leaking_run_is_not_slowed_for_ever(user: Any, monitor: Monitor) -> None:
    step = leaking(user)
    traced = 0
    for number in range(1, 61):
        monitor.observe(step(number))
        traced += monitor._tracer.running
    assert traced == 1, "what is known is not looked for again"
    assert len(monitor.findings()) == 1


@pytest.mark.parametrize(("more", "traced"), [(1, True), (12, False)])
def test_a_program_is_traced_for_an_owner_of_a_fair_share_alone(
    user: Any, monitor: Monitor, more: int, *, traced: bool
) -> None:
    """A compiler's tables are a small part of what it takes once, and under a trace it is 75 times as slow."""
    was_traced = False
    for number in range(1, 16):
        user.keep(1)
        monitor.observe(grown_reading(number, more * number))
        was_traced = was_traced or monitor._tracer.running
        if (search := search_of(monitor)) is not None:
            assert search.is_done(60)
    assert was_traced is traced


@pytest.mark.parametrize("left", [-0.1, 1.0])
def test_a_trace_ends_with_the_budget_whatever_waits_for_it(monitor: Monitor, left: float) -> None:
    """A census that nothing was left for waited 47 s under a trace."""
    monitor.observe(grown_reading(1, 1))
    monitor.state, monitor._case.proven = CaseState.COMPARING, True
    monitor._tracer.start(tensors=False)
    monitor.observe(grown_reading(2, 2), seconds=1e-9, budget=left)
    assert monitor.censuses.is_under_way
    assert monitor._tracer.running == (left > 0)


@pytest.mark.long
def test_a_second_leak_is_found_beside_the_first(user: Any, monitor: Monitor) -> None:
    def step(number: int) -> Reading:
        user.keep(1)
        if number > 30:
            user.keep_others(3)
        return grown_reading(number, number + 3 * max(0, number - 30))

    told = watch(monitor, step, 70)
    owners = [finding.owner for found in told.values() for finding in found]
    assert owners == ["train.HISTORY", "train.OTHERS"]
    assert max(told) <= 50


def filling(user: Any, limit: int) -> Step:
    def step(number: int) -> Reading:
        user.store(2)
        return grown_reading(number, len(user.REPLAY), limit=limit * MIB)

    return step


def test_a_filling_has_a_plateau(user: Any, monitor: Monitor) -> None:
    told = watch(monitor, filling(user, 2000), 60)
    (at,) = told
    (found,) = told[at]
    assert at <= 10
    assert (found.verdict, found.owner) == ("filling", "train.REPLAY")
    assert found.plateau_bytes == pytest.approx(64 * MIB, rel=0.02)
    assert found.plateau_step == 32, "two of 64 a round, from round 1"
    assert found.limit_step is None, "it is full long before"


def test_the_forecast_of_a_filling_that_does_not_fit(user: Any, monitor: Monitor) -> None:
    told = watch(monitor, filling(user, 440), 12)
    (found,) = next(iter(told.values()))
    assert found.verdict == "filling"
    assert found.limit_step == pytest.approx(20, rel=0.1), "40 MiB are left, at two a round"


def test_near_the_limit_nothing_is_traced(user: Any, monitor: Monitor) -> None:
    step = filling(user, 430)
    told = []
    for number in range(1, 12):
        told += monitor.observe(step(number))
        assert not monitor._tracer.running
    assert [(finding.owner, finding.made_at) for finding in told] == [("train.REPLAY", None)]


@pytest.mark.long
def test_tracing_ends_where_the_limit_comes_near(user: Any, monitor: Monitor) -> None:
    """Also while the next burst is waited for."""
    number = 0
    while not monitor._tracer.running:
        number += 1
        if number % 6 == 0:
            user.keep(6)
        assert number < 72
        monitor.observe(grown_reading(number, number - number % 6))
    monitor.observe(grown_reading(number + 1, number - number % 6))
    assert monitor._tracer.running
    near = grown_reading(number + 2, number - number % 6)
    monitor.observe(near._replace(limit=near.resident + MIB))
    assert not monitor._tracer.running


NUMBERS: dict[str, tuple[str, Step]] = {
    "retention": ("the C allocator", lambda n: FLAT._replace(step=n, resident=(400 + n) * MIB, free=(10 + n) * MIB)),
    "mapped": ("mapped files", lambda n: FLAT._replace(step=n, resident=(400 + n) * MIB, file_mapped=(100 + n) * MIB)),
    "native": ("memory outside of Python", lambda n: FLAT._replace(step=n, resident=(400 + n) * MIB)),
}


@pytest.mark.parametrize("verdict", NUMBERS)
def test_what_no_object_holds_is_told_by_numbers(monitor: Monitor, verdict: str) -> None:
    owner, step = NUMBERS[verdict]
    told = watch(monitor, step, 40)
    assert [(f.verdict, f.owner) for found in told.values() for f in found] == [(verdict, owner)]
    assert min(told) <= 14, "a look more where globals of libraries became longer meanwhile"
    assert monitor.findings()[0].bytes_per_step == pytest.approx(MIB, rel=0.01)
    limit_step = monitor.findings()[0].limit_step
    assert limit_step is None if verdict == "mapped" else limit_step == pytest.approx(1600, rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_containers_are_counted_by_who_can_pay_for_it(monitor: Monitor, seconds: float) -> None:
    """It cannot be done in slices, and a program of a second is too short for a large heap; it is told all the same."""
    told, counted = [], set[bool]()
    for number in range(1, 41):
        told += monitor.observe(NUMBERS["native"][1](number), budget=seconds)
        counted.add(monitor._case.lengths is not None)
        if (search := search_of(monitor)) is not None:
            assert search.is_done(60)
    assert (True in counted) is (seconds > 0)
    assert [finding.verdict for finding in told] == ["native"]
    assert (told[0].advice == NOT_ASKED_ADVICE) is (seconds == 0)


@pytest.mark.long
@pytest.mark.parametrize("mostly", [True, False])
def test_at_the_end_two_judgements_do_for_freed_memory_that_is_the_growth(monitor: Monitor, *, mostly: bool) -> None:
    freed = 1.0 if mostly else 0.7
    step = lambda n: FLAT._replace(step=n, resident=(400 + n) * MIB, free=int((10 + freed * n) * MIB))  # noqa: E731
    assert watch(monitor, step, 9) == {}
    monitor.finish_pending()
    found = [(each.verdict, each.owner) for each in monitor.findings()]
    assert found == ([("retention", "the C allocator")] if mostly else [])


def test_at_the_end_freed_memory_that_grew_in_stairs_is_told(monitor: Monitor) -> None:
    """As read of a heap whose records lie between summaries that stay; each round has more of them."""
    steps = [3, 5, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31, 33, 35, 37, 39, 41, 43, 45, 47]
    freed = [2.2, 3.8, 3.8, 9.4, 9.4, 14.9, 14.9, 21, 21, 26.5, 26.5, 26.6, 26.6, 33.6, 33.6, 37.7, 37.8, 42.4, 42.4]
    for step, size in zip(steps, [*freed, 47.7, 47.7, 47.7, 62.3], strict=True):
        held = int((400 + size) * MIB)
        assert monitor.observe(FLAT._replace(step=step, resident=held, free=int(size * MIB))) == []
    monitor.finish_pending()
    assert [(each.verdict, each.owner) for each in monitor.findings()] == [("retention", "the C allocator")]


@pytest.mark.slow
def test_native_growth_that_goes_on_more_slowly_is_told_at_its_rate_of_now(monitor: Monitor) -> None:
    """It has ended at the rate at which it was found, which is no reason to say nothing of what comes since."""
    sizes = [*range(0, 160, 4), *range(160, 220)]
    watch(monitor, lambda n: FLAT._replace(step=n, resident=(400 + sizes[n]) * MIB), len(sizes) - 1)
    (known,) = monitor.findings()
    assert known.bytes_per_step == pytest.approx(4 * MIB, rel=0.01)
    monitor.finish_pending()
    assert monitor.findings() == [known]
    monitor.finish_pending({known.owner})
    (found,) = monitor.findings()
    assert (found.verdict, found.owner) == (known.verdict, known.owner)
    assert found.bytes_per_step == pytest.approx(MIB, rel=0.3)


def test_declared_state_is_touched_up_to_its_plan_and_leaks_beyond(monitor: Monitor) -> None:
    def step(number: int) -> Reading:
        owned = {"replay.rows": min(number, 30) * MIB, "nets": 5 * MIB, "history": 2 * number * MIB}
        planned = {"replay.rows": 30 * MIB, "nets": 5 * MIB, "history": 1 * MIB}
        more = sum(owned.values())
        return FLAT._replace(step=number, resident=400 * MIB + more, owned=owned, planned=planned)

    told = watch(monitor, step, 20)
    found = {f.owner: f for f in monitor.findings()}
    assert min(told) <= 6
    assert {owner: f.verdict for owner, f in found.items()} == {"replay.rows": "filling", "history": "leak"}
    assert found["replay.rows"].plateau_bytes == 30 * MIB
    assert found["replay.rows"].plateau_step == 30
    assert found["replay.rows"].share == pytest.approx(1 / 3, rel=0.02)


@pytest.mark.parametrize("full", [False, True])
def test_declared_state_that_fills_in_stairs_is_told_while_it_fills(monitor: Monitor, *, full: bool) -> None:
    """A huge page of 2 MiB at every fifth reading: no five readings make a line."""

    def step(number: int) -> Reading:
        held = 40 if full else min(40, 2 * (number // 5))
        owned = {"replay.rows": held * MIB}
        return FLAT._replace(step=number, resident=(400 + held) * MIB, owned=owned, planned={"replay.rows": 40 * MIB})

    told = watch(monitor, step, 60)
    assert [(f.verdict, f.owner) for found in told.values() for f in found] == [("filling", "replay.rows")] * (not full)
    if not full:
        assert monitor.findings()[0].plateau_bytes == 40 * MIB
        assert monitor.findings()[0].plateau_step == pytest.approx(100, abs=6)


class Cycle:
    def __init__(self) -> None:
        self.itself = self
        self.prices = np.ones((1024, 128))


def dropping(number: int) -> Reading:
    """A round that leaves a cycle of a MiB behind."""
    Cycle()
    return grown_reading(number, number)


@pytest.mark.usefixtures("_no_collection")
def test_cyclic_garbage_is_told_with_its_line(monitor: Monitor) -> None:
    told = watch(monitor, dropping, 20)
    ((found,),) = told.values()
    assert (found.verdict, found.owner) == ("leak", "cyclic garbage")
    assert found.made_at is not None
    assert found.made_at.function == "Cycle.__init__"
    assert "Cycle" in found.what


def searching(monitor: Monitor, since: int = 0) -> int:
    """The round after `since` in which garbage is looked for; each leaves some."""
    for number in range(since + 1, since + 20):
        monitor.observe(dropping(number))
        if search_of(monitor) is not None:
            return number
    raise AssertionError("no search was begun")


@pytest.mark.usefixtures("_no_collection")
def test_no_fork_is_made_of_a_heap_that_a_young_program_cannot_pay_for(monitor: Monitor) -> None:
    """A program of a second that had loaded 600,000 lists was forked, and waited for the fork as it ended."""
    comparisons = set[int]()
    for number in range(1, 20):
        monitor.observe(dropping(number), budget=0.0)
        if search_of(monitor) is None:
            comparisons.add(monitor._case.comparisons)
    assert {1, 2} <= comparisons, "the fork waits for comparisons, which are cheaper"


@pytest.mark.usefixtures("_no_collection")
def test_a_monitor_that_is_closed_leaves_no_search_behind(monitor: Monitor) -> None:
    searching(monitor)
    search = search_of(monitor)
    assert search is not None
    monitor.close()
    assert search.is_done()
    assert search.garbage() is None
    assert search_of(monitor) is None


@pytest.mark.long
@pytest.mark.usefixtures("_no_collection")
def test_a_reading_does_not_wait_for_the_search(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    monkeypatch.setattr(GarbageSearch, "is_done", lambda _, seconds=0.0: waits.append(seconds))
    # What other tests have imported may grow meanwhile, on a busy machine, and that would end the search.
    monkeypatch.setattr(investigator, "take_grown_holders_", lambda *_: GrownHolders({}, frozenset()))
    began = searching(monitor)
    search = search_of(monitor)
    for number in range(began + 1, began + 10):
        assert monitor.observe(dropping(number)) == []
    assert set(waits) == {0.0}
    assert search_of(monitor) is search, "one at a time, and it goes on"
    monitor.conclude()
    assert waits[-1] == 2.0


def test_libraries_are_asked_while_a_fork_searches_for_garbage(
    monitor: Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a fork may search for longer than the program runs."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "tablelib.py").write_text("_TABLE = {}\ndef keep(key, value):\n    _TABLE[key] = value\n")
    monkeypatch.syspath_prepend(str(folder))
    keep = importlib.import_module("tablelib").keep
    monkeypatch.setattr(GarbageSearch, "is_done", lambda _, _seconds=0.0: False)
    for number in range(1, 30):
        keep(number, np.ones((1024, 128)))
        monitor.observe(grown_reading(number, number))
    del sys.modules["tablelib"]
    assert [found.owner for found in monitor.findings()] == ["tablelib._TABLE"]


def test_an_owner_of_a_part_is_told_though_the_search_for_the_rest_does_not_end(
    user: Any, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GarbageSearch, "is_done", lambda _, _seconds=0.0: False)
    for number in range(1, 20):
        user.keep_others(1)
        monitor.observe(grown_reading(number, 2 * number))
    monitor.finish_pending()
    assert monitor.findings()[0].owner == "train.OTHERS"


@pytest.mark.usefixtures("_no_collection")
def test_at_the_end_the_search_under_way_is_heard(monitor: Monitor) -> None:
    since = searching(monitor)
    first = search_of(monitor)
    assert first is not None
    assert first.is_done(60)
    monitor.observe(dropping(since + 1))
    searching(monitor, since + 1)
    second = search_of(monitor)
    assert second is not None
    assert second.is_done(60)
    assert [found.owner for found in monitor.conclude()] == ["cyclic garbage"]


@pytest.mark.few(1)
@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize("late", [0, 1])
def test_at_the_end_garbage_that_was_suspected_is_told(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """One search proves no growth; what still waits at the end is most of it. The last search may end too late."""
    since = searching(monitor)
    search, whole = search_of(monitor), GarbageSearch.is_done
    assert search is not None
    assert search.is_done(60)
    assert monitor.observe(dropping(since + 1)) == []
    assert search_of(monitor) is None, "it was heard"
    in_time = iter([False] * late)
    monkeypatch.setattr(GarbageSearch, "is_done", lambda search, _=0.0: next(in_time, True) and whole(search, 60))
    assert [found.owner for found in monitor.conclude()] == ["cyclic garbage"]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_at_the_end_the_look_under_way_is_waited_for(
    user: Any, monitor: Monitor, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Growth that no census has looked at is not said to be native, also where there is no time for it."""
    monkeypatch.setattr("flatwater_watch.diagnose.monitor.CASE", CASE._replace(last_search_seconds=seconds))
    user.TRIALS.extend([[[number] for _ in range(6)] for _ in range(24)] for number in range(24))  # 120 slices
    step = leaking(user)
    for number in range(1, 40):
        whole = monitor.state in {CaseState.BEGINNING, CaseState.COUNTING}
        assert monitor.observe(step(number), seconds=60 if whole else 1e-9) == []
        if number > 30 and monitor.censuses.is_under_way and monitor.is_investigating:
            break
    monitor.finish_pending()
    owners = [(each.verdict, each.owner) for each in monitor.findings()]
    assert owners == ([("leak", "train.HISTORY")] if seconds else [])


def test_a_phase_that_slows_down_is_named(monitor: Monitor) -> None:
    rng = np.random.default_rng(2)

    def step(number: int) -> Reading:
        rates = {"explore": 50 + rng.normal(), "learn": 100 / (1 + 0.1 * number) + rng.normal()}
        return FLAT._replace(step=number, rates=rates)

    told = watch(monitor, step, 40)
    assert [(f.verdict, f.owner) for found in told.values() for f in found] == [("slowdown", "learn")]


def test_a_program_that_ends_early_is_judged_by_its_last_two_readings(monitor: Monitor) -> None:
    for number in range(12):
        assert monitor.observe(FLAT._replace(step=number, rates={"learn": 100 / (1 + 0.5 * number)})) == []
    assert [(found.verdict, found.owner) for found in monitor.conclude()] == [("slowdown", "learn")]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_a_flat_program_is_never_reported(user: Any, seed: int) -> None:
    """Noise, a warm-up, a step as from a cache that is filled once, and a program that holds what it held."""
    rng = np.random.default_rng(seed)
    user.keep(8)

    def step(number: int) -> Reading:
        warm = 80 * (1 - np.exp(-number / 2)) + (20 if number > 25 else 0)
        return grown_reading(number, warm + rng.normal())._replace(
            file_mapped=int((100 + rng.normal()) * MIB),
            free=int((10 + abs(3 * rng.normal())) * MIB),
            rates={"learn": 100 + 5 * rng.normal()},
        )

    monitor = Monitor(Roots())
    assert watch(monitor, step, 60) == {}
    monitor.close()


def test_a_container_that_grows_with_the_warm_up_alone_is_not_reported(user: Any, monitor: Monitor) -> None:
    def step(number: int) -> Reading:
        if number <= 4:
            user.keep(1)
        return grown_reading(number, min(number, 4))

    assert watch(monitor, step, 40) == {}


@pytest.mark.few(1)
@pytest.mark.parametrize("ends", [False, True])
def test_what_was_seen_without_a_proof_is_a_cause_if_memory_went_on_like_it(
    user: Any, monitor: Monitor, *, ends: bool
) -> None:
    rng = np.random.default_rng(10)

    def step(number: int) -> Reading:
        if not ends or number <= 14:
            user.keep(1)
        scattered = 6 * rng.normal() if number < 28 else 0
        return grown_reading(number, len(user.HISTORY) + scattered)

    assert watch(monitor, step, 28) == {}, "readings scatter more than they rise"
    assert monitor.confirm_unproven(600 * MIB) == [], "it is too little for what has no cause"
    found = monitor.confirm_unproven(28 * MIB)
    assert [each.owner for each in found] == ([] if ends else ["train.HISTORY"])
    assert [each.owner for each in monitor.findings()] == [each.owner for each in found]


def test_a_monitor_that_is_closed_keeps_nothing(user: Any) -> None:
    monitor = Monitor(Roots())
    step = leaking(user)
    for number in range(1, 7):
        monitor.observe(step(number))
    assert monitor._tracer.running
    monitor.close()
    assert not monitor._tracer.running


def test_a_reading_of_the_same_step_is_passed_over(monitor: Monitor) -> None:
    for _ in range(20):
        assert monitor.observe(grown_reading(3, 0)) == []
    assert monitor.findings() == []


def test_a_reading_without_suspicion_is_cheap(monitor: Monitor) -> None:
    owned = {f"population.actor.{n}": MIB for n in range(100)}
    watch(monitor, lambda number: FLAT._replace(step=number, owned=owned, planned=owned), 1000)
    # 0.2 ms are promised; five times as much passes on a busy machine.
    assert 0 < monitor.cost_seconds < 1.0


def test_growth_is_suspected_before_the_first_census_is_done_where_memory_drifts_alone() -> None:
    """What a program loads at first rises as well."""
    monitors = {"loads": Monitor(Roots()), "grows": Monitor(Roots()), "rests": Monitor(Roots())}
    suspected = dict[str, int]()
    for number in range(1, 41):
        for name, monitor in monitors.items():
            rounds = {"loads": min(number, 4), "grows": number, "rests": 0}[name]
            monitor.observe(grown_reading(number, rounds), seconds=0.0)
            assert monitor.state is CaseState.BEGINNING
            if monitor.suspects_growth:
                suspected.setdefault(name, number)
    assert set(suspected) == {"grows"}
    assert suspected["grows"] >= 5


@pytest.mark.parametrize("is_earned_again", [False, True])
def test_a_census_after_one_in_vain_waits_until_it_is_earned(
    monkeypatch: pytest.MonkeyPatch, *, is_earned_again: bool
) -> None:
    """A chain of 200,000 objects took four censuses of half a second each, in a program of twelve seconds."""
    monkeypatch.setattr(GarbageSearch, "is_done", lambda _, _seconds=0.0: False)
    monkeypatch.setattr(CensusTaker, "is_earned_again", property(lambda _: is_earned_again))
    monitor, compared = Monitor(Roots()), set[int]()
    for number in range(1, 25):
        monitor.observe(NUMBERS["native"][1](number), seconds=60.0)
        compared.add(monitor._case.comparisons)
    monitor.close()
    assert 1 in compared
    assert (max(compared) > 1) is is_earned_again


def test_a_census_is_earned_again_after_25_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [100.0]
    monkeypatch.setattr(f"{CensusTaker.__module__}.monotonic", lambda: times[-1])
    censuses = CensusTaker(Roots(), on_census=lambda _: None, current_step=lambda: 1)
    censuses.slice_seconds = 60.0
    assert censuses.advance_census_() is not None
    censuses.last_cpu_seconds = 1.0
    assert not censuses.is_earned_again
    times.append(124.9)
    assert not censuses.is_earned_again
    times.append(125.1)
    assert censuses.is_earned_again


def test_a_search_for_holders_in_vain_waits_until_as_much_more_has_come() -> None:
    """Each climbs through all objects; in a program with many libraries three took half of the watch's time."""
    case = Investigation({}, lengths=heap_lengths(), lengths_step=0)
    due = []
    for step in range(1, 101):
        missing_bytes = missing_since_lengths(case, step, MIB, 4 * MIB)
        if missing_bytes:
            due.append(step)
            case.searched_bytes = missing_bytes  # as after a search in vain
    assert due == [4, 8, 16, 32, 64]
