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
        elif monotonic() >= self._next_query and not self._start_query_process(expected_seconds()):
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

    def _start_query_process(self, query_seconds: float) -> bool:
        """Start the query in another process, if that stops the program for less time than the query; return whether.

        Args:
            query_seconds: CPU seconds that the query may take.
        """
        if query_seconds <= SLOW_QUERY_SECONDS:
            return False
        anonymous = footprint().anonymous
        ways: tuple[tuple[float, Callable[[], ProcessCopy | DetachedFork]], ...] = (
            (CLONE_SECONDS_PER_BYTE, ProcessCopy),
            (FORK_SECONDS_PER_BYTE, _start_fork),
        )
        for seconds_per_byte, begin in ways:
            if query_seconds > seconds_per_byte * anonymous:
                with suppress(OSError):  # no memory for it, another machine, or a library that does not bear it
                    self._query_process = begin()
                    return True
        return False

    def _take_result_(self, query: ProcessCopy | DetachedFork) -> None:
        """Take the answer of a query that has ended in another process; None if the C library has no totals."""
        self._query_process = None
        try:
            answer = query.result()
        except RuntimeError:
            # The process was killed, as a rule because another thread held malloc's lock when it was made: the next
            # one might be killed as well, and without totals no reading is taken. So the next query is made at once in
            # this process, however long it takes: by its real seconds `_schedule_query_` then keeps it to its share.
            note_seconds(0.0)
            return
        if answer is None:
            self._newest = None
            note_seconds(0.0)
        else:
            in_use, free, query_seconds = answer
            self._newest = AllocatorTotals(in_use, free)
            note_seconds(query_seconds)
        self._schedule_query_()

    def _schedule_query_(self) -> None:
        """Set the time of the next query by the seconds of the last one."""
        query_seconds = expected_seconds()
        self._next_query = monotonic() + (
            query_seconds / SLOW_QUERY_SHARE if query_seconds > SLOW_QUERY_SECONDS else 0.0
        )


def _start_fork() -> DetachedFork:
    return DetachedFork(_query_totals)


def _query_totals() -> tuple[int, int, float] | None:
    """The totals and the CPU seconds of the query, as JSON can hold them."""
    # In a fork of this process: no lock is taken, and nothing is printed.
    totals = allocator_totals()
    return None if totals is None else (totals.in_use, totals.free, expected_seconds())
