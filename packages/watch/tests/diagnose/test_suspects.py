"""Garbage that is suspected and not proven yet: its line is looked for, kept, and waited for long enough."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from watched import READING, grown_reading

from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.garbage import Garbage, GarbageSearch
from flatwater_watch.diagnose.garbage_investigation import finish_search_, update_garbage_wait_, wants_garbage
from flatwater_watch.diagnose.investigation import Investigation
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.diagnose.states import CaseState
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import CASE

pytestmark = pytest.mark.usefixtures("_bears_forks")

MIB = 1 << 20
LINE = AllocationSite("train.py", 3, "act", "numpy")
OLD = Garbage(
    20 * MIB, 100, "10 × Env", None, collector_is_on=False, bytes_since_collection=20 * MIB, bytes_per_object=2 * MIB
)
YOUNG = OLD._replace(collector_is_on=True, young_bytes=20 * MIB, forecast_young_bytes=100 * MIB)
RATE = Slope(2.0 * MIB, 1.5 * MIB, 2.5 * MIB, 10.0)


def record_of(*sizes: int) -> ReadingHistory:
    """Readings of so many MiB that nothing accounts for, from step 1 on."""
    record = ReadingHistory()
    for step, size in enumerate(sizes, 1):
        record.add(READING._replace(step=step, resident=size * MIB, in_use=size * MIB))
    return record


def heard(
    case: Investigation, step: int, garbage: Garbage | None, record: ReadingHistory | None = None, *, took: int = 0
) -> list[Evidence]:
    """What is said where a search that began at a step has found something, so many steps later."""

    class Found:
        def garbage(self) -> Garbage | None:
            return garbage

    case.garbage_search, case.search_step = cast("GarbageSearch", Found()), step
    record = record or record_of(100, 120)
    return finish_search_(case, record, RATE, Growth(step + took, 200 * MIB, None, RATE, "step"), MIB)


def test_the_line_of_garbage_is_kept_before_it_is_proven_to_grow() -> None:
    case = Investigation({})
    assert heard(case, 10, OLD) == []
    assert wants_garbage(case)
    assert heard(case, 11, OLD._replace(made_at=LINE)) == []
    assert case.lines == {GARBAGE_OWNER: LINE}
    assert not wants_garbage(case), "one line is enough"
    assert heard(case, 20, OLD._replace(bytes=40 * MIB, bytes_since_collection=40 * MIB)) != []
    assert case.lines == {GARBAGE_OWNER: LINE}, "of the earlier search"


def test_a_search_that_took_longer_than_the_growth_that_is_judged_says_nothing() -> None:
    """A machine was busy; any garbage at all, as a few kilobytes of imports, was enough for growth of no time."""
    case, little = Investigation({}), OLD._replace(bytes=4000, bytes_since_collection=4000)
    assert heard(case, 10, little, took=10) == []
    assert not wants_garbage(case)
    assert not case.too_little_garbage
    assert heard(case, 20, OLD, took=2) == []
    assert wants_garbage(case)


def test_garbage_grows_from_the_least_that_was_seen() -> None:
    """A collection may free it between two searches."""
    case = Investigation({})
    assert heard(case, 10, OLD._replace(bytes=60 * MIB)) == []
    assert heard(case, 20, OLD._replace(bytes=12 * MIB)) == []
    assert heard(case, 30, OLD._replace(bytes=32 * MIB)) != []


def test_garbage_that_a_collection_has_left_is_no_suspect() -> None:
    """It was there before: its line can be asked for when it was seen to grow."""
    case = Investigation({})
    assert heard(case, 10, OLD._replace(bytes_since_collection=9 * MIB)) == []
    assert not wants_garbage(case)
    assert heard(case, 20, OLD._replace(bytes=40 * MIB, bytes_since_collection=0)) != []


def test_garbage_that_lies_there_is_suspected_no_more() -> None:
    case = Investigation({}, first_step=1)
    rises = record_of(100, 105, 110, 115)
    assert heard(case, 10, OLD, rises) == []
    assert wants_garbage(case)
    assert heard(case, 20, OLD, rises) == []
    assert case.suspected_garbage is None


def test_a_search_after_a_collection_is_no_proof_that_there_is_no_garbage() -> None:
    falls, rises = record_of(100, 120, 90, 95), record_of(100, 105, 110, 115)
    for record, clean in ((falls, False), (rises, True)):
        case = Investigation({}, first_step=1)
        assert heard(case, 4, None, record) == []
        assert case.too_little_garbage is clean
    case = Investigation({}, first_step=3)
    heard(case, 4, None, falls)
    assert case.too_little_garbage, "it fell before the investigation"
    case = Investigation({}, first_step=1)
    heard(case, 4, OLD, rises)
    heard(case, 4, None, rises)
    assert not case.too_little_garbage, "there was some"


def test_young_garbage_waits_unless_it_will_come_to_much() -> None:
    assert not YOUNG.is_ordinary_gc_backlog(0.0)
    assert YOUNG._replace(forecast_young_bytes=40 * MIB).is_ordinary_gc_backlog(0.0)
    assert YOUNG.is_ordinary_gc_backlog(0.0, YOUNG.young_bytes), (
        "a collection has freed as much, and the memory swings by less than is felt"
    )
    assert not YOUNG.is_ordinary_gc_backlog(0.0, YOUNG.young_bytes / 3), (
        "what was freed before is another kind of memory"
    )
    assert not YOUNG.is_ordinary_gc_backlog(140 * MIB, 140 * MIB)
    assert YOUNG._replace(bytes=5 * MIB, young_bytes=5 * MIB, forecast_young_bytes=500 * MIB).is_ordinary_gc_backlog(
        0.0
    ), "so little does not tell"


def test_at_the_end_what_would_have_come_counts_for_nothing() -> None:
    """It is reckoned from the collector's count, which falls with all that is freed."""
    monitor = Monitor(Roots())
    monitor.observe(grown_reading(1, 0, limit=None, rates={}))
    monitor.close()
    assert not YOUNG.is_ordinary_gc_backlog(0.0)
    assert monitor._is_ordinary_backlog(YOUNG, None)
    assert not monitor._is_ordinary_backlog(YOUNG._replace(bytes=70 * MIB, young_bytes=70 * MIB), None), (
        "it is felt already"
    )
    assert not monitor._is_ordinary_backlog(YOUNG._replace(young_bytes=YOUNG.bytes // 3), None), "most of it is old"


def test_little_young_garbage_is_not_traced() -> None:
    little = YOUNG._replace(bytes=10 * MIB, young_bytes=10 * MIB)
    assert not little.may_be_reported
    assert little._replace(young_bytes=0).may_be_reported, "the collector is off"
    case = Investigation({}, suspected_garbage=little)
    assert not wants_garbage(case)
    assert wants_garbage(replace(case, suspected_garbage=YOUNG))


class Traced:
    """A tracer that knows of so many bytes."""

    live_bytes = 0


def count_waits(case: Investigation, each_reading: int) -> int:
    """Readings for which tracing goes on where so many bytes come with each."""
    tracer, case.garbage_line_readings = Traced(), 0
    for reading in range(1, 1000):
        tracer.live_bytes += each_reading
        if not update_garbage_wait_(case, cast("Tracer", tracer)):
            return reading
    raise AssertionError("for ever")


def test_tracing_goes_on_until_a_piece_is_garbage_and_not_for_ever() -> None:
    case = Investigation({}, suspected_garbage=OLD, bytes_per_garbage_object=OLD.bytes_per_object, trace_tries=1)
    assert count_waits(case, 50 * MIB) == CASE.minimum_garbage_readings
    assert count_waits(case, MIB) == 4, "two pieces of 2 MiB: the program holds the last one"
    assert count_waits(replace(case, trace_tries=2), MIB) == CASE.maximum_idle_traced_readings
    assert count_waits(case, 0) == CASE.maximum_idle_traced_readings
    assert count_waits(replace(case, suspected_garbage=None), 0) == 1


def test_what_was_made_since_the_trace_began_is_counted() -> None:
    tracer = Tracer()
    tracer.start(tensors=False)
    kept = np.zeros(1_000_000)
    assert kept.nbytes <= tracer.live_bytes < kept.nbytes + MIB
    del kept
    assert tracer.live_bytes < MIB
    tracer.stop()


class Cycle:
    def __init__(self) -> None:
        self.itself = self
        self.prices = np.ones((1024, 128))


def reading_of(step: int) -> Reading:
    """A round that leaves a cycle of a MiB behind."""
    Cycle()
    return grown_reading(step, step, limit=None, rates={})


def states(monitor: Monitor, rounds: int) -> Iterator[tuple[CaseState, list[Finding]]]:
    """After each round, where the monitor stands and what it said; a search is waited for."""
    for step in range(1, rounds + 1):
        news = monitor.observe(reading_of(step))
        yield monitor.state, news
        if (search := monitor._case.garbage_search) is not None:
            assert search.is_done(60)


@pytest.mark.usefixtures("_no_collection")
def test_allocations_are_traced_as_soon_as_garbage_is_suspected() -> None:
    lines: dict[str, AllocationSite] = {}
    monitor = Monitor(Roots(), lines=lines)
    walked: list[tuple[CaseState, Any]] = []
    for state, news in states(monitor, 30):
        walked.append((state, bool(news)))
        if news:
            assert news[0].owner == GARBAGE_OWNER
            assert news[0].made_at == lines[GARBAGE_OWNER]
            break
        if GARBAGE_OWNER in lines:
            assert lines[GARBAGE_OWNER].function == "Cycle.__init__"
    monitor.close()
    told = [news for _, news in walked]
    traced = [state for state, _ in walked].index(CaseState.TRACING)
    assert True in told
    assert traced < told.index(True)
    assert len({state for state, _ in walked[traced:]}) > 1
    first_search = [state for state, _ in walked].index(CaseState.SEARCHING)
    assert all(state is CaseState.SEARCHING for state, _ in walked[first_search:traced]), "by the first search"


@pytest.mark.usefixtures("_no_collection")
def test_the_line_is_told_of_a_program_that_ends_while_it_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = (
        GarbageSearch.is_done
    )  # on a busy machine, a fork of all tests takes longer than is waited at a program's end
    monkeypatch.setattr(GarbageSearch, "is_done", lambda search, seconds=0.0: ended(search, 60 if seconds else 0.0))
    monitor = Monitor(Roots())
    for state, _ in states(monitor, 30):
        if state is CaseState.TRACING:
            break
    monitor.observe(reading_of(31))
    assert monitor.state is CaseState.TRACING
    monitor.finish_pending()
    (found,) = monitor.explain_open_bytes_at_end(8 * MIB, 10)
    monitor.close()
    assert found.made_at is not None
    assert found.made_at.function == "Cycle.__init__"


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize(("freed", "told"), [(20 * MIB, False), (2 * MIB, True), (None, True)])
def test_garbage_at_the_end_waits_where_full_collections_free_as_much(
    monkeypatch: pytest.MonkeyPatch, freed: int | None, *, told: bool
) -> None:
    ended = (
        GarbageSearch.is_done
    )  # on a busy machine, a fork of all tests takes longer than is waited at a program's end
    monkeypatch.setattr(GarbageSearch, "is_done", lambda search, seconds=0.0: ended(search, 60 if seconds else 0.0))
    monitor = Monitor(Roots())
    for step in range(1, 12):
        monitor.observe(reading_of(step))
    teeth = None if freed is None else GcSawtooth(freed, freed, 100 * MIB, bytes_since=9 * MIB, seconds=20.0)
    found = monitor.explain_open_bytes_at_end(8 * MIB, 10, teeth)
    monitor.close()
    assert [each.owner for each in found] == ([GARBAGE_OWNER] if told else [])
    assert (monitor.ordinary_garbage is None) is told


@pytest.mark.usefixtures("_no_collection")
def test_garbage_is_proven_without_a_line_where_no_trace_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Monitor, "_can_trace", lambda *_: False)
    monitor = Monitor(Roots())
    told = [found for _, news in states(monitor, 30) for found in news]
    monitor.close()
    assert [(found.owner, found.made_at) for found in told] == [(GARBAGE_OWNER, None)]


def test_memory_that_was_freed_at_once_fell() -> None:
    record = record_of(100, 120, 90, 95)
    assert record.has_fallen(1, 30 * MIB)
    assert not record.has_fallen(1, 31 * MIB)
    assert not record.has_fallen(3, MIB), "before"
    assert record.largest_fall == 30 * MIB
    assert record_of(100).largest_fall == 0.0
