"""How far something that takes long has come: counted where its steps are taken, shown by whoever waits for it.

Code that computes says what it does by `steps`; it neither knows who looks nor waits for them. Where nobody does,
nothing is counted.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Part:
    """Steps of one kind."""

    what: str
    total: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def seconds_left(self) -> float | None:
        """At the pace so far; None before the first step is done."""
        return (time.monotonic() - self.began) / self.done * (self.total - self.done) if self.done else None


@dataclass
class Course:
    """What is at work, the innermost part last; read by another thread."""

    parts: tuple[Part, ...] = ()


_watched: ContextVar[Course | None] = ContextVar("watched", default=None)


@contextmanager
def watched() -> Iterator[Course]:
    """A course on which everything called from within, in this thread, says how far it has come."""
    course = Course()
    before = _watched.set(course)
    try:
        yield course
    finally:
        _watched.reset(before)


def steps(what: str, items: Sequence[T]) -> Iterator[T]:
    """The items, each counted as a step of `what` when the next one is asked for."""
    course = _watched.get()
    if course is None:
        yield from items
        return
    part, around = Part(what, len(items)), course.parts
    course.parts = (*around, part)
    try:
        for item in items:
            yield item
            part.done += 1
    finally:
        course.parts = around
