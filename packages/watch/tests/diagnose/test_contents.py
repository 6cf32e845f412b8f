"""The newest items of containers: without reading the others, and while other threads put and take."""

import io
import pickle
import queue
import subprocess
import sys
import threading
import tracemalloc
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from flatwater_watch.diagnose.contents import MAXIMUM_LEAVES, describe_contents
from flatwater_watch.diagnose.item_growth import added_leaves, container_lengths
from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.heap.census import Holding, take_census
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import Walk
from flatwater_watch.meters.mappings import FamilyMemory

MANY = 40_000


@pytest.mark.parametrize(
    ("make", "kind", "put"),
    [
        (queue.Queue, "queue", queue.Queue.put),
        (queue.LifoQueue, "queue", queue.Queue.put),
        (queue.SimpleQueue, "queue", queue.SimpleQueue.put),
        (deque, "deque", deque.append),
        (dict, "dict", lambda held, text: held.setdefault(text, text)),
        (OrderedDict, "dict", lambda held, text: held.setdefault(text, text)),
        (lambda: cache(lambda text: [text]), "cache", lambda kept, text: kept(text)),
    ],
)
def test_the_newest_are_taken_without_a_copy_of_all(
    make: Callable[[], Any], kind: str, put: Callable[[Any, str], object]
) -> None:
    """Each look while allocations are traced would take as long as all that was ever put."""
    container = make()
    for n in range(MANY):
        put(container, f"item {n}")
    tracemalloc.start(1)
    newest = newest_items(container, kind, 6)
    length = container_lengths([container])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [each[0] if kind == "cache" else each for each in newest] == [f"item {n}" for n in range(MANY - 6, MANY)]
    assert length == [MANY]
    assert peak < MANY * (9 if make is queue.SimpleQueue else 1)  # of that one a list of pointers is made


class Named(queue.SimpleQueue):  # type: ignore[type-arg]  # of anything
    """A queue with an attribute."""

    def __init__(self) -> None:
        self.name = ["not an item"]


@pytest.mark.parametrize("kind", [queue.SimpleQueue, Named])
def test_what_waits_in_a_simple_queue_is_what_was_put_and_not_taken(kind: type) -> None:
    """Classes too, which the collector is asked for nowhere else; and nothing else that the queue refers to."""
    waiting = kind()
    for item in ("taken", "first", int, None, kind, [2]):
        waiting.put(item)
    waiting.get()
    assert newest_items(waiting, "queue", 9) == ["first", int, None, kind, [2]]
    assert container_lengths([waiting]) == [5]
    while not waiting.empty():
        waiting.get()
    assert newest_items(waiting, "queue", 9) == []
    assert container_lengths([waiting]) == [0]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_of_a_set_those_are_the_newest_that_were_made_under_the_trace(kind: type) -> None:
    held = {f"old {n}" for n in range(3 * MANY)}
    tracemalloc.start(1)
    held |= {f"new {n}" for n in range(MANY)}
    newest = newest_items(kind(held), "set", 6)
    tracemalloc.stop()
    assert [text[:3] for text in newest] == ["new"] * 6
    assert len(newest_items(kind(held), "set", 6)) == 6


def test_one_that_is_shorter_than_asked_gives_all() -> None:
    assert newest_items(deque("ab"), "deque", 6) == ["a", "b"]
    assert newest_items({"a"}, "set", 6) == ["a"]
    assert newest_items(queue.Queue(), "queue", 6) == []


def churning_thread(
    put: Callable[[int], object], take: Callable[[], object], over: threading.Event, most: int = 300
) -> threading.Thread:
    """A thread that puts so many items and takes them again: more than are looked at, and fewer."""

    def run() -> None:
        while not over.is_set():
            for n in range(most):
                put(n)
            for _ in range(most):
                take()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def churning() -> Iterator[dict[str, tuple[Any, str]]]:
    """Containers that threads fill and empty, which take turns after a few bytecodes."""
    waiting, names, few = queue.Queue[list[int]](), dict[str, list[int]](), dict[str, list[int]]()
    kept, row, rows = deque[list[int]](), set[tuple[int]](), OrderedDict[int, list[int]]()
    over = threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [
        churning_thread(lambda n: waiting.put([n]), waiting.get, over),
        churning_thread(lambda n: kept.append([n]), kept.popleft, over),
        churning_thread(lambda n: names.__setitem__(f"name {n}", [n]), names.popitem, over),
        churning_thread(lambda n: few.__setitem__("abcdefgh"[n], [n]), few.popitem, over, 8),
        churning_thread(lambda n: rows.__setitem__(n, [n]), lambda: rows.popitem(last=False), over),
        churning_thread(lambda n: row.add((n,)), row.pop, over),
    ]
    yield {
        "queue": (waiting, "queue"),
        "deque": (kept, "deque"),
        "names": (names, "dict"),
        "few": (few, "dict"),
        "rows": (rows, "dict"),
        "set": (row, "set"),
    }
    over.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)


@pytest.mark.long
def test_containers_that_other_threads_change_are_read_all_the_same(churning: dict[str, tuple[Any, str]]) -> None:
    unread = dict[str, dict[str, int]]()
    for _ in range(150):
        for name, (container, kind) in churning.items():
            walk = Walk(24, lambda _: True, 3000)
            open_object(container, walk)
            if walk.unread_by_class:
                unread[name] = dict(walk.unread_by_class)
            newest_items(container, kind, 6)  # raises nothing
            container_lengths([container])
    assert unread == {}


@pytest.mark.long
def test_a_census_beside_such_threads_leaves_nothing_out(churning: dict[str, tuple[Any, str]]) -> None:
    roots = Roots(named=(("held", churning),))
    unread = [what for _ in range(3) for what in take_census(roots).unread]
    assert [what for what in unread if what.endswith(("(RuntimeError)", "(IndexError)"))] == []


def test_the_contents_of_an_object_of_c_are_the_class_with_most_of_its_bytes() -> None:
    """A pickler keeps each array with a text and four tuples, in no order: any one of them says little."""
    pickler = pickle.Pickler(io.BytesIO(), protocol=4)
    for n in range(1000):
        pickler.dump(np.full(64, float(n)))
    (length,) = container_lengths([pickler])
    holding = Holding("pickler", None, "object", length, None, 1_500_000, 1, 0, float(length))
    contents = describe_contents(holding, newest_items(pickler, "object", MAXIMUM_LEAVES))
    assert {type(leaf) for leaf in contents.leaves} == {np.ndarray}
    assert 500 < contents.count < 2000  # by a sample
    newest = added_leaves(pickler, length, holding._replace(length=length - 6000), bytes)
    assert {type(leaf) for leaf in newest} == {bytes}


def test_what_all_share_weighs_nothing() -> None:
    """A finding was of 12,555 bools of 482 threads, each of 28 bytes."""
    held = [True, None, False, "a text"] * 10
    holding = Holding("held", None, "list", len(held), None, 1000, 1, 0, float(len(held)))
    assert describe_contents(holding, held[-24:]).what == "10 × str"


def test_items_with_a_thread_each_keep_it_open_and_not_those_that_share_one() -> None:
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    own, shared = [[thread] for thread in threads], [[threads[0], number] for number in range(4)]
    resources = []
    with subprocess.Popen(["sleep", "60"]) as child:
        for held in (own, shared, [*own[:3], [child, threads[3]]]):
            holding = Holding("held", None, "list", 4, None, 100_000, 1, 0, 4.0)
            resources.append(describe_contents(holding, held).resource)
        child.kill()
    end.set()
    assert resources == ["thread", "", "thread"], "one child process among four is not of each item"


def test_items_that_share_a_few_child_processes_have_none_of_their_own() -> None:
    """The newest reports of `pytest -n 2` were of both workers: each was to be closed."""
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as other:
        newest = [[one], [other], [one, 3], [other, 4]]
        resources = [
            describe_contents(Holding("held", None, "list", length, None, 100_000, 1, 0, 4.0), newest).resource
            for length in (4, 400)
        ]
        many = Holding("held[*]", None, "list", 4, None, 100_000, 100, 0, 400.0)
        resources.append(describe_contents(many, newest).resource)
        one.kill()
        other.kill()
    assert resources == ["child process", "", ""], "those of 400 items, be they in one list or in many"


def test_the_child_processes_are_measured_once_for_the_items_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 11 to 17 ms per GB of each, and was done again for the words on an item."""
    measured: list[int] = []

    def measure() -> FamilyMemory:
        measured.append(1)
        return FamilyMemory(count=0, private=0, proportional=0)

    for module in ("contents", "newest_items"):
        monkeypatch.setattr(f"flatwater_watch.diagnose.{module}.descendant_memory", measure, raising=False)
    held = [[number] for number in range(4)]
    describe_contents(Holding("held", None, "list", 4, None, 1000, 1, 0, 4.0), held)
    assert len(measured) == 1
