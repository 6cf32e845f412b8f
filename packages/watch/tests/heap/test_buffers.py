"""Objects of C that hold bytes of their own: how many, and the line that wrote the last of them."""

import array
import io
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.owners import Owner, find_owners
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import Walk

ROWS = 20_000


class Written(io.BytesIO):
    """A class of the program's own, with an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "report"


def closed_text() -> io.StringIO:
    out = io.StringIO("text" * ROWS)
    out.close()
    return out


def joined_text() -> io.StringIO:
    out = io.StringIO()
    out.write("text" * ROWS)
    out.getvalue()
    return out


def write(buffer: Any) -> None:
    if isinstance(buffer, io.StringIO):
        buffer.write("a line\n" * ROWS)
    elif isinstance(buffer, io.BytesIO):
        buffer.write(b"a line\n" * ROWS)
    elif isinstance(buffer, array.array):
        buffer.extend(range(ROWS))
    else:
        buffer.extend(bytes(7 * ROWS))


FIRST = write.__code__.co_firstlineno
LINES = {io.StringIO: FIRST + 2, io.BytesIO: FIRST + 4, array.array: FIRST + 6, bytearray: FIRST + 8}

BUFFERS = [io.StringIO, io.BytesIO, bytearray, lambda: array.array("d"), Written, joined_text]


@pytest.mark.parametrize("make", BUFFERS)
def test_what_is_written_to_it_counts(make: Any) -> None:
    buffer = make()
    before = open_object(buffer, Walk(24, lambda _: True, 100))
    write(buffer)
    inside = open_object(buffer, Walk(24, lambda _: True, 100))
    assert inside.size - before.size >= 6.9 * ROWS  # less what an empty one has
    assert inside.length > before.length
    assert inside.kind in {"bytes", "text"}


def test_a_closed_one_holds_nothing() -> None:
    inside = open_object(closed_text(), Walk(24, lambda _: True, 100))
    assert inside.size < 1000


@pytest.mark.parametrize("make", [io.StringIO, bytearray, Written])
def test_it_is_an_owner_that_grows(make: Any) -> None:
    held = {"out": make()}
    write(held["out"])
    before = take_census(Roots())
    for _ in range(20):
        write(held["out"])
    owners: list[Owner] = find_owners(before, take_census(Roots()))
    assert [owner.path.partition(": ")[2] for owner in owners] == ["held['out']"]
    assert owners[0].bytes_grown >= 20 * 7 * ROWS * 0.8
    kind = type(held["out"]).__name__
    assert [holder for holder in owners[0].holders if kind in holder] == [kind]
    assert owners[0].contents.what.startswith(f"1 × {kind} of ")


@pytest.mark.parametrize("make", BUFFERS[:-2])
def test_the_line_that_wrote_to_it_last_is_known(make: Any) -> None:
    buffer = make()
    write(buffer)
    tracer = Tracer()
    tracer.start()
    for _ in range(20):
        write(buffer)
    made = tracer.find_line([buffer])
    tracer.stop()
    assert not tracemalloc.is_tracing()
    assert made is not None
    assert (made.function, made.line) == ("write", LINES[type(buffer)])


def test_of_very_many_children_of_an_object_of_c_a_sample_stands_for_all(load: Callable[[str], ModuleType]) -> None:
    """A pickler remembers each object that it wrote: to open them all took most of a program's time."""
    others = take_census(Roots()).visited
    load("""
        import io, pickle
        PICKLER = pickle.Pickler(io.BytesIO())
        for n in range(20_000):
            PICKLER.dump([n] * 20)  # one by one: a list of all would be a large one in the sample, or not
    """)
    census = take_census(Roots())
    holding = census.holdings["train.PICKLER"]
    assert census.visited - others < 1000
    assert holding.length == pytest.approx(20_000, abs=9)
    assert 1 <= holding.bytes / (20_000 * (56 + 16 + 20 * 8)) < 2, "with the table, and the numbers"
