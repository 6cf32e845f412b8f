"""Cyclic garbage is found and sized without a collection, and without touching what lives."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from flatwater_watch.diagnose.garbage import Garbage, GarbageSearch, unreachable_objects
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.heap.roots import Roots

pytestmark = pytest.mark.usefixtures("_bears_forks")

MIB = 1 << 20


class Env:
    def __init__(self, elements: int) -> None:
        self.itself = self
        self.prices = np.zeros(elements)


@pytest.fixture(scope="module", autouse=True)
def _others_frozen() -> None:
    """What other tests have left alive is looked at in none of these: a look at a million objects takes seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """Nothing waits from tests before: what a finalizer leaves, only the next collection finds."""
    while gc.collect():
        pass
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def find_garbage(tracer: Tracer | None = None) -> Garbage | None:
    search = GarbageSearch(Roots(), tracer)
    assert search.is_done(60)
    return search.garbage()


def envs(objects: list[Any]) -> int:
    return sum(type(obj) is Env for obj in objects)


def test_what_nobody_reaches_is_unreachable_and_what_somebody_reaches_is_not() -> None:
    kept = Env(1)
    Env(1)
    Env(1)
    assert envs(unreachable_objects()) == 2
    assert kept.itself is kept


@pytest.fixture
def _frozen() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_frozen")
def test_garbage_is_found_where_no_object_is_old() -> None:
    """As in a program that never collects, or has frozen all that there was."""
    Env(1)
    Env(1)
    assert envs(unreachable_objects()) == 2


FROZEN = """
import gc
from flatwater_watch.diagnose.evidence import garbage_evidence
from flatwater_watch.diagnose.garbage import GarbageSearch
from flatwater_watch.heap.roots import Roots
from flatwater_watch.series.slope import Slope

class Env:
    def __init__(self):
        self.itself = self

gc.disable()
for _ in range(3):
    Env()
gc.freeze()
search, blind = GarbageSearch(Roots(), unfreezes=True), GarbageSearch(Roots())
assert search.is_done(60) and blind.is_done(60)
found, hidden = search.garbage(), blind.garbage()
assert hidden is None or "Env" not in hidden.what
assert found.is_frozen and found.is_suspect and "3 × Env" in found.what
waiting = found._replace(collector_is_on=True)  # so few bytes, which a collection would free
assert waiting._replace(is_frozen=False).is_ordinary_gc_backlog(0.0)
assert not waiting.is_ordinary_gc_backlog(0.0)
assert "gc.freeze" in garbage_evidence(found, 1.0, Slope(1.0, 1.0, 1.0), 1.0).advice
"""


def test_frozen_garbage_is_found_and_never_waits_for_a_collection() -> None:
    """In a process of its own: to unfreeze the objects of all tests would take seconds of each search."""
    done = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_numbers_and_texts_count_that_the_garbage_alone_holds() -> None:
    shared = [float(n) for n in range(20_000)]
    for _ in range(3):
        env = Env(1)
        env.__dict__["shared"], env.__dict__["own"] = shared[:], [float(n) for n in range(10_000)]
    env = None
    found = find_garbage()
    assert found is not None
    pointers = 3 * 8 * (20_000 + 10_000)
    assert pointers + 3 * 24 * 10_000 <= found.bytes < pointers + 3 * 24 * 20_000


def test_a_collection_frees_what_was_found() -> None:
    for _ in range(3):
        Env(1)
    assert envs(unreachable_objects()) == 3
    gc.collect()
    assert envs(unreachable_objects()) == 0


def test_the_bytes_are_those_of_the_arrays_that_only_garbage_holds() -> None:
    shared = np.zeros(1_000_000)
    for _ in range(3):
        Env(1000).__dict__["shared"] = shared
    found = find_garbage()
    assert found is not None
    assert found.bytes >= 3 * 8000
    assert found.bytes < shared.nbytes


def test_what_views_and_plain_dicts_of_the_garbage_keep_is_counted() -> None:
    """NumPy does not tell the collector of a view's base, and a dict of arrays is not tracked."""
    for _ in range(3):
        env = Env(1)
        env.__dict__["views"] = np.zeros(100_000).view()
        env.__dict__["plain"] = {"prices": np.zeros(50_000)}
    env = None
    found = find_garbage()
    assert found is not None
    assert found.bytes == pytest.approx(3 * 150_000 * 8, rel=0.05)


def test_what_young_collections_free_waits_unless_it_comes_to_much() -> None:
    for _ in range(2):
        Env(500_000)
    gc.collect(0)
    gc.collect(1)  # frees them
    Env(100_000)
    young = find_garbage()
    assert young is not None
    assert young.young_bytes == 0, "the collector is off, and frees nothing"
    gc.enable()
    try:
        young = find_garbage()
    finally:
        gc.disable()
    assert young is not None
    assert young.young_bytes == young.bytes >= 800_000
    assert young.is_ordinary_gc_backlog(0.0)
    assert young.is_ordinary_gc_backlog(500 * MIB), "what the process swung by is not that garbage's"
    assert not young._replace(young_bytes=20 * MIB, bytes=20 * MIB).is_ordinary_gc_backlog(70 * MIB)
    assert not young._replace(young_bytes=70 * MIB, bytes=70 * MIB).is_ordinary_gc_backlog(0.0)


def test_what_survived_a_young_collection_and_all_that_it_reaches_does_not_wait() -> None:
    kept = Env(600_000)
    gc.collect(0)
    kept.__dict__["late"] = Env(600_000)
    del kept
    Env(10)
    gc.enable()
    try:
        found = find_garbage()
    finally:
        gc.disable()
    assert found is not None
    assert found.bytes >= 9_600_000
    assert found.young_bytes < 10_000
    assert not found.is_ordinary_gc_backlog(0.0)
    little = found._replace(bytes=MIB)
    assert little.is_ordinary_gc_backlog(0.0), "a few megabytes stay at that"
    assert not little._replace(collector_is_on=False).is_ordinary_gc_backlog(0.0)


def test_large_arrays_are_most_of_it() -> None:
    for _ in range(5):
        Env(200_000)
    found = find_garbage()
    assert found is not None
    assert found.bytes == pytest.approx(5 * 200_000 * 8, rel=0.05)


def test_of_equal_objects_the_newest_are_asked_for_their_line() -> None:
    """The older ones were made before allocations were traced."""
    for _ in range(5):
        Env(200_000)
    tracer = Tracer()
    tracer.start(tensors=False)
    Env(200_000)
    found = find_garbage(tracer)
    tracer.stop()
    assert found is not None
    assert found.made_at is not None
    assert found.made_at.function == "Env.__init__"


def test_nothing_is_finalized_by_looking() -> None:
    env = Env(1)
    alive = weakref.ref(env)
    del env
    assert find_garbage() is not None
    assert alive() is not None


def test_the_search_goes_on_without_its_program_and_tells_what_was_there_when_it_began() -> None:
    for _ in range(5):
        Env(200_000)
    search = GarbageSearch(Roots())
    gc.collect()
    assert search.is_done(60)
    found = search.garbage()
    assert found is not None
    assert found.bytes == pytest.approx(5 * 200_000 * 8, rel=0.05)


def test_a_search_that_is_stopped_has_found_nothing() -> None:
    Env(1)
    search = GarbageSearch(Roots())
    search.stop()
    assert search.is_done()
    assert search.garbage() is None


@pytest.mark.slow  # half a minute
def test_a_long_chain_is_followed_to_its_end() -> None:
    head: list[Any] = []
    for _ in range(100_000):
        head = [head]
    env = Env(1)
    last = head
    while last[0]:
        last = last[0]
    last[0].append(env)
    del env, last
    assert envs(unreachable_objects()) == 0
    head.append(head)
    del head
    assert envs(unreachable_objects()) == 1


class Observer:
    def __init__(self, market: "Market") -> None:
        self.market = market
        self.screen = np.zeros(10_000)


class Market:
    def __init__(self) -> None:
        self.watched_by = [Observer(self)]


def test_a_cycle_is_named_by_its_way() -> None:
    for _ in range(3):
        assert len(Market().watched_by) == 1
    found = find_garbage()
    assert found is not None
    assert found.what in {"3 × Market, 3 × Observer", "3 × Observer, 3 × Market"}
    assert set(found.cycle) == {"Market.watched_by[*]", "Observer.market"}
    assert not found.collector_is_on, "the fixture has switched it off"


def test_an_error_that_its_frame_keeps_is_named_before_tuples_and_frames() -> None:
    def ask(size: int) -> None:
        raise TimeoutError(size)

    def fetch() -> bool:
        body, error = np.zeros(10_000), None
        try:
            ask(len(body))
        except TimeoutError as raised:
            error = raised
        return error is not None

    for _ in range(3):
        assert fetch()
    found = find_garbage()
    assert found is not None
    assert found.what == "3 × TimeoutError"
    assert found.cycle[0].startswith("TimeoutError.<traceback>.<locals of ")
    assert found.cycle[0].endswith("fetch>.error")


def test_of_equal_objects_the_oldest_generation_stands_first() -> None:
    kept = [Env(2)]
    gc.collect(0)
    Env(3)
    kept.clear()
    found = [obj.prices.size for obj in unreachable_objects() if type(obj) is Env]
    assert found == [2, 3]


def test_a_whole_of_a_library_is_named_and_not_its_many_parts() -> None:
    whole = type("Figure", (), {"__module__": "numpy"})
    part = type("Registry", (), {"__module__": "numpy"})
    for _ in range(3):
        figure: Any = whole()
        figure.parts = [part() for _ in range(10)]
        for each in figure.parts:
            each.figure = figure
    del figure, each
    found = find_garbage()
    assert found is not None
    assert found.what == "3 × Figure"
    assert found.cycle[0].startswith("Figure.parts")
