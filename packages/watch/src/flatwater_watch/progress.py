"""How far something that takes long has come: counted where its steps are taken, shown by whoever waits for it.

Code that computes says what it does by `steps`; it neither knows who looks nor waits for them. Where nobody does,
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
"""Between two lines about something that goes on, where nobody sees a line move; and of the time that it has taken: a
line for each 10 seconds of five minutes, and not 3,600 of ten hours."""
MOVED_SECONDS = 1.0
"""Between two looks at whether there is something to say."""


@dataclass
class ProgressPart:
    """Steps of one kind."""

    what: str
    total: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def seconds_left(self) -> float | None:
        """At the pace so far; None before the first step is done."""
        return (time.monotonic() - self.began) / self.done * (self.total - self.done) if self.done else None


@dataclass
class ProgressTrack:
    """What is at work, the innermost part last; read by another thread."""

    parts: tuple[ProgressPart, ...] = ()

    def line(self) -> str:
        """`fold 2/5, days 120/504, 4 s left`; empty where nothing is counted. The time is that of the outermost."""
        parts = self.parts  # as it is now: the thread at work puts another one in its place
        if not parts:
            return ""
        left = parts[0].seconds_left()
        words = [f"{part.what} {part.done}/{part.total}" for part in parts]
        return ", ".join(words if left is None else [*words, f"{format_duration(left)} left"])


_watched: ContextVar[ProgressTrack | None] = ContextVar("watched", default=None)


@contextmanager
def track_progress() -> Iterator[ProgressTrack]:
    """A course on which everything called from within, in this thread, says how far it has come."""
    course = ProgressTrack()
    before = _watched.set(course)
    try:
        yield course
    finally:
        _watched.reset(before)


def count_steps(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, each counted as a step of `what` when the next one is asked for."""
    course = _watched.get()
    if course is None:
        yield from items
        return
    part, around = ProgressPart(what, len(items)), course.parts
    course.parts = (*around, part)
    try:
        for item in items:
            yield item
            part.done += 1
    finally:
        course.parts = around


def is_due(now: float, began: float, told: float) -> bool:
    """Whether a line is to be said again, of what began and was last told of at these moments."""
    return now - told >= max(TOLD_SECONDS, TOLD_SHARE * (now - began))


class Ticker:
    """Calls a function in a thread of its own, every second, until it is stopped."""

    def __init__(self, tell: Callable[[], object]) -> None:
        """Nothing is called before `start`."""
        self._tell, self._over = tell, Event()
        self._thread = Thread(target=self._tick, name="progress", daemon=True)

    def start(self) -> None:
        """Begin to call."""
        self._thread.start()

    def stop(self) -> None:
        """Call no more; a call that is being made is waited for."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _tick(self) -> None:
        while not self._over.wait(MOVED_SECONDS):
            try:
                self._tell()
            except (OSError, ValueError):  # nobody reads any more, or the stream was closed
                return
