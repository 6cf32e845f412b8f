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

MINIMUM_LINE_SECONDS, MINIMUM_LINE_SHARE = 10.0, 1 / 30
"""Minimum seconds between two lines in a log, and minimum share of the time so far: a line each 10 seconds for five
minutes, and not 3,600 lines in ten hours."""
REFRESH_SECONDS = 1.0
"""Seconds between two updates of a line on a terminal."""


@dataclass
class ProgressPart:
    """Progress of steps of one kind."""

    noun: str
    """What is counted, in the plural, such as `days`."""
    total: int
    done: int = 0
    """Number of steps that are done."""
    began: float = field(default_factory=time.monotonic)
    """Monotonic time of the beginning."""

    def seconds_left(self) -> float | None:
        """Return the seconds to the end at the pace so far; None before the first step is done."""
        if not self.done:
            return None
        return (time.monotonic() - self.began) / self.done * (self.total - self.done)


@dataclass
class ProgressTrack:
    """The nested parts of the work under way, the innermost last; the working thread writes it, another reads it."""

    parts: tuple[ProgressPart, ...] = ()

    def line(self) -> str:
        """Return a line such as `folds 2/5, days 120/504, 4 s left`; empty without parts.

        The time left is that of the outermost part.
        """
        parts = self.parts  # read once, without a lock: the working thread replaces the tuple and never changes it
        if not parts:
            return ""
        seconds_left = parts[0].seconds_left()
        words = [f"{part.noun} {part.done}/{part.total}" for part in parts]
        return ", ".join(words if seconds_left is None else [*words, f"{format_duration(seconds_left)} left"])


_current_track: ContextVar[ProgressTrack | None] = ContextVar("current_track", default=None)


@contextmanager
def track_progress() -> Iterator[ProgressTrack]:
    """Yield a track on which code that runs inside the block, in this thread, counts its progress."""
    track = ProgressTrack()
    token = _current_track.set(track)
    try:
        yield track
    finally:
        _current_track.reset(token)


def count_steps(noun: str, items: Sequence[T]) -> Iterator[T]:
    """Yield the items; count each as a step of the current track, if any, when the next item is requested."""
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
    """Return whether another progress line is due, from monotonic times; `began` is that of the work's beginning."""
    return now - last_report >= max(MINIMUM_LINE_SECONDS, MINIMUM_LINE_SHARE * (now - began))


class Ticker:
    """A thread that calls a function every `REFRESH_SECONDS` until it is stopped."""

    def __init__(self, on_tick: Callable[[], object]) -> None:
        self._on_tick, self._stop_request = on_tick, Event()
        self._thread = Thread(target=self._run_ticks, name="progress", daemon=True)

    def start(self) -> None:
        """Begin to call the function."""
        self._thread.start()

    def stop(self) -> None:
        """End the calls, and wait for a call that is under way."""
        self._stop_request.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run_ticks(self) -> None:
        """Call the function every second, in the ticker's own thread, until it is stopped or its stream fails."""
        while not self._stop_request.wait(REFRESH_SECONDS):
            try:
                self._on_tick()
            except (OSError, ValueError):  # nobody reads any more, or the stream was closed
                return
