"""Where an object was allocated: also what Python 3.11 has no line for, and what waited on a free list."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from flatwater_watch.meters.allocations import allocation_frames


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
