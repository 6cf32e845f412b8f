"""The allocator's totals, again and again, without a long stop: where an answer takes long, another process gives it.

glibc visits each free chunk to answer, and holds the lock of the heap meanwhile: a thread would stop the program too.
A copy of the process stops it for as long as its page tables are copied.
"""

from collections.abc import Callable
from contextlib import suppress

from flatwater_watch.meters.allocator import AllocatorTotals, allocator_totals, expected_seconds, note_seconds
from flatwater_watch.meters.allocator_clone import ProcessCopy
from flatwater_watch.meters.fork import DetachedFork
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.system_calls import monotonic

SLOW = 0.02
"""CPU seconds from which on an answer is dear, ..."""
SHARE = 0.02
"""... so that it is asked for again when it is that part of the time."""
CLONING = 0.02 / (1 << 30)
"""Seconds for which a program stands still to be copied once, for each anonymous byte that is resident: of a GiB 9 to
13 ms on idle cores, 14 to 27 where two other processes keep both busy."""
FORKING = 0.08 / (1 << 30)
"""Seconds for each resident byte that a program pauses when it forks twice instead: for a GiB 26 ms to copy the page
tables once, and 80 ms in all on idle cores."""


class AllocatorMeter:
    """What `totals` says, of now or of lately."""

    def __init__(self) -> None:
        """Ask nothing yet."""
        self._last: AllocatorTotals | None = None
        self._due = 0.0
        self._apart: ProcessCopy | DetachedFork | None = None

    @property
    def pending(self) -> bool:
        """Whether the first answer is not there yet: ask again."""
        return self._last is None and self.newest_totals_() is None and self._apart is not None

    def newest_totals_(self) -> AllocatorTotals | None:
        """The newest answer; None where the C library has none, or the first one is not there yet."""
        if self._apart is not None:
            self.take_answer_()
        elif monotonic() >= self._due and not self._ask_apart(expected_seconds()):
            self._last = allocator_totals()
            self._wait()
        return self._last

    def take_answer_(self) -> None:
        """Take note of an answer that has come meanwhile, so that the process that gave it is gone. Asks for none."""
        if self._apart is not None and self._apart.is_done():
            self._hear(self._apart)

    def close(self) -> None:
        """Wait for no answer any more."""
        if self._apart is not None:
            self._apart.stop()
            self._apart = None

    def _ask_apart(self, took: float) -> bool:
        """Ask in another process, if that takes less of the program's time than the answer."""
        if took <= SLOW:
            return False
        anonymous = footprint().anonymous
        ways: tuple[tuple[float, Callable[[], ProcessCopy | DetachedFork]], ...] = (
            (CLONING, ProcessCopy),
            (FORKING, _start_fork),
        )
        for pause, begin in ways:
            if took > pause * anonymous:
                with suppress(OSError):  # no memory for it, another machine, or a library that does not bear it
                    self._apart = begin()
                    return True
        return False

    def _hear(self, apart: ProcessCopy | DetachedFork) -> None:
        self._apart = None
        try:
            told = apart.answer()
        except RuntimeError:  # it was killed; the next one is asked at once
            note_seconds(0.0)
            return
        self._last = None if told is None else AllocatorTotals(told[0], told[1])
        note_seconds(0.0 if told is None else told[2])
        self._wait()

    def _wait(self) -> None:
        took = expected_seconds()
        self._due = monotonic() + (took / SHARE if took > SLOW else 0.0)


def _start_fork() -> DetachedFork:
    return DetachedFork(_answer)


def _answer() -> tuple[int, int, float] | None:
    """In the fork: the totals, and what they took."""
    found = allocator_totals()
    return None if found is None else (found.in_use, found.free, expected_seconds())
