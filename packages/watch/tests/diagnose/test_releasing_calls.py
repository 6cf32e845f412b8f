"""A table of a library is not the user's to empty: its calls that let go are named."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from flatwater_watch.diagnose.releasing_calls import LibraryTable, library_table
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots

LIBRARY = """
class Stash:
    def __init__(self):
        self.blocks = []

    def close(self):
        pass

class Converter:
    closed = False

    def __init__(self):
        self.stash, self._pages = Stash(), {}

    def close(self):
        self._begin()

    def flush(self):
        pass

    def removePage(self, page):
        del self._pages[page]

    def resetNumbers(self):
        return [len(page) for page in self._pages.values()]

    def reset_all(self):
        self._begin()

    def clear_view(self):
        self.view = len(self._pages)

    def _begin(self):
        self.stash, self._pages = Stash(), {}

    def convert(self):
        pass

class Silent:
    def __init__(self):
        self.seen = []

class Saver:
    def __init__(self):
        self.threads, self.writes = {}, {}

    def delete_thread(self, thread_id, *, strict=False):
        for key in list(self.writes):
            if key[0] == thread_id:
                del self.writes[key]

    def release_threads(self):
        threads = self.threads
        for thread in list(self.writes):
            threads.pop(thread)

    def _clear(self):
        self.writes.clear()

class Register(type):
    __instances = {}

    @classmethod
    def clear_instances(cls):
        cls.__instances = {}

    @classmethod
    def disable_instances(cls):
        cls.__instances = None

class Task(metaclass=Register):
    pass

class State:
    def __init__(self):
        self.document = []

    def reset(self):
        self.document = []

    def clear_name(self):
        self.name = None

class Algorithm:
    def __init__(self):
        self.history = []

class WeakCache:
    def __init__(self):
        self.traced = []

    def cache_clear(self):
        raise ValueError

def clear_caches():
    raise ValueError

_cache, _traces, _STATE = {}, WeakCache(), State()

from os import remove

def purge():
    _cache.clear()

def current_state():
    return _STATE

def reset_output(state=None):
    current_state().reset()

def reset_names():
    current_state().clear_name()
"""
PROGRAM = """
    import patternlib

    class Site:
        def __init__(self):
            self.converter, self.pages = patternlib.Converter(), []

    def solve(solver):
        solver(seed=3, save_history=True)

    SITE, SILENT, SAVER = Site(), patternlib.Silent(), patternlib.Saver()
    SOLVER = patternlib.Algorithm()
"""
TABLES = {
    "train.SITE.converter.stash.blocks": ("Converter.reset_all()", "Converter.close()"),
    "train.SITE.converter._pages": ("Converter.removePage(page)", "Converter.reset_all()"),
    "train.SAVER.writes": ("Saver.delete_thread(thread_id)",),
    "train.SAVER.threads": ("Saver.release_threads()",),
    "patternlib.Register._Register__instances": ("Register.clear_instances()",),
    "patternlib._STATE.document": ("patternlib.reset_output()",),
    "patternlib._traces.traced": ("patternlib.clear_caches()",),
    "patternlib._cache": ("patternlib.purge()",),
    "train.SILENT.seen": (),
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An installed package, as its folder says."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "patternlib.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("patternlib")
    del sys.modules["patternlib"]


def test_the_call_that_lets_go_is_named(library: ModuleType, load: Callable[[str], ModuleType]) -> None:
    """Of what the program has a name for, the surest first."""
    load(PROGRAM)
    census = take_census(Roots(libraries=_globals_of(library)))
    assert {path: library_table(census, path) for path in TABLES} == {
        path: LibraryTable("patternlib", calls) for path, calls in TABLES.items()
    }
    assert library_table(census, "train.SOLVER.history") == LibraryTable("patternlib", (), "save_history")
    assert library_table(census, "train.SITE.pages") is None, "the user's own"


def _globals_of(library: ModuleType) -> tuple[tuple[str, object], ...]:
    """The tables that globals and a class of the library hold, with their paths."""
    instances = vars(library.Register)["_Register__instances"]
    return (
        ("patternlib._cache", library._cache),
        ("patternlib._traces", library._traces),
        ("patternlib._STATE", library._STATE),
        ("patternlib.Register._Register__instances", instances),
    )


ADVICE = {
    ("Saver.delete_thread(thread_id)", "Saver.clear()"): (
        "Call Saver.delete_thread(thread_id) for each that is done with, or Saver.clear() for all: patternlib keeps it "
        "until then."
    ),
    ("patternlib.purge()",): "Call patternlib.purge() when this is done with: patternlib keeps it until then.",
    (): (
        "patternlib keeps it, and no call of it that lets go was found: hand less to it, or drop what holds it when a "
        "job is done, and make it anew."
    ),
}


def test_the_argument_that_asks_for_a_table_is_named() -> None:
    assert LibraryTable("patternlib", (), "save_history").advice == (
        "Leave `save_history` out where its result is not needed: patternlib keeps it for that."
    )


@pytest.mark.parametrize("calls", ADVICE)
def test_the_call_stands_first_and_no_advice_is_to_delete_from_a_private_table(calls: tuple[str, ...]) -> None:
    assert LibraryTable("patternlib", calls).advice == ADVICE[calls]
