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

    def _begin(self):
        self.stash, self._pages = Stash(), {}

    def convert(self):
        pass

class Silent:
    def __init__(self):
        self.seen = []

_cache = {}

def purge():
    _cache.clear()
"""
PROGRAM = """
    import patternlib

    class Site:
        def __init__(self):
            self.converter, self.pages = patternlib.Converter(), []

    SITE, SILENT = Site(), patternlib.Silent()
"""
TABLES = {
    "train.SITE.converter.stash.blocks": ("Converter.reset_all()", "Converter.close()"),
    "train.SITE.converter._pages": ("Converter.reset_all()", "Converter.removePage()"),
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
    census = take_census(Roots(libraries=(("patternlib._cache", vars(library)["_cache"]),)))
    assert {path: library_table(census, path) for path in TABLES} == {
        path: LibraryTable("patternlib", calls) for path, calls in TABLES.items()
    }
    assert library_table(census, "train.SITE.pages") is None, "the user's own"


def test_nobody_is_told_to_delete_from_a_private_table() -> None:
    for table in (LibraryTable("patternlib", ("patternlib.purge()",)), LibraryTable("patternlib", ())):
        assert "del" not in table.advice
        assert "pop" not in table.advice
    assert "patternlib.purge()" in LibraryTable("patternlib", ("patternlib.purge()",)).advice
