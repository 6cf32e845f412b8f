"""What libraries keep in globals: measured cheaply, and looked into where it became longer."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from flatwater_watch.heap.libraries import MAXIMUM_OPENED, global_lengths, grown_globals
from flatwater_watch.heap.roots import Roots

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


@pytest.mark.parametrize("most", [0, 10**9])
def test_what_became_longer_is_told_by_path(library: ModuleType, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of globals and their attributes, however many libraries are loaded."""
    monkeypatch.setattr("flatwater_watch.heap.libraries.ALL", most)
    before = global_lengths(Roots())
    assert {path: before[path] for path in before if path.startswith("somelib.")} == {
        "somelib.SEEN": 0, "somelib.RECENT": 0, "somelib.REGISTRY": 0, "somelib.area": 0,
    }  # fmt: skip
    assert not any(path.startswith("somelib.") for path in grown_globals(Roots(), before))
    library.SEEN["one"] = 1
    library.RECENT.append(1)
    library.REGISTRY.entries.append(1)
    library.area(3)
    found = grown_globals(Roots(), before)
    assert {path for path in found if path.startswith("somelib.")} == {path for path in before if "somelib." in path}
    assert found["somelib.SEEN"] is library.SEEN


@pytest.mark.parametrize("large", [False, True])
def test_what_lies_deep_in_a_registry_counts_for_its_global(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    """Such as objects in the bucket of a region of an account; but where very many libraries are loaded."""
    monkeypatch.setattr("flatwater_watch.heap.libraries.ALL", 0 if large else 10**9)
    region = library.Registry()
    region.entries.append({"bucket": library.Registry()})
    library.SEEN["account"] = {"region": region}
    before = global_lengths(Roots())
    region.entries[0]["bucket"].entries.append(1)
    found = [path for path in grown_globals(Roots(), before) if path.startswith("somelib.")]
    assert found == ([] if large else ["somelib.SEEN"])


def test_a_large_table_counts_by_itself(library: ModuleType) -> None:
    """Its items are alike: to look into all of them takes as long as a census."""
    library.SEEN.update({n: [n] for n in range(MAXIMUM_OPENED + 1)})
    before = global_lengths(Roots())
    library.SEEN[0].append(1)
    assert "somelib.SEEN" not in grown_globals(Roots(), before)
    library.SEEN[-1] = []
    assert "somelib.SEEN" in grown_globals(Roots(), before)


def test_the_programs_own_globals_are_none_of_a_library() -> None:
    """They are roots of every census already; flatwater's own are no finding."""
    assert not any(path.startswith((__name__, "flatwater.")) for path in global_lengths(Roots()))


GROWS = {
    "evaluate() in somelib: all_predictions": "somelib.evaluate(lambda n: np.ones(60_000), 200, pause)",
    "somelib.SEEN": "for n in range(200):\n    somelib.remember(n, lambda n: np.ones(60_000))\n    pause()",
}


@pytest.mark.slow
@pytest.mark.parametrize("owner", list(GROWS))
def test_a_library_that_keeps_is_the_owner(owner: str, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "somelib.py").write_text(LIBRARY)
    program = tmp_path / "program.py"
    beginning = f"import sys, time; sys.path.insert(0, {str(folder)!r})\nimport numpy as np, somelib\n"
    program.write_text(f"{beginning}pause = lambda: time.sleep(0.04)\n{GROWS[owner]}\n")
    told = tmp_path / "told.json"
    watch = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
    subprocess.run(
        [sys.executable, "-c", watch, "run", "--json", str(told), "--", sys.executable, str(program)],
        capture_output=True, check=True, cwd=tmp_path, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    first, *_ = json.loads(told.read_text())["findings"]
    assert (first["verdict"], first["owner"]) == ("leak", owner)
    assert Path(first["made_at"]["file"]).name == "program.py"
