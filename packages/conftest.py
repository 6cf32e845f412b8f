"""What holds for all tests: one torch thread, because the workers share the cores, and no clock in property tests.

No thread that outlives its test, either: a leak finder in the same process would see what it gathers. And no listener
of the collector's: it acts in every later test.
"""

import gc
import inspect
import os
import re
import signal
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from flatwater.runs import planning
from flatwater.state.tree import nbytes
from flatwater_watch.files.directory import write_object
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.allocator import note_seconds
from flatwater_watch.pages.chart import Grid, Picture

torch.set_num_threads(1)
# Whether there is a GPU is asked without beginning CUDA, after which the tests' process would bear no fork.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ["WANDB_ERROR_REPORTING"] = "false"  # else wandb starts a thread that sends its own telemetry

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # begun in the background: programs of the tests would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

ORDER = 20261126
"""Seed of the order of the tests, and of what they draw from Python's and NumPy's global generators."""

# A property is not slower for being run beside another process. Its examples are the same in each run: a gate that
# draws others each time fails somebody who changed nothing. `make test-random` draws others.
settings.register_profile("flatwater", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("random", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("flatwater")


PACKAGES = f"{Path(__file__).parent}{os.sep}"
_collected = list[str]()
"""Names of the modules of tests."""


_counted = Counter[str]()
"""Tests so far of each function that is marked `few`."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of a law's examples the first few are in `make test`, all in `make test-all`."""
    few = item.get_closest_marker("few")
    if few is not None and item.get_closest_marker("slow") is None:
        _counted[function := item.nodeid.partition("[")[0]] += 1
        if _counted[function] > few.args[0]:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of collections: 600,000 objects, a third of a second each time.

    Torch imports SymPy where kernels of the meta device are first used: without it here, in the fork of each plan.
    """
    import_module("sympy")
    gc.collect()
    gc.freeze()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(PACKAGES) and Path(file).name.startswith("test_"):
            _collected.append(name)


@pytest.fixture(scope="session", autouse=True)
def _begun_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that tests begin are not remembered in the home of whoever calls them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _width_of_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing `readline`, as pdb does, puts the terminal's width into the environment, which sets that of tables."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _others_hidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run counts the objects of its program's modules: those of 400 files of tests take a second each time."""
    hidden = {name: sys.modules.pop(name) for name in _collected if sys.modules.get(name) is not request.module}
    yield
    sys.modules.update(hidden)


@pytest.fixture(scope="session", autouse=True)
def _examples_follow_from_their_test_alone() -> Iterator[None]:
    """Hypothesis also draws numbers and texts that stand in modules which are loaded: other tests' as well."""
    with pytest.MonkeyPatch.context() as patch:
        if settings.get_current_profile_name() == "flatwater":
            patch.setattr(providers, "_get_local_constants", lambda: providers._local_constants)
        yield


@pytest.fixture(scope="session", autouse=True)
def _runs_freeze_nothing() -> Iterator[None]:
    """At its end a run puts all in the collector's sight again, as `test_machine.py` says: what was imported too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flatwater.runs.session.freeze_gc", nullcontext)
        yield


_tried = dict[str, dict[str, int]]()
"""What the phases of a plan took when they were tried out, by what they depend on."""


@pytest.fixture
def tried_anew() -> None:
    """For tests that look at how a plan is tried out."""


@pytest.fixture(autouse=True)
def _equal_plans_are_tried_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The phases are tried out in a fork, which is a quarter of the time of a small run."""
    if "tried_anew" in request.fixturenames:
        return
    try_out = planning.phase_bytes

    def remembered(transients: Callable[[], Mapping[str, int]], beside: Mapping[str, int]) -> dict[str, int]:
        if not inspect.isfunction(transients):
            return try_out(transients, beside)
        given = dict(zip(transients.__code__.co_freevars, transients.__closure__ or (), strict=True))
        if not {"setup", "run"} <= given.keys():
            return try_out(transients, beside)
        sizes = nbytes(given.pop("run").cell_contents)
        others = {name: cell.cell_contents for name, cell in given.items()}
        key = re.sub(r" at 0x\w+|\brounds=\d+", "", repr((transients.__qualname__, sizes, beside, others)))
        if key not in _tried:
            _tried[key] = try_out(transients, beside)
        return {**_tried[key]}

    monkeypatch.setattr(planning, "phase_bytes", remembered)


@pytest.fixture
def real_unfreeze() -> None:
    """For tests of what is frozen: in them `gc.unfreeze` is Python's."""


MANY = 50
"""Modules that a test imports: from so many on the collector's next looks are longer than one look now."""


@pytest.fixture(autouse=True)
def _imported_stays_frozen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test imports or unfreezes: a look at all that is imported takes a second, a library's tables too."""
    monkeypatch.setattr("flatwater_watch.heap.libraries.frozen_objects", list)
    unfreeze, calls, before = gc.unfreeze, list[None](), len(sys.modules)
    thaws = "real_unfreeze" in request.fixturenames
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append(unfreeze()) if thaws else None)
    yield
    if calls or len(sys.modules) >= before + MANY:
        gc.collect()
        gc.freeze()


@pytest.fixture
def own_modules() -> None:
    """For tests of what a run's census finds: it counts what Flatwater's own modules hold, as outside of tests."""


@pytest.fixture(autouse=True)
def _runs_count_their_program_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what their own frames hold. Flatwater's hundreds of modules are a quarter of the time of a small run.

    Runs in processes of their own count them all.
    """
    if "own_modules" not in request.fixturenames:
        monkeypatch.setattr("flatwater.runs.memory_contract.Roots", lambda **_: Roots())


@pytest.fixture(autouse=True)
def _no_listener_outlives_its_test() -> Iterator[None]:
    before = {id(callback) for callback in gc.callbacks}
    yield
    new = [callback for callback in gc.callbacks if id(callback) not in before]
    assert [callback for callback in new if type(callback) is partial] == []  # Hypothesis leaves a function


@pytest.fixture(autouse=True)
def _allocator_answers_at_once() -> None:
    """As if it had: a heap of over 80 MiB that was never asked is asked in a fork, and steps pass before it answers."""
    note_seconds(0.0)


BLANK = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
"""A picture of one pixel."""


@pytest.fixture
def painted() -> None:
    """For tests that look at the picture of a run: it is painted in them, also where a folder's tests leave it out."""


_laid_out = set[str]()
"""Kinds of pictures that were laid out in this process."""


def _kind_of_picture(rows: Picture) -> str:
    charts = [chart for row in rows for part in row for chart in (part.charts if isinstance(part, Grid) else [part])]
    return repr([(chart.x.kind, chart.y.kind, {type(mark).__name__ for mark in chart.marks}) for chart in charts])


@pytest.fixture
def unpainted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The charts of a run are made, those of each kind laid out once, and none painted: a third of a small run."""
    if "painted" in request.fixturenames:
        return
    from flatwater.reports import picture

    def write(out: Path, rows: Picture) -> None:
        if (kind := _kind_of_picture(rows)) not in _laid_out:
            picture.paint_figure(rows)
            _laid_out.add(kind)
        write_object(out, BLANK)

    monkeypatch.setattr(picture, "write_picture", write)


class _Failures:
    """Tells of each failure when it happens: of a run that is cut off nothing else is seen."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            seed = self._config.getoption("randomly_seed", None)
            reason = (report.longreprtext.strip().splitlines() or [""])[-1]
            self._config.get_terminal_writer().line(f"\n{report.nodeid} ({report.when}, seed {seed}): {reason}")


@pytest.hookimpl(tryfirst=True)  # before pytest-randomly takes the seed that it finds
def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "randomly_seed", None) == "default":
        config.option.randomly_seed = ORDER
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(config))
