"""Containers of libraries: counted cheaply, and told by what holds them if they became longer."""

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flatwater_watch.heap.libraries import ContainerLengths, all_referrers, grown_holders, heap_lengths
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import strong_object

OWN: list[Any] = []

LIBRARY = """
import functools
from collections import deque

SEEN = {}
RECENT = deque(maxlen=8)
FIXED = (1, 2, 3)

class Registry:
    def __init__(self):
        self.entries = []

REGISTRY = Registry()

@functools.lru_cache(maxsize=None)
def area(n):
    return n * n

def evaluate(model, count, pause):
    all_predictions = []
    for n in range(count):
        all_predictions.append(model(n))
        pause()
    return all_predictions

def remember(n, model):
    SEEN[n] = model(n)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An installed package, as its folder says."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "somelib.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("somelib")
    del sys.modules["somelib"]


def holders_of(before: ContainerLengths) -> dict[str, Any]:
    """What holds in the library what grew since then."""
    return {
        path: value for path, value in grown_holders(before, Roots()).holders.items() if path.startswith("somelib.")
    }


GROWS_FROZEN = """
import gc, sys
sys.path.insert(0, sys.argv[1])
import somelib
from flatwater_watch.heap.libraries import grown_holders, heap_lengths
from flatwater_watch.heap.roots import Roots
gc.freeze()
before = heap_lengths()
somelib.REGISTRY.entries.extend([n] for n in range(9))
print(*(path for path in grown_holders(before, Roots()).holders if path.startswith("somelib.")))
"""


def test_a_frozen_container_that_became_longer_is_told_as_well(tmp_path: Path) -> None:
    """In a process of its own: a server freezes what it has loaded, and so do the tests."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "somelib.py").write_text(LIBRARY)
    command = [sys.executable, "-c", GROWS_FROZEN, str(folder)]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)
    assert ended.stdout.split() == ["somelib.REGISTRY"]


def test_a_container_that_became_longer_is_told_by_the_global_that_holds_it(library: ModuleType) -> None:
    for n in range(6):
        library.REGISTRY.entries.append([n])
        library.area(n)
    before = heap_lengths()
    assert holders_of(before) == {}
    library.SEEN.update({n: str(n) for n in range(9)})
    library.RECENT.extend(map(str, range(8)))
    library.REGISTRY.entries.append([6])
    library.area(6)
    found = holders_of(before)
    assert set(found) == {"somelib.SEEN", "somelib.RECENT", "somelib.REGISTRY", "somelib.area"}
    assert found["somelib.SEEN"] is library.SEEN


def test_what_lies_deep_in_a_registry_is_told_by_its_global(library: ModuleType) -> None:
    """Such as objects in the bucket of a region of an account."""
    region = library.Registry()
    region.entries.append({"bucket": library.Registry()})
    library.SEEN["account"] = {"region": region}
    before = heap_lengths()
    region.entries[0]["bucket"].entries.extend([n] for n in range(9))
    assert set(holders_of(before)) == {"somelib.SEEN"}


def test_a_container_among_many_alike_is_told_by_what_holds_them_all(library: ModuleType) -> None:
    library.SEEN.update({n: [n] for n in range(1000)})
    before = heap_lengths()
    library.SEEN[0].extend([n] for n in range(9))
    assert set(holders_of(before)) == {"somelib.SEEN"}


def test_of_very_many_objects_only_long_containers_count(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatwater_watch.heap.libraries.MANY_OBJECTS", 0)
    before = heap_lengths()
    library.REGISTRY.entries.extend([n] for n in range(9))
    assert holders_of(before) == {}
    library.REGISTRY.entries.extend([n] for n in range(99))
    assert set(holders_of(before)) == {"somelib.REGISTRY"}


def test_a_function_that_holds_what_grew_lives_no_longer_for_it(library: ModuleType) -> None:
    """A function has no place that would keep it alive, as a global has."""

    class Rows(list[Any]):
        """A list that can be held weakly."""

    def listen(rows: Rows = Rows()) -> Rows:  # noqa: B008  (its default is what holds)
        return rows

    library.SEEN["listener"] = listen
    before = heap_lengths()
    listen().extend([n] for n in range(9))
    path = f"{__name__}.{test_a_function_that_holds_what_grew_lives_no_longer_for_it.__name__}.listen"
    holder = grown_holders(before, Roots()).holders[path]
    assert strong_object(holder) is listen
    library.SEEN.clear()
    del listen
    gc.collect()
    assert strong_object(holder) is None


def test_containers_that_are_no_match_for_the_growth_are_no_lead(library: ModuleType) -> None:
    """Each program has some that grow; to look into them delays what else may be found."""
    before = heap_lengths()
    library.SEEN.update({n: [n] for n in range(99)})
    library.RECENT.extend(bytearray(100_000) for _ in range(8))
    assert "somelib.SEEN" in grown_holders(before, Roots(), missing_bytes=80 << 20).holders
    assert grown_holders(before, Roots(), missing_bytes=8 << 30).holders == {}


def test_the_climb_ends_when_what_has_most_of_the_growth_has_a_name(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some containers have no holder with a name, and each pass over all objects takes as long as a census."""
    passes = []

    def count_passes(objects: list[Any], frozen: list[Any]) -> list[Any]:
        passes.append(len(objects))
        return all_referrers(objects, frozen)

    monkeypatch.setattr("flatwater_watch.heap.libraries.all_referrers", count_passes)
    before = heap_lengths()
    library.SEEN.update({n: [n] for n in range(20_000)})
    nameless: list[Any] = [[n] for n in range(9)]  # only a frame holds it
    for _ in range(12):
        nameless = [nameless]
    assert "somelib.SEEN" in grown_holders(before, Roots(), missing_bytes=1 << 20).holders
    assert len(passes) <= 3


def test_what_the_user_holds_is_no_lead(library: ModuleType) -> None:
    """A census begins at the globals of the user's modules, and knows what it has reached."""
    before = heap_lengths()
    OWN.extend([n] for n in range(9))
    library.SEEN.update({n: [n] for n in range(9)})
    assert not [path for path in grown_holders(before, Roots()).holders if path.endswith(".OWN")]
    assert grown_holders(before, Roots(), {id(library.SEEN)}).holders.keys().isdisjoint({"somelib.SEEN"})
    OWN.clear()


REMEMBERS = "for n in range(200):\n    somelib.remember(n, lambda n: np.ones(60_000))\n    pause()"
GROWS = {
    "somelib.evaluate(lambda n: np.ones(60_000), 200, pause)": "evaluate() in somelib: all_predictions",
    REMEMBERS: "somelib.SEEN",
    f"import gc\nsomelib.remember(-1, str)\ngc.freeze()\n{REMEMBERS}": "somelib.SEEN",
}


@pytest.mark.slow
@pytest.mark.parametrize(("code", "owner"), GROWS.items())
def test_a_library_that_keeps_is_the_owner(code: str, owner: str, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "somelib.py").write_text(LIBRARY)
    program = tmp_path / "program.py"
    beginning = f"import sys, time; sys.path.insert(0, {str(folder)!r})\nimport numpy as np, somelib\n"
    program.write_text(f"{beginning}pause = lambda: time.sleep(0.04)\n{code}\n")
    told = tmp_path / "watch.json"
    watch = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
    subprocess.run(
        [sys.executable, "-c", watch, "run", "--json", str(told), "--", sys.executable, str(program)],
        capture_output=True, check=True, cwd=tmp_path, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    first, *_ = json.loads(told.read_text())["findings"]
    assert (first["verdict"], first["owner"]) == ("leak", owner)
    assert Path(first["made_at"]["file"]).name == "program.py"


COUNTED = """
import gc, sys
from flatwater_watch.heap.libraries import OBJECT_SECONDS, HeapPrice

lists = [[[n]] for n in range(100_000)]
needed = OBJECT_SECONDS * len(gc.get_objects())
listed = []
sys.addaudithook(lambda event, _: listed.append(event) if event == "gc.get_objects" else None)
price = HeapPrice()
for share in (0.0, 0.8, 0.8, 1.5):
    print(price.update_and_check_(share * needed), len(listed))
lists += [[[n]] for n in range(100_000)]
print(price.update_and_check_(1.5 * needed), len(listed))
"""


def test_all_objects_are_counted_only_when_the_last_count_is_affordable() -> None:
    """A list of 600,000 lists takes 30 ms, a tenth of what a watch may take at the start of a program."""
    said = subprocess.run([sys.executable, "-c", COUNTED], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == ["False 0", "False 1", "False 1", "True 2", "False 3"], "the heap has doubled since"
