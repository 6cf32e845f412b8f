"""A container of a library is one line of a table, which a program may write itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.errors import ConfigError
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.containers import CONTAINERS, ContainerSpec, register_container
from flatwater_watch.heap.view import Walk

LIBRARY = """
class Ring:
    __slots__ = ("_kept", "bound", "name")

    def __init__(self, bound):
        self._kept, self.bound, self.name = [], bound, "ring"

    def __len__(self):
        raise OSError("nothing of the program is called")

    def add(self, item):
        self._kept = [*self._kept, item]


class Narrow(Ring):
    pass
"""
PROGRAM = """
import json
import sys
import time

sys.path.append({folder!r})
import flatwater_watch
import ringlib
{line}
KEPT = ringlib.Narrow(400)
with flatwater_watch.watch(report=False) as w:
    for _ in range(100):
        KEPT.add(bytearray(1 << 19))
        time.sleep(0.01)
        w.step()
found = w.findings()[0]
print(json.dumps([found.owner, found.verdict, found.plateau_bytes]))
"""


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """One of the library's containers, with three items."""
    (tmp_path / "ringlib.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ringlib", raising=False)
    import ringlib  # type: ignore[import-not-found]

    made = ringlib.Narrow(5)
    for item in "abc":
        made.add([item])
    return made


def walk() -> Walk:
    return Walk(24, lambda _: True, 100)


def test_a_line_of_the_table_makes_it_a_container(ring: object, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_object(ring, walk())
    assert (before.kind, before.capacity) == ("object", None)
    monkeypatch.setitem(CONTAINERS, ("ringlib", "Ring"), ContainerSpec("_kept", "bound"))
    inside = open_object(ring, walk())
    assert (inside.kind, inside.length, inside.capacity) == ("list", 3, 5)
    assert [value for name, value in inside.parts if name == "[*]"] == [["a"], ["b"], ["c"]]
    assert (".name", "ring") in inside.parts
    assert newest_items(ring, "list", 2) == [["b"], ["c"]]


def test_a_class_that_keeps_its_items_elsewhere_is_read_as_an_object(
    ring: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONTAINERS, ("ringlib", "Ring"), ContainerSpec("rows"))
    assert open_object(ring, walk()).kind == "object"


def test_a_name_without_a_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"where = 'ringlib': .*package\.module:Class"):
        register_container("ringlib", items="_kept")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('flatwater_watch.register_container("ringlib:Ring", items="_kept", bound="bound")', ["KEPT", "filling", 400]),
        ("", ["KEPT._kept", "leak", None]),
    ],
    ids=["registered", "not registered"],
)
def test_the_watch_names_the_container_and_where_it_ends(line: str, found: list[object], tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ringlib.py").write_text(LIBRARY)
    (tmp_path / "train.py").write_text(PROGRAM.format(folder=str(tmp_path / "lib"), line=line))
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == 0, ended.stderr
    owner, verdict, plateau = json.loads(ended.stdout)
    assert (owner.partition(".")[2], verdict) == tuple(found[:2])
    assert plateau is None if found[2] is None else plateau == pytest.approx(400 << 19, rel=0.02)
