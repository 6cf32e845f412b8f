"""What grows in a library is owned by a name that leads there, behind each kind of holder that Python has."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOLDING = Path(__file__).parent / "holding"
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
    "mmap": "holdinglib.MAPPINGS",
    "simple_queue": "holdinglib.WAITING",
    "weak_keys": "holdinglib.WEAK",
    "tree_of_instances": "holdinglib.TREE",
    "cache": "holdinglib.make_cached",
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
    "default": "default of keep_by_default",
    "keyword_default": "attribute of keyword_defaulted",
    "attribute": "attribute of keep_by_attribute",
    "closure": "closure of close",
    "bound_method_of_c": "holdinglib.BOUND",
    "partial": "holdinglib.PARTIAL",
    "exit_stack": "contextlib.",
    "generator": "locals of generate",
    "atexit": "closure of at_exit",
    "finalizer": ".args[*]",
    "logging": ".records",
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
def owner_paths(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Paths of the owners by group, with the library in a folder of installed packages."""
    folder = tmp_path_factory.mktemp("environment") / "site-packages"
    folder.mkdir()
    shutil.copy(HOLDING / "holdinglib.py", folder)
    program = shutil.copy(HOLDING / "owners_of_holders.py", folder.parent)  # away from the library
    groups = json.dumps([[*PLACES][group::GROUPS] for group in range(GROUPS)])
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, str(program), groups],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    paths: list[list[str]] = json.loads(ended.stdout)
    return paths


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_grows_behind_a_holder_is_owned(owner_paths: list[list[str]], group: int) -> None:
    kinds, paths = [*PLACES][group::GROUPS], owner_paths[group]
    assert [kind for kind in kinds if not any(PLACES[kind] in path for path in paths)] == [], paths


def test_there_are_forty_kinds_and_more() -> None:
    assert len(PLACES) > 50
