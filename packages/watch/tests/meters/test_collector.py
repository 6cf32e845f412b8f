"""What full collections free is heard of, and the program notices nothing: no frame, no fault, no callback touched."""

import gc
import mmap
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import flatwater_watch
from flatwater_watch.agent.guard import Guard
from flatwater_watch.meters.allocator import used_bytes
from flatwater_watch.meters.collector import COSTLY_CPU_SECONDS, CollectionListener, _exceptions_waiting

SOURCE = str(Path(flatwater_watch.__file__).parent)
MIB = 1 << 20
Listen = Callable[..., CollectionListener]


class Cycle:
    def __init__(self, size: int) -> None:
        self.itself: Cycle = self
        self.bytes: bytearray | mmap.mmap = bytearray(size)


def own_pages(size: int) -> mmap.mmap:
    """Pages of its own: the allocator may have given back pages of what it keeps, which `used` counts twice then."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.write(bytes(size))
    return pages


class Counting:
    """Readings that are counted: the n-th one says n MiB, down at each end."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.times, self._seconds = 0, seconds

    def __call__(self) -> int:
        self.times += 1
        time.sleep(self._seconds)
        return MIB * (100 if self.times % 2 else 20)


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    """No collection of pytest's own comes between."""
    before = list(gc.callbacks)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.callbacks[:] = before


@pytest.fixture
def listen() -> Iterator[Listen]:
    opened = list[CollectionListener]()

    def begin(read: Callable[[], int] = used_bytes, guard: Guard | None = None) -> CollectionListener:
        collector = CollectionListener((guard or Guard()).run, read)
        collector.start_listening()
        opened.append(collector)
        return collector

    yield begin
    for collector in opened:
        collector.close()


def test_readings_leave_nothing_to_collect(listen: Listen) -> None:
    """A program that collects until nothing is left comes to an end."""
    listen(used_bytes)
    left = list[int]()
    for _ in range(6):
        time.sleep(0.25)  # else the next one is not read
        left.append(gc.collect())
    assert min(left[1:]) == 0, "other threads may leave something now and then"


def collect_rested(collector: CollectionListener) -> None:
    """Collect when a reading is due again: a test cannot wait for as long as a slow machine needs."""
    collector._next_reading_time = 0.0
    gc.collect()


def test_what_a_collection_frees_is_measured(listen: Listen) -> None:
    collector = listen()
    for _ in range(3):
        for _ in range(40):
            Cycle(MIB)
        collect_rested(collector)
    teeth = collector.measure_sawtooth(2)
    assert teeth is not None
    assert 38 * MIB <= teeth.freed <= 44 * MIB
    assert 38 * MIB <= teeth.rise <= 44 * MIB
    assert teeth.bytes_before >= 40 * MIB
    assert collector.measure_sawtooth(4) is None


def test_a_single_collection_is_compared_with_the_beginning(listen: Listen) -> None:
    collector = listen()
    collector.reset_baseline()
    kept = [own_pages(MIB) for _ in range(20)]
    for _ in range(40):
        Cycle(0).bytes = own_pages(MIB)
    collect_rested(collector)
    assert collector.measure_sawtooth(2) is None
    teeth = collector.measure_sawtooth(1)
    assert teeth is not None
    assert 38 * MIB <= teeth.freed <= 44 * MIB
    assert 57 * MIB <= teeth.rise <= 66 * MIB
    assert teeth.seconds > 0
    assert len(kept) == 20


def test_a_collection_before_the_beginning_is_none_and_one_without_a_beginning_tells_nothing(listen: Listen) -> None:
    """A program that comes to a loop of its own begins anew there."""
    collector = listen()
    Cycle(MIB)
    collect_rested(collector)
    assert collector.measure_sawtooth(1) is None
    collector.reset_baseline()
    assert collector.measure_sawtooth(1) is None
    Cycle(MIB)
    collect_rested(collector)
    assert collector.measure_sawtooth(1) is not None


def test_young_collections_are_not_read(listen: Listen) -> None:
    read = Counting()
    listen(read)
    gc.collect(0)
    gc.collect(1)
    assert read.times == 0
    gc.collect(2)
    assert read.times == 2


def test_a_program_that_collects_all_the_time_is_read_now_and_then(listen: Listen) -> None:
    """A reading of 300 ms rests for 60 s, longer than nine collections take in any process of a suite; collections in
    between are counted, and the time from one to the next too.
    """
    read, ended = Counting(seconds=0.3), gc.get_stats()[2]["collections"]
    collector = listen(read)
    for _ in range(9):
        gc.collect()
    assert read.times == 2
    collect_rested(collector)
    teeth = collector.measure_sawtooth(2)
    assert teeth is not None
    assert (teeth.freed, teeth.rise) == (80 * MIB, float("inf"))
    heard = list(collector._collections)
    assert [each.number - ended for each in heard] == [1, 10]
    assert teeth.seconds == (heard[1].seconds - heard[0].seconds) / 9


class Unequal:
    """A callback of the program that bears no comparison."""

    def __init__(self) -> None:
        self.heard = list[str]()

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        self.heard.append(phase)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]  # as of any class with an equality of its own


def test_the_callbacks_of_the_program_stay_as_they_are(listen: Listen) -> None:
    first, last = Unequal(), Unequal()
    gc.callbacks.append(first)
    collector = listen()
    gc.callbacks.append(last)
    gc.collect()
    collector.close()
    assert next(each for each in gc.callbacks if type(each) is Unequal) is first
    assert gc.callbacks[-1] is last
    assert first.heard == last.heard == ["start", "stop"]
    assert not any("partial" in type(each).__name__ for each in gc.callbacks[-2:])


def test_a_program_that_clears_or_replaces_the_callbacks_loses_only_this(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Counting()
    collector = listen(read)
    others = gc.callbacks[:-1]
    gc.callbacks.clear()
    gc.callbacks.extend(others)
    gc.collect()
    assert (read.times, collector.measure_sawtooth(2)) == (0, None)
    collector.close()
    known = gc.callbacks
    second = listen(read)
    monkeypatch.setattr(gc, "callbacks", [])
    second.close()
    assert known == others


def test_a_collection_under_way_when_listening_begins_is_no_collection(listen: Listen) -> None:
    read = Counting()
    opened = list[CollectionListener]()

    def late(phase: str, _info: dict[str, int]) -> None:
        if phase == "start" and not opened:
            opened.append(listen(read))

    gc.callbacks.append(late)
    gc.collect()
    gc.callbacks.remove(late)
    collect_rested(opened[0])
    assert all(each.before == 100 * MIB and each.after == 20 * MIB for each in opened[0]._collections)


def test_collections_of_another_thread_are_heard(listen: Listen) -> None:
    collector, ended = listen(Counting()), gc.get_stats()[2]["collections"]
    workers = [threading.Thread(target=collect_rested, args=(collector,)) for _ in range(4)]
    for worker in workers:
        worker.start()
        worker.join()
    assert [each.number - ended for each in collector._collections] == [1, 2, 3, 4]


@pytest.fixture
def _unfrozen_at_the_end(real_unfreeze: None) -> Iterator[None]:
    assert real_unfreeze is None
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_unfrozen_at_the_end")
def test_what_is_frozen_is_not_freed(listen: Listen) -> None:
    collector = listen()
    for _ in range(20):
        Cycle(MIB)
    gc.freeze()
    collect_rested(collector)
    collect_rested(collector)
    teeth = collector.measure_sawtooth(2)
    assert teeth is not None
    assert teeth.freed < 2 * MIB


def test_a_fault_ends_the_listening_and_is_not_seen(listen: Listen, capfd: pytest.CaptureFixture[str]) -> None:
    guard, tried = Guard(), list[int]()

    def fails() -> int:
        tried.append(1)
        raise OSError("no /proc")

    listen(fails, guard)
    gc.collect()
    gc.collect()
    assert len(tried) == 1
    assert len(guard.faults) == 1
    assert "no /proc" in guard.faults[0]
    assert capfd.readouterr() == ("", "")


def collect_and_go_on() -> None:
    gc.collect()
    for _ in range(1000):
        gc.isenabled()


def test_an_interruption_reaches_the_program(listen: Listen, capfd: pytest.CaptureFixture[str]) -> None:
    """What is raised below the collector is printed and lost: Ctrl-C in a reading must come after it."""
    pressed = list[int]()

    def interrupt_once() -> int:
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt
        return 0

    listen(interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        collect_and_go_on()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["function", "method"])
def test_an_interruption_passes_the_callbacks_of_the_program(
    kind: str, listen: Listen, capfd: pytest.CaptureFixture[str]
) -> None:
    """They run after ours, below the collector, and are Python functions: an exception in them is printed and lost."""
    pressed, heard = list[int](), list[str]()

    def interrupt_once() -> int:
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt
        return 0

    def function(phase: str, _: dict[str, int]) -> None:
        for _n in range(3):
            heard.append(phase)

    class Hearing:
        def method(self, phase: str, info: dict[str, int]) -> None:
            function(phase, info)

    listen(interrupt_once)
    callback = function if kind == "function" else Hearing().method
    gc.callbacks.append(callback)
    try:
        with pytest.raises(KeyboardInterrupt):
            collect_and_go_on()
    finally:
        gc.callbacks.remove(callback)
    assert heard
    assert capfd.readouterr() == ("", "")


class TimeLimitError(Exception):
    """What a handler of the program raises."""


def test_a_time_limit_of_the_program_reaches_it(listen: Listen, capfd: pytest.CaptureFixture[str]) -> None:
    rung = list[int]()

    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitError

    def reads() -> int:
        if not rung:
            rung.append(1)
            signal.raise_signal(signal.SIGUSR1)
        return 0

    before = signal.signal(signal.SIGUSR1, over)
    guard = Guard()
    listen(reads, guard)
    try:
        with pytest.raises(TimeLimitError):
            collect_and_go_on()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (guard.faults, capfd.readouterr()) == ([], ("", ""))


def test_nothing_that_a_handler_raises_is_lost(listen: Listen) -> None:
    """A signal comes in each collection, so that the handler runs at any instruction of what is heard of it.

    Where another callback of Python's listens, as one of hypothesis does, what the handler raises in that one is lost.
    """
    gc.callbacks[:] = [listen()._callback]
    raised, caught, armed = 0, list[int](), False

    def over(_number: int, _frame: FrameType | None) -> None:
        nonlocal raised, armed
        if armed:
            raised, armed = raised + 1, False
            raise TimeLimitError(raised)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0017)
    end = time.monotonic() + 20
    try:
        while raised < 12 and time.monotonic() < end:
            try:
                armed = True
                while time.monotonic() < end + 5:
                    gc.collect()
            except TimeLimitError as fault:
                caught.append(fault.args[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised > 1
    assert [number for number in range(1, raised + 1) if caught.count(number) != 1] == []
    assert len(_exceptions_waiting) == 0, "nothing is asked again"


def test_no_tracer_sees_a_frame(listen: Listen) -> None:
    collector, seen = listen(), list[str]()

    def tracer(frame: FrameType, _event: str, _given: Any) -> Any:
        seen.append(frame.f_code.co_filename)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        gc.collect(0)
        gc.collect()
    finally:
        sys.settrace(before)
    assert len(collector._collections) == 1
    assert not [name for name in seen if name.startswith(SOURCE)]


def test_where_a_reading_takes_long_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a heap that is full of holes: the program would stand still before and after each full collection."""
    monkeypatch.setattr("flatwater_watch.meters.collector.last_seconds", lambda: 2 * COSTLY_CPU_SECONDS)
    reads: list[int] = []
    hearing = CollectionListener(lambda act: act(), lambda: reads.append(1) or 1)
    hearing.start_listening()
    hearing.reset_baseline()
    gc.collect()
    hearing.close()
    assert reads == []
    assert hearing.measure_sawtooth(0) is None
