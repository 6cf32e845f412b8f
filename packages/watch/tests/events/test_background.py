"""A tracker that fails, hangs or is slow costs the run nothing but its own rounds, and what is lost is counted."""

import re
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from threading import enumerate as living

import pytest

from flatwater_watch.events.background import BackgroundSink, Sink


class Tracker:
    """Keeps what it is given; waits, or raises, where the test wants it."""

    def __init__(self, gate: Event | None = None, fault: Exception | None = None) -> None:
        self.gate, self.fault = gate, fault
        self.rounds: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def write(self, round: int, metrics: Mapping[str, float]) -> None:
        if self.gate is not None:
            self.gate.wait()
        if self.fault is not None and round == 2:
            raise self.fault
        self.rounds.append((round, dict(metrics)))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def gate() -> Iterator[Event]:
    """Closed while the test runs; opened at its end, so that no thread outlives it."""
    gate = Event()
    yield gate
    gate.set()


def behind(tracker: Sink, said: list[str], **how: float) -> BackgroundSink:
    grace, most = how.get("grace", 30.0), int(how.get("queue_bytes", 1 << 16))
    return BackgroundSink("fake", lambda _: tracker, said.append, grace=grace, queue_bytes=most)


def test_the_tracker_gets_every_round_in_order_and_is_closed() -> None:
    tracker, said = Tracker(), list[str]()
    sink = behind(tracker, said)
    for n in range(1, 101):
        sink.write(n, {"a": n / 2})
    sink.close()
    assert tracker.rounds == [(n, {"a": n / 2}) for n in range(1, 101)]
    assert tracker.closed
    assert (said, sink.dropped, sink.queued_bytes) == ([], 0, 0)


def test_what_is_not_finite_is_left_out() -> None:
    tracker = Tracker()
    sink = behind(tracker, [])
    sink.write(1, {"a": float("nan"), "b": float("-inf"), "c": 3})
    sink.close()
    assert tracker.rounds == [(1, {"c": 3})]


def test_a_tracker_that_raises_is_told_once_and_its_rounds_are_counted() -> None:
    said = list[str]()
    sink = behind(Tracker(fault=ValueError("no such project\nat line 7")), said)
    sink.write(1, {"a": 1})
    sink.write(2, {"a": 2})
    sink._thread.join()
    for n in range(3, 8):
        sink.write(n, {"a": n})
    sink.close()
    first, last = said
    assert first.startswith("fake: failed (ValueError: no such project). ")
    assert last.startswith("fake: failed (ValueError: no such project); 6 rounds ")
    assert sink.queued_bytes == 0


def test_a_tracker_that_cannot_be_opened_does_not_raise() -> None:
    def refuses(_: Callable[[str], None]) -> Sink:
        raise OSError("no route to host")

    said = list[str]()
    sink = BackgroundSink("fake", refuses, said.append)
    sink._thread.join()
    sink.write(1, {"a": 1})
    sink.close()
    assert said[-1].startswith("fake: failed (OSError: no route to host); 1 round ")


def test_a_tracker_that_exits_is_told_as_well() -> None:
    """`sys.exit` in a library would end the thread without a word."""

    def leaves(_: Callable[[str], None]) -> Sink:
        raise SystemExit(1)

    said = list[str]()
    sink = BackgroundSink("fake", leaves, said.append)
    sink._thread.join()
    sink.write(1, {"a": 1})
    sink.close()
    assert said[-1].startswith("fake: failed (SystemExit: 1); 1 round ")


def test_a_tracker_that_blocks_for_ever_holds_a_bounded_queue_and_is_left_alone(gate: Event) -> None:
    said = list[str]()
    sink = behind(Tracker(gate), said, queue_bytes=1000, grace=0.05)
    for n in range(1, 1001):
        sink.write(n, {"a": n})
    assert 900 < sink.queued_bytes <= 1000
    waiting = 1000 - sink.dropped
    assert 20 < waiting < 60
    assert len(said) == 1, "one line, however many rounds"
    sink.close()
    (end,) = said[1:]
    assert re.match(r"fake: did not end .*; 1000 rounds ", end)
    assert sink.queued_bytes == 0


def test_what_opens_late_still_gets_what_waited(gate: Event) -> None:
    tracker, said = Tracker(), list[str]()

    def opens(note: Callable[[str], None]) -> Sink:
        gate.wait()
        note("cannot be reached")
        return tracker

    sink = BackgroundSink("fake", opens, said.append, grace=30)
    for n in range(1, 4):
        sink.write(n, {"a": n})
    assert tracker.rounds == []
    gate.set()
    sink.close()
    assert [n for n, _ in tracker.rounds] == [1, 2, 3]
    assert said == ["fake: cannot be reached"]


def test_a_closed_sink_leaves_no_thread() -> None:
    before = set(living())
    sink = behind(Tracker(), [])
    sink.write(1, {"a": 1})
    sink.close()
    assert set(living()) <= before
