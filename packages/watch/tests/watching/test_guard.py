"""Whatever fails inside of the watch, the program that is watched goes on, and the fault is told once."""

import builtins
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flatwater_watch
from flatwater_watch.agent import process
from flatwater_watch.agent.guard import Guard
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces import context
from flatwater_watch.faces.callbacks import _watch_methods


class InsideError(Exception):
    """Of no kind that anybody would foresee."""


def fails(*_: object, **__: object) -> Any:
    raise InsideError("inside")


def faults_of(watched: context.Watch) -> list[str]:
    return [sentence for sentence in watched.summary()["unseen"] if "the watch failed" in sentence]


@pytest.fixture(autouse=True)
def none_open() -> Iterator[None]:
    yield
    assert context._open_watches == []


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (process, "take_reading_"),
        (process, "footprint"),
        (process, "measure_workers_"),
        (process.schedule, "schedule_next_"),
        (process, "memory_limits"),
        (process.growth, "choose_scale"),
        (process.summary, "select_growing_causes"),
        (process.summary, "build_summary"),
        (process, "Monitor"),
        (process.ProcessWatch, "findings"),
        (process.ProcessWatch, "find_final_findings_"),
        (process.ProcessWatch, "summary"),
        (process.ProcessWatch, "close"),
        (process.Boundaries, "_record_time_"),
        (context, "ProcessWatch"),
        (context, "_print_to_stderr"),
        (context, "terminal_lines"),
    ],
)
def test_a_fault_never_reaches_the_program(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
    monkeypatch.setattr(where, name, fails)
    monkeypatch.setattr(context, "MINIMUM_SEARCH_GAP_SECONDS", 0.0)
    with flatwater_watch.watch() as watched:
        for _ in range(20):
            watched.step()
        watched.findings()
        watched.summary()
    found = faults_of(watched)
    assert len(found) <= 1
    assert all("InsideError: inside (test_guard.py:" in sentence for sentence in found)


@pytest.mark.parametrize(
    "where", [(process, "take_reading_"), (process, "memory_limits"), (process.schedule, "schedule_next_")]
)
def test_a_fault_of_a_reading_is_told_once_and_ends_the_readings(
    monkeypatch: pytest.MonkeyPatch, where: tuple[object, str]
) -> None:
    monkeypatch.setattr(*where, fails)
    with flatwater_watch.watch(report=False) as watched:
        for _ in range(20):
            watched.step()
        assert len(faults_of(watched)) == 1
    assert len(faults_of(watched)) == 1
    assert watched.summary()["steps"] == 20


def test_what_cannot_be_printed_ends_the_printing_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _text: str) -> int:
            raise ValueError("I/O operation on closed file")

        def flush(self) -> None:
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr("sys.stderr", Closed())
    with flatwater_watch.watch() as watched:
        watched.step()
    assert watched.summary()["readings"] == 1


def test_misuse_is_still_an_error_of_the_program() -> None:
    watched = flatwater_watch.watch(report=False)
    with pytest.raises(ConfigError, match="not open"):
        watched.step()
    with watched:
        watched.step()
    with pytest.raises(ConfigError, match="not open"):
        watched.step()


def test_a_trainer_inside_of_another_leaves_the_outer_one_its_steps() -> None:
    """The inner one closes the outer one's watch: its callback must not raise into the outer training."""

    class Callback:
        watch: context.Watch | None = None

    begin, step, end = _watch_methods("batch", None, report=False)
    outer, inner = Callback(), Callback()
    step(outer)
    begin(outer)
    begin(inner)
    end(inner)
    step(outer)
    end(outer)
    assert outer.watch is not None
    assert not outer.watch.is_open


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_passes(fault: type[BaseException]) -> None:
    def stop() -> None:
        raise fault

    guard = Guard()
    with pytest.raises(fault):
        guard.run(stop)
    assert not guard.has_ended


def test_what_a_signal_handler_of_the_program_raises_passes() -> None:
    def handler(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError):
            Guard().run(signal.raise_signal, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_fault_that_cannot_be_written_down_is_none_of_the_programs() -> None:
    def full(_sentence: str) -> None:
        raise OSError("no space left on device")

    guard, work = Guard(full), list[Callable[[], object]]([fails])
    guard.run(work[0])
    assert guard.has_ended
    assert len(guard.faults) == 1


class LateError(Exception):
    """A time limit of the program's."""


def test_an_exception_that_another_thread_has_put_into_this_one_passes() -> None:
    """The watch's own code, of which this stands for a part, is where the main thread is when it comes."""
    began = threading.Event()
    source = "def work(began):\n    began.set()\n    while True: pass\n"
    space: dict[str, Any] = {}
    exec(compile(source, process.__file__, "exec"), space)
    main = ctypes.c_ulong(threading.get_ident())

    def put() -> None:
        began.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(LateError))

    other = threading.Thread(target=put)
    other.start()
    guard = Guard()
    with pytest.raises(LateError):
        guard.run(space["work"], began)
    other.join()
    assert not guard.has_ended
    assert guard.faults == []


@pytest.mark.parametrize("kind", [OSError, LateError, GeneratorExit, type("Odd", (BaseException,), {})])
def test_a_function_that_the_program_has_put_in_place_of_a_builtin_one_ends_the_watch_alone(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def raise_kind(*_: object) -> bool:
        raise kind

    guard = Guard()
    with monkeypatch.context() as patch:
        for name in ("len", "any", "set", "str", "getattr"):  # what puts them back needs `isinstance` and more
            patch.setitem(vars(builtins), name, raise_kind)
        outcome = guard.run_or_default("other", lambda: str(len("")))
    assert outcome == "other"
    assert guard.has_ended
