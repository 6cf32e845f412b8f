"""Progress of long work: counted by the code that works, shown by another thread.

Code that computes counts its steps by `count_steps`; it neither knows nor waits for the reader. Without a reader
nothing is counted.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TypeVar

from flatwater_watch.units import format_duration

T = TypeVar("T")

TOLD_SECONDS, TOLD_SHARE = 10.0, 1 / 30
"""Minimum seconds between two lines in a log, and minimum share of the time so far: a line each 10 seconds for five
minutes, and not 3,600 lines in ten hours."""
MOVED_SECONDS = 1.0
"""Seconds between two updates of a line on a terminal."""


@dataclass
class ProgressPart:
    """Progress of steps of one kind."""

    what: str
    total: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)
    """Monotonic time of the beginning."""

    def seconds_left(self) -> float | None:
        """Seconds to the end at the pace so far; None before the first step is done."""
        return (time.monotonic() - self.began) / self.done * (self.total - self.done) if self.done else None


@dataclass
class ProgressTrack:
    """The parts at work, the innermost last; written by the thread at work and read by another one."""

    parts: tuple[ProgressPart, ...] = ()

    def line(self) -> str:
        """A line such as `fold 2/5, days 120/504, 4 s left`, with the outermost part's time; empty without parts."""
        parts = self.parts  # once, without a lock: the thread at work replaces the tuple and never changes it
        if not parts:
            return ""
        seconds_left = parts[0].seconds_left()
        words = [f"{part.what} {part.done}/{part.total}" for part in parts]
        return ", ".join(words if seconds_left is None else [*words, f"{format_duration(seconds_left)} left"])


_current_track: ContextVar[ProgressTrack | None] = ContextVar("watched", default=None)


@contextmanager
def track_progress() -> Iterator[ProgressTrack]:
    """A track on which code that runs inside the block, in this thread, counts its progress."""
    track = ProgressTrack()
    before = _current_track.set(track)
    try:
        yield track
    finally:
        _current_track.reset(before)


def count_steps(noun: str, items: Sequence[T]) -> Iterator[T]:
    """Yield the items, and count each as a step in progress lines when the next one is requested."""
    track = _current_track.get()
    if track is None:
        yield from items
        return
    part, outer_parts = ProgressPart(noun, len(items)), track.parts
    track.parts = (*outer_parts, part)
    try:
        for item in items:
            yield item
            part.done += 1
    finally:
        track.parts = outer_parts


def is_due(now: float, began: float, last_report: float) -> bool:
    """Whether another progress line is due; all three arguments are monotonic seconds."""
    return now - last_report >= max(TOLD_SECONDS, TOLD_SHARE * (now - began))


class Ticker:
    """Calls a function in a thread of its own, every second, until it is stopped."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._on_tick, self._stopped = tell, Event()
        self._thread = Thread(target=self._tick, name="progress", daemon=True)

    def start(self) -> None:
        """Begin to call."""
        self._thread.start()

    def stop(self) -> None:
        """End the calls; a call under way is waited for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _tick(self) -> None:
        """Call the function every second until it is stopped or its stream fails; runs in the ticker's own thread."""
        while not self._stopped.wait(MOVED_SECONDS):
            try:
                self._on_tick()
            except (OSError, ValueError):  # nobody reads any more, or the stream was closed
                return
