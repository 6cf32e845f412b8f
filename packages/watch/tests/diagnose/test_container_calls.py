"""What takes items out of a container of the user's is named as its author types it."""

import mmap
import multiprocessing
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flatwater_watch.diagnose.code_names import _PUBLIC_HOPS, NO_NAME, CodeName, code_name, container_name
from flatwater_watch.diagnose.container_calls import (
    cache_advice,
    leak_advice,
    queue_advice,
    removing_call,
    resource_advice,
)
from flatwater_watch.diagnose.finding_text import split_advice
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots, user_modules

NAMES = {
    "train.HISTORY": CodeName("train.HISTORY"),
    "main() in train.py: agent.rows['a']": CodeName("agent.rows['a']"),
    "train.AGENTS[*].history": CodeName("item.history", "train.AGENTS"),
    "train.GROUPS[*]": CodeName("item", "train.GROUPS"),
    "train.callback.<closure of on_step>.rows": CodeName("rows"),
    "train.STATE.<dict>[*]['tiles']": CodeName("train.STATE.tiles"),
    "train.answer.<attribute of answer>.kept": CodeName("train.answer.kept"),
    "minimize() in pymoo: algorithm.history": CodeName(""),
    "train.TASK.<class>.made": CodeName(""),
    "atexit's callbacks": CodeName(""),
    "context variable trace": CodeName(""),
    "train.SEEN[key].rows": CodeName(""),
}
CALLS: list[tuple[str, Any, str]] = [
    ("list", [], "del train.KEPT[:-100]"),
    ("dict", OrderedDict(), "train.KEPT.pop(key)"),
    ("set", set(), "train.KEPT.discard(entry)"),
    ("deque", deque(), "train.KEPT = collections.deque(maxlen=100)"),
    ("text", bytearray(), "train.KEPT = train.KEPT[:0]"),
    ("array", np.zeros(1), "train.KEPT = train.KEPT[-100:].copy()"),
    ("closure", print, ""),
]


@pytest.mark.parametrize("path", NAMES)
def test_the_name_of_an_object_is_what_the_program_calls_it(path: str) -> None:
    assert code_name(path) == NAMES[path]


@pytest.mark.parametrize(("kind", "container", "call"), CALLS)
def test_the_instruction_has_the_operation_of_the_container_s_type_and_its_name(
    kind: str, container: Any, call: str
) -> None:
    assert removing_call(kind, container, CodeName("train.KEPT")) == call
    assert removing_call(kind, container, NO_NAME) == ""
    advice = leak_advice(kind, container, CodeName("train.KEPT"))
    assert advice is None if not call else f"`{call}`" in split_advice(advice or "")[0]


@pytest.mark.parametrize(
    ("resource", "item", "calls"),
    [
        ("child process", multiprocessing.Process(), ("`Process.terminate()` and `Process.join()`",)),
        ("thread", threading.Timer(1, print), ("`Timer.cancel()` and `Timer.join()`",)),
        ("thread", ThreadPoolExecutor(), ("`ThreadPoolExecutor.shutdown()`",)),
        ("mapped file", mmap.mmap(-1, 1), ("`mmap.close()`",)),
        ("mapped file", np.zeros(1), ("`part.copy()`",)),
    ],
)
def test_what_items_keep_open_is_ended_by_a_call_of_theirs(resource: str, item: Any, calls: tuple[str, ...]) -> None:
    advice = resource_advice(resource, item, "dict", {}, CodeName("train.KEPT"))
    assert all(call in split_advice(advice)[0] for call in (*calls, "`train.KEPT.pop(key)`"))


def test_an_object_of_the_user_s_that_a_library_holds_has_its_name_in_its_methods(
    load: Callable[[str], ModuleType],
) -> None:
    program = load("""
        class Callback:
            def __init__(self):
                self.seen = []
    """)
    held = ("train() in library: callback", program.Callback()), ("train() in library: plain", {"seen": []})
    census = take_census(Roots(named=held))
    assert container_name(census, "train() in library: callback.seen", user_modules(Roots())) == CodeName("self.seen")
    assert container_name(census, "train() in library: plain['seen']", user_modules(Roots())) == NO_NAME


def test_what_each_item_holds_is_named_by_the_item() -> None:
    advice = leak_advice("list", [], code_name("train.AGENTS[*].history"))
    assert advice == (
        "Keep the newest items alone: `del item.history[:-100]` after the line that adds, for each `item` of "
        "`train.AGENTS`."
    )


def test_queues_and_caches_are_bounded_where_they_are_made() -> None:
    assert queue_advice(queue.Queue()).startswith("Bound the queue where it is made, `queue.Queue(maxsize=100)`, ")
    assert queue_advice(queue.SimpleQueue()).startswith("Bound the queue where it is made, `queue.Queue(maxsize=100)`")
    assert queue_advice(object()).startswith("Bound the queue where it is made, `maxsize=100`, ")
    cached = cache(len)
    assert "`@functools.lru_cache(maxsize=100)`" in cache_advice(cached, CodeName("train.length"))
    assert "`train.length.cache_clear()`" in cache_advice(cached, CodeName("train.length"))
    assert "`len.cache_clear()`" in cache_advice(cached, NO_NAME)


@pytest.mark.parametrize("path", ["x" * 80 + "<closure of close>", ".rows" * 40 + "._private"])
def test_a_long_path_with_a_private_part_is_read_at_once(path: str) -> None:
    """A pattern that can match a name in many ways tries them all, which takes longer than any program runs."""
    assert _PUBLIC_HOPS.fullmatch(path) is None
    assert _PUBLIC_HOPS.fullmatch(path.replace("<closure of close>", "").replace("._private", "[*].rows"))
