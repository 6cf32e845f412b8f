"""The allocator's totals, again and again, without a long pause: if a query takes long, another process makes it.

glibc visits each free chunk for a query, and holds the lock of the heap meanwhile: a thread would stop the program too.
A copy of the process stops it only while the page tables are copied.
"""

from collections.abc import Callable
from contextlib import suppress

from flatwater_watch.meters.allocator import AllocatorTotals, allocator_totals, expected_seconds, note_seconds
from flatwater_watch.meters.allocator_clone import ProcessCopy
from flatwater_watch.meters.fork import DetachedFork
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.system_calls import monotonic

SLOW_QUERY_SECONDS = 0.02
"""CPU seconds from which on a query is costly."""
SLOW_QUERY_SHARE = 0.02
"""Share of the time that costly queries may take."""
CLONE_SECONDS_PER_BYTE = 0.02 / (1 << 30)
"""Seconds for each anonymous resident byte that a program pauses to be copied: for a GiB 9 to 13 ms on idle cores, 14
to 27 ms if two other processes keep both cores busy."""
FORK_SECONDS_PER_BYTE = 0.08 / (1 << 30)
"""Seconds for each resident byte that a program pauses to fork twice instead: for a GiB 26 ms to copy the page tables
once, and 80 ms in total on idle cores."""


class AllocatorMeter:
    """The newest totals of the allocator, from a query of now or of lately."""

    def __init__(self) -> None:
        self._newest: AllocatorTotals | None = None
        self._next_query = 0.0
        self._query_process: ProcessCopy | DetachedFork | None = None

    @property
    def pending(self) -> bool:
        """Whether the first query is still under way in another process."""
        return self._newest is None and self.newest_totals_() is None and self._query_process is not None

    def newest_totals_(self) -> AllocatorTotals | None:
        """The newest totals; None if the C library has none, or the first query is still under way."""
        if self._query_process is not None:
            self.take_answer_()
        elif monotonic() >= self._next_query and not self._query_in_process(expected_seconds()):
            self._newest = allocator_totals()
            self._schedule_query_()
        return self._newest

    def take_answer_(self) -> None:
        """Take an answer that has come meanwhile, so that the process that gave it is gone; make no new query."""
        if self._query_process is not None and self._query_process.is_done():
            self._take_result_(self._query_process)

    def close(self) -> None:
        """End a query that is under way."""
        if self._query_process is not None:
            self._query_process.stop()
            self._query_process = None

    def _query_in_process(self, query_seconds: float) -> bool:
        """Start the query in another process, if that stops the program for a shorter time than the query itself."""
        if query_seconds <= SLOW_QUERY_SECONDS:
            return False
        anonymous = footprint().anonymous
        ways: tuple[tuple[float, Callable[[], ProcessCopy | DetachedFork]], ...] = (
            (CLONE_SECONDS_PER_BYTE, ProcessCopy),
            (FORK_SECONDS_PER_BYTE, _start_fork),
        )
        for pause, begin in ways:
            if query_seconds > pause * anonymous:
                with suppress(OSError):  # no memory for it, another machine, or a library that does not bear it
                    self._query_process = begin()
                    return True
        return False

    def _take_result_(self, apart: ProcessCopy | DetachedFork) -> None:
        """Take the answer of a query that has ended in another process; None means that the C library has no totals."""
        self._query_process = None
        try:
            answer = apart.result()
        except RuntimeError:  # the process was killed; the next query begins at once
            note_seconds(0.0)
            return
        self._newest = None if answer is None else AllocatorTotals(answer[0], answer[1])
        note_seconds(0.0 if answer is None else answer[2])
        self._schedule_query_()

    def _schedule_query_(self) -> None:
        query_seconds = expected_seconds()
        self._next_query = monotonic() + (
            query_seconds / SLOW_QUERY_SHARE if query_seconds > SLOW_QUERY_SECONDS else 0.0
        )


def _start_fork() -> DetachedFork:
    return DetachedFork(_query_totals)


def _query_totals() -> tuple[int, int, float] | None:
    """The totals and the CPU seconds of the query, as JSON can hold them; runs in the fork."""
    totals = allocator_totals()
    return None if totals is None else (totals.in_use, totals.free, expected_seconds())
