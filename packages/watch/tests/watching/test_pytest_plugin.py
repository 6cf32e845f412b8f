"""The plugin on small test files, run by a pytest of their own as a user would run them."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

FILE = """\
import gc, unittest
import numpy as np, pytest
import flatwater_watch
from functools import lru_cache
from pathlib import Path

flat = pytest.mark.flat
HISTORY, RECORDS, REGISTRY = [], [], {}
TOUCHED = [0]
TABLE = np.zeros(64 << 20, dtype=np.uint8)

def act():
    return np.ones(1 << 15)

@flat(rounds=16)
def test_leak():
    HISTORY.append(act())

@flat(rounds=16)
def test_leak_of_small_objects():
    RECORDS.extend({"reward": float(i)} for i in range(1000))

@pytest.fixture
def buffer():
    kept = []
    yield kept

@flat(rounds=16)
@pytest.mark.parametrize("pages", [32, 64])
def test_fixture(buffer, pages):
    buffer.append(bytearray(pages << 12))

class TestGroup:
    @flat(rounds=16)
    def test_method(self):
        self.kept = [*vars(self).get("kept", []), act()]

@flat(rounds=16)
def test_first_touch():
    TOUCHED[0] += 1
    TABLE[TOUCHED[0] << 20 : (TOUCHED[0] + 1) << 20] = 1

@flat(rounds=16)
def test_flat():
    np.ones(1 << 20).sum()
    [np.ones(100) for _ in range(1000)]

@pytest.fixture
def no_collection():
    gc.disable()
    yield
    gc.enable()

class Node:
    pass

@flat(rounds=16)
def test_flat_cycles(no_collection):
    node = Node()
    node.itself, node.data = node, act()

@lru_cache(maxsize=8)
def table(key):
    return np.ones(1 << 17)

@flat(rounds=16)
@pytest.mark.parametrize("start", [[0]])
def test_flat_cache_that_is_full(start):
    start[0] += 1
    table(start[0])

@flat(rounds=16)
@pytest.mark.parametrize("kept", [[]])
def test_flat_after_one_late_step(kept):
    kept.append(None)
    if len(kept) == 8:
        kept[0] = np.ones(1 << 21)

@flat(rounds=16)
@pytest.mark.parametrize("kept", [[]])
def test_flat_below_the_growth(kept):
    kept.append(np.ones(1 << 10))

@flat(rounds=16, growth="20 MiB")
@pytest.mark.parametrize("kept", [[]])
def test_flat_as_allowed(kept):
    kept.append(act())

@pytest.fixture
def counted():
    calls = []
    yield calls
    assert len(calls) == 12

@flat(rounds=12, warmup=3)
def test_runs_as_often_as_asked(counted):
    counted.append(1)

@flat(rounds=12)
@pytest.mark.parametrize("calls", [[]])
def test_own_failure(calls):
    calls.append(1)
    assert len(calls) < 3

budget = pytest.mark.flatwater

@budget(max_growth="1MiB")
def test_budget_leak():
    HISTORY.append(np.ones(1 << 18))

@budget(max_growth="8MiB")
def test_budget_kept():
    HISTORY.append(np.ones(1 << 18))

@budget
@pytest.mark.parametrize("calls", [[]])
def test_budget_cache_that_is_filled_once(calls):
    calls.append(1)
    if len(calls) == 1:
        REGISTRY["table"] = np.ones(1 << 20)
    assert len(calls) <= 2

@budget
@pytest.mark.parametrize("calls", [[]])
def test_budget_runs_once(calls):
    calls.append(1)
    assert len(calls) == 1

@budget(growth="1 MiB")
def test_budget_unknown():
    pass

class TestOld(unittest.TestCase):
    @flat
    def test_case(self):
        pass

@flat
async def test_async():
    pass

@flat(rounds=3)
def test_few_rounds():
    pass

@flat(size=3)
def test_unknown_argument():
    pass

@flat(growth="much")
def test_no_amount():
    pass

class Env:
    pass

def test_freed(expect_freed):
    env = Env()
    env.itself = env
    expect_freed(env)

def test_kept_in_a_dict(expect_freed):
    env = Env()
    expect_freed(env)
    REGISTRY["envs"] = [None, env]

def test_kept_array():
    array = np.ones(3)
    flatwater_watch.expect_freed(array)
    REGISTRY["array"] = {"best": array}

def test_kept_by_a_closure(expect_freed, buffer):
    env = Env()
    expect_freed(env)
    buffer.append(lambda: env)

def test_a_failure_of_its_own_comes_first(expect_freed):
    env = Env()
    expect_freed(env)
    raise AssertionError("its own")

def test_list():
    flatwater_watch.expect_freed([])
"""


def line(text: str, which: int = 0) -> str:
    """Where the text stands in the file."""
    numbers = [number for number, content in enumerate(FILE.splitlines(), start=1) if text in content]
    return f"test_agent.py:{numbers[which]}"


ALONE = ["-p", "flatwater_watch.faces.pytest_plugin", "-p", "pytest_randomly"]
"""Options of a run without the plugins that are installed here: it begins sooner."""


def run(folder: Path, *options: str) -> dict[str, str]:
    """Each test's message; empty where it passed."""
    (folder / "test_agent.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", "--junitxml=out.xml", *options]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if options == tuple(ALONE) else {}
    environment = os.environ | {"PYTEST_ADDOPTS": "-p no:importnb"} | alone  # as in pyproject.toml, which is not there
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ET.parse(folder / "out.xml").getroot().iter("testcase")
    return {case.attrib["name"]: "\n".join(part.text or "" for part in case) for case in cases}


@pytest.fixture(scope="module")
def failure_texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run(tmp_path_factory.mktemp("plugin"), *ALONE)


EXPECTED_WORDS = {
    "test_leak": ["leak: test_agent.HISTORY grows by 256.", f"made at {line('(1 << 15)')} in act (numpy)"],
    "test_leak_of_small_objects": ["leak: test_agent.RECORDS", f"made at {line('range(1000)')}"],
    "test_fixture[32]": ["leak: fixture buffer grows by 128.", f"made at {line('pages << 12')} in test_fixture"],
    "test_fixture[64]": ["leak: fixture buffer grows by 256.", f"made at {line('pages << 12')} in test_fixture"],
    "test_method": ["leak: the test's self.kept", "in act (numpy)"],
    "test_first_touch": ["filling: test_agent.TABLE grows by", "of 64.00 MiB planned"],
    "test_budget_leak": [
        "test_budget_leak leaves 2.0",
        "; 1.00 MiB may be",
        "leak: test_agent.HISTORY grows by 2.0",
        f"made at {line('(1 << 18)')} in test_budget_leak (numpy)",
    ],
    "test_budget_unknown": ["flatwater of test_budget_unknown", "'growth'"],
    "test_own_failure[calls0]": ["assert 3 < 3"],
    "test_case": ["test_case cannot be repeated"],
    "test_async": ["test_async is asynchronous"],
    "test_few_rounds": ["rounds = 3: ", "9 or more"],
    "test_unknown_argument": ["flat of test_unknown_argument", "'size'"],
    "test_no_amount": ["'much'", "8GiB"],
    "test_kept_in_a_dict": [
        "Env is still alive",
        f"{line('expect_freed(env)', 1)} expects",
        "test_agent.py, global REGISTRY: dict",
        "[1]: Env",
    ],
    "test_kept_array": ["ndarray is still alive", "global REGISTRY: dict", "['array']: dict of 1", "['best']: nd"],
    "test_kept_by_a_closure": ["held by fixture buffer: list of 1", "env, in the closure of <lambda>: Env"],
    "test_a_failure_of_its_own_comes_first": ["its own"],
    "test_list": ["expect_freed: a list "],
}
"""Words of the message of each test that fails, by test."""
PASSING = {
    *(f"test_flat_{name}" for name in ("cycles", "cache_that_is_full[start0]", "after_one_late_step[kept0]")),
    *("test_flat", "test_flat_below_the_growth[kept0]", "test_flat_as_allowed[kept0]"),
    *("test_freed", "test_runs_as_often_as_asked"),
    *("test_budget_kept", "test_budget_cache_that_is_filled_once[calls0]", "test_budget_runs_once[calls0]"),
}


@pytest.mark.long
def test_each_test_that_grows_fails_with_its_cause_and_no_other(failure_texts: dict[str, str]) -> None:
    """One test, as workers of xdist would each run the file of tests anew for a part of it."""
    missing = {
        test: [word for word in words if word not in failure_texts[test]] for test, words in EXPECTED_WORDS.items()
    }
    assert not any(missing.values()), (missing, failure_texts)
    assert {test for test, message in failure_texts.items() if message} == set(EXPECTED_WORDS), failure_texts
    assert {test for test, message in failure_texts.items() if not message} == PASSING
    first = failure_texts["test_leak"].splitlines()[0]
    assert re.match(r"test_leak grew by .*\b11 rounds .*\b5; 1\.00 MiB ", first)


@pytest.mark.slow
def test_as_installed_on_xdist_workers_in_any_order(failure_texts: dict[str, str], tmp_path: Path) -> None:
    there = run(tmp_path, "-n", "2", "-k", "test_leak or test_kept or test_freed or test_flat_cycles")
    assert len(there) == 7
    assert {test for test, message in there.items() if message} == {test for test in there if failure_texts[test]}


def test_loading_it_imports_little() -> None:
    """Every test run of an environment with flatwater loads it: 1.5 ms."""
    program = """
import sys, pytest
before = set(sys.modules)
import flatwater_watch.faces.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = ("errors", "faces", "faces.freed_objects", "faces.pytest_plugin", "lazy", "sanitize")
    assert ran.stdout.split() == ["flatwater_watch", *(f"flatwater_watch.{name}" for name in modules)]


CROWDED = """
import pytest

OBJECTS = [[i] for i in range(200_000)]
KEPT = []

@pytest.mark.flat(rounds=16)
def test_kept():
    KEPT.append(bytearray(128 << 10))
"""


@pytest.mark.long
def test_what_the_look_before_keeps_is_no_growth(tmp_path: Path) -> None:
    """The first look of a process at many objects takes megabytes: they came before the rounds that are counted."""
    (tmp_path / "test_crowded.py").write_text(CROWDED)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "flatwater_watch.faces.pytest_plugin"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert "native" not in done.stdout
    assert "test_kept grew by 1." in done.stdout, done.stdout
    assert "made at test_crowded.py:9 in test_kept" in done.stdout


FAULTY = """
import pytest, flatwater_watch
from flatwater_watch.faces import flatness, holders

def fails(*_):
    raise OSError("inside")

holders.find_holder_chain = fails
RUNS, KEPT = [], []

class Thing:
    pass

@pytest.fixture(params=["used_bytes", "_take_baseline", "Series", "_memory_grows"])
def broken(request, monkeypatch):
    monkeypatch.setattr(flatness, request.param, fails)

@pytest.mark.flat(rounds=12)
def test_flat(broken):
    RUNS.append(1)

@pytest.mark.flat(rounds=12)
def test_own(broken):
    raise KeyError("mine")

def test_freed():
    KEPT.append(Thing())
    flatwater_watch.expect_freed(KEPT[0])

def test_last():
    assert len(RUNS) >= 4
"""


def test_a_fault_of_the_watch_fails_no_test_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_faulty.py").write_text(FAULTY)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "flatwater_watch.faces.pytest_plugin"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert "4 failed, 6 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("KeyError: 'mine'") >= 4
    assert "flatwater: the watch failed: OSError: inside (test_faulty.py:" in done.stdout
