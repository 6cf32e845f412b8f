"""Tests of the finder: programs for a census to look at, each alone, as a program has its own modules only."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import _pytest
import execnet
import pluggy
import pytest
import xdist

from flatwater_watch.heap import roots
from flatwater_watch.meters.fork import fork_unsafe_library

Load = Callable[..., ModuleType]
PACKAGES, SOURCE = f"{Path(__file__).parents[2]}{os.sep}", f"{os.sep}src{os.sep}"
RUNNERS = tuple(f"{Path(runner.__file__).parent}{os.sep}" for runner in (_pytest, pluggy, execnet, xdist))
OF_LIBRARIES = roots._is_library_file


_seen, _ours = set[str](), set[str]()
"""Names of the modules that were looked at, and of those among them that are files of tests."""


def _modules_of_tests() -> list[str]:
    """Of those that are loaded. A look at all of them takes ten milliseconds, and there are as many looks as tests."""
    for name in sys.modules.keys() - _seen:
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str) and file.startswith(PACKAGES) and SOURCE not in file:
            _ours.add(name)
    _seen.update(sys.modules)
    return [name for name in _ours if name in sys.modules]


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the other tests' modules, and what runs the tests: how much it holds depends on what else it has to run."""
    for name in _modules_of_tests():
        if sys.modules[name] is not request.module:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(roots, "_is_library_file", lambda file: not file.startswith(RUNNERS) and OF_LIBRARIES(file))


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Run a source text as the module `train`, or another name, as if it had been imported from a user's folder."""
    loaded = []

    def run(source: str, name: str = "train") -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(dedent(source))
        module = ModuleType(name)
        module.__file__ = str(file)
        sys.modules[name] = module
        loaded.append(name)
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
        return module

    yield run
    for name in loaded:
        vars(sys.modules.pop(name)).clear()


@pytest.fixture
def _bears_forks() -> None:
    """Skip where another test has begun CUDA in this process: the finder forks no process that has."""
    if (library := fork_unsafe_library()) is not None:
        pytest.skip(f"this process has {library}, and bears no fork")


@pytest.fixture
def _no_collection() -> Iterator[None]:
    """Cycles stay until the test is over."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
