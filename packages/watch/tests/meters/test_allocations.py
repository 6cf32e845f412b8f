"""Where an object was allocated: also what Python 3.11 has no line for, and what waited on a free list."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from flatwater_watch.meters.allocations import AllocationTrace, allocation_frames


class Plain:
    pass


class Slotted:
    __slots__ = ("value",)


class Table(dict[str, int]):
    pass


class Row(list[int]):
    pass


class OddError(Exception):
    pass


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start(4)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize(
    "make",
    [
        Plain,
        Slotted,
        Table,
        Row,
        OddError,
        lambda: list(range(1000)),
        lambda: {str(n): n for n in range(1000)},
        lambda: bytes(100_000),
    ],
)
def test_the_line_that_allocated_an_object_is_known(make: Callable[[], object]) -> None:
    wasted = [{}, []]  # two free lists have something to give
    wasted.clear()
    made = make()
    line = sys._getframe().f_lineno - 1
    assert (__file__, line) in allocation_frames(made)


@pytest.mark.usefixtures("tracing")
def test_lines_go_from_the_innermost_outwards() -> None:
    def inner() -> Plain:
        return Plain()

    innermost, outer = allocation_frames(inner())[:2]
    assert innermost[1] < outer[1]


def test_what_is_older_than_the_tracing_has_no_line() -> None:
    kept = [Plain(), Table(), list(range(100))]
    tracemalloc.start(4)
    try:
        assert [allocation_frames(one) for one in kept] == [(), (), ()]
    finally:
        tracemalloc.stop()


@pytest.fixture
def trace() -> Iterator[AllocationTrace]:
    trace = AllocationTrace()
    yield trace
    trace.stop()


def test_a_trace_that_pauses_forgets_nothing_and_learns_nothing(trace: AllocationTrace) -> None:
    trace.start(4)
    before = Slotted()
    trace.pause()
    meanwhile = Slotted()
    trace.resume()
    after = Slotted()
    lines = [allocation_frames(made)[:1] for made in (before, meanwhile, after)]
    first = test_a_trace_that_pauses_forgets_nothing_and_learns_nothing.__code__.co_firstlineno
    assert lines == [((__file__, first + 2),), (), ((__file__, first + 6),)]


def test_what_is_freed_in_a_pause_leaves_no_line_for_what_takes_its_place(trace: AllocationTrace) -> None:
    trace.start(4)
    made = [Slotted() for _ in range(2000)]
    trace.pause()
    made.clear()
    made += [Slotted() for _ in range(2000)]
    lines = [allocation_frames(item) for item in made]
    trace.resume()
    assert not any(lines)


def test_what_grows_in_a_pause_has_the_line_at_which_it_grew(trace: AllocationTrace) -> None:
    trace.start(4)
    rows = [object() for _ in range(10)]
    trace.pause()
    rows += [None] * 1000
    line = sys._getframe().f_lineno - 1
    trace.resume()
    assert allocation_frames(rows)[0] == (__file__, line)


def test_a_trace_that_begins_in_a_pause_waits_for_its_end(trace: AllocationTrace) -> None:
    trace.pause()
    trace.start(4)
    meanwhile = Slotted()
    trace.resume()
    after = Slotted()
    assert [bool(allocation_frames(made)) for made in (meanwhile, after)] == [False, True]


def test_a_pause_does_not_begin_again_a_trace_that_the_program_has_ended(trace: AllocationTrace) -> None:
    trace.start(4)
    trace.pause()
    tracemalloc.stop()
    trace.resume()
    assert allocation_frames(Slotted()) == ()
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize("pauses", [True, False])
def test_new_objects_cost_the_trace_nothing_while_it_pauses(trace: AllocationTrace, *, pauses: bool) -> None:
    """What makes a traced program slow is the frames of each new block, so that none may be recorded."""
    trace.start(16)
    if pauses:
        trace.pause()
    before, _ = tracemalloc.get_traced_memory()
    made = [str(n) for n in range(10_000, 13_000)]
    traced = tracemalloc.get_traced_memory()[0] - before
    trace.resume()
    table = sys.getsizeof(made)  # tables of lists that grow are traced in a pause too
    assert (traced <= 2 * table) is pauses
