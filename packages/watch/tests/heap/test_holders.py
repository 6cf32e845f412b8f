"""What grows in a library is owned by a name that leads there, behind each kind of holder that Python has."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from flatwater_watch.diagnose.owners import find_owners
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.libraries import grown_holders, heap_lengths
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import strong_object

SOURCE = Path(__file__).parent / "holding" / "holdinglib.py"
FIRST, MORE = 6, 24
"""Items of each holder when the first census is taken, and before each further one."""
PLACES = {
    "list": "holdinglib.ROWS",
    "dict_of_texts": "holdinglib.TEXTS",
    "texts_of_instance": "holdinglib.NODE.texts",
    "ordered_dict": "holdinglib.ORDERED",
    "counter": "holdinglib.COUNTED",
    "deque": "holdinglib.RECENT",
    "chain_map": "holdinglib.CHAINED",
    "set": "holdinglib.EVERY",
    "nested_dict": "holdinglib.NESTED",
    "dict_subclass": "holdinglib.TABLE",
    "array": "holdinglib.NUMBERS",
    "bytearray": "holdinglib.WRITTEN",
    "memoryview": "holdinglib.VIEWS",
    "ctypes_array": "holdinglib.BUFFERS",
    "simple_queue": "holdinglib.WAITING",
    "weak_keys": "holdinglib.WEAK",
    "tree_of_instances": "holdinglib.TREE",
    "cache": "holdinglib.cached",
    "bounded_cache": "holdinglib.cached_some",
    "dispatch": ".registry",
    "slot": "holdinglib.SLOTTED.kept",
    "thread_local": "holdinglib.LOCAL",
    "base_class": "holdinglib.Base.registry",
    "descriptor": "holdinglib.Described.field",
    "property": "closure of read",
    "enum": "holdinglib.Colour.kept",
    "dataclass": "holdinglib.Settings.history",
    "metaclass": "holdinglib.Meta.members",
    "class_at_run_time": "holdinglib.Later.kept",
    "default": "default of defaulted",
    "keyword_default": "attribute of keyword_defaulted",
    "attribute": "attribute of attributed",
    "closure": "closure of close",
    "bound_method_of_c": "holdinglib.BOUND",
    "partial": "holdinglib.PARTIAL",
    "exit_stack": "contextlib.",
    "generator": "locals of generate",
    "atexit": "closure of at_exit",
    "weak_callback": "closure of gone",
    "copyreg": "closure of reduce",
    "hook_of_sys": "closure of hook",
    "path_hook": "closure of find",
    "signal": "closure of handle",
    "collector": "gc's callbacks",
    "context_variable": "context variable held_rows",
    "thread": "thread Thread",
    "task": "locals of wait_in_task",
    "pending_callback": "closure of call_later",
    "callback_of_future": "closure of on_done",
}
"""Kind of holder -> a part of the path that leads to it."""
GROUPS = 4
"""Number of tests: the names of so many containers are looked for at once."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The library, in a folder of installed packages, with rows behind all of its holders."""
    folder = tmp_path_factory.mktemp("environment") / "site-packages"
    folder.mkdir()
    shutil.copy(SOURCE, folder)
    sys.path.insert(0, str(folder))
    module = importlib.import_module("holdinglib")
    module.install()
    yield module
    module.remove()
    sys.path.remove(str(folder))
    del sys.modules["holdinglib"]


def add(library: ModuleType, kinds: list[str], count: int) -> None:
    for kind in kinds * count:
        library.add(kind, f"{next(library.numbers):02000d}")


def owner_paths(library: ModuleType, kinds: list[str]) -> set[str]:
    """Who owns what holders gained: as the finder asks, the user's roots first, and then what holds what grew."""
    add(library, kinds, FIRST)
    lengths, first = heap_lengths(), take_census(Roots()).without_objects()
    add(library, kinds, MORE)
    second = take_census(Roots())
    of_user = find_owners(first, second)
    holders = grown_holders(lengths, Roots(), set(map(id, second.live.values())))
    roots = Roots(libraries=tuple((path, strong_object(holder)) for path, holder in holders.items()))
    holders.clear()  # no variable of this test may be an owner
    first = take_census(roots).without_objects()
    add(library, kinds, MORE)
    return {owner.path for owner in (*of_user, *find_owners(first, take_census(roots)))}


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_grows_behind_a_holder_is_owned(library: ModuleType, group: int) -> None:
    kinds = [*PLACES][group::GROUPS]
    paths = owner_paths(library, kinds)
    assert [kind for kind in kinds if not any(PLACES[kind] in path for path in paths)] == [], paths


def test_there_is_a_place_for_each_kind(library: ModuleType) -> None:
    assert set(PLACES) == set(library.kinds())
