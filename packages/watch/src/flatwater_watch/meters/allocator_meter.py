"""A meter of the allocator's totals that does not stop the program for long: another process makes a slow query.

The totals are the bytes that the program uses, and the bytes that it freed and the allocator keeps.
glibc visits each free chunk for a query, and holds the lock of the heap meanwhile, so that a query in another thread
would stop the program too. A copy of the process stops it only while the page tables are copied.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

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
    """A meter that has the newest totals of the allocator, which are as old as the last query."""

    def __init__(self) -> None:
        self._newest: AllocatorTotals | None = None
        self._next_query_time = 0.0  # monotonic
        self._query_process: ProcessCopy | DetachedFork | None = None

    def awaits_first_answer_(self) -> bool:
        """Begin or end the first query if that is due; return whether it is still under way in another process."""
        if self._newest is not None:
            return False
        totals = self.newest_totals_()  # begins a query, or takes its answer
        return totals is None and self._query_process is not None

    def newest_totals_(self) -> AllocatorTotals | None:
        """Return the newest totals; None if the C library has none, or the first query is still under way.

        If a query is due, a quick one is made first, and a slow one is started in another process.
        """
        if self._query_process is not None:
            self.take_answer_()
        elif monotonic() >= self._next_query_time:
            has_begun = self._start_query_process_(expected_seconds())
            if not has_begun:  # the query is quick, or no other process could be started
                self._newest = allocator_totals()
                self._schedule_query_()
        return self._newest

    def take_answer_(self) -> None:
        """Take the answer of the other process, if it has come, and let that process go; make no new query."""
        if self._query_process is None or not self._query_process.is_done():
            return
        query, self._query_process = self._query_process, None
        try:
            answer = query.result()
        except RuntimeError:
            # The process was killed, as a rule because another thread held malloc's lock when it was made: another
            # process might be killed as well, and without totals no reading is taken. With 0 expected seconds the next
            # query is made at once in this process; by its real seconds `_schedule_query_` then keeps to the share.
            note_seconds(0.0)
            return
        if answer is None:  # the C library has no totals
            self._newest = None
            note_seconds(0.0)
        else:
            in_use, free, query_seconds = answer
            self._newest = AllocatorTotals(in_use, free)
            note_seconds(query_seconds)
        self._schedule_query_()

    def close(self) -> None:
        """End a query that is under way."""
        if self._query_process is not None:
            self._query_process.stop()
            self._query_process = None

    def _start_query_process_(self, query_seconds: float) -> bool:
        """Start a slow query of so many seconds in another process; return whether it began.

        It does not if it is quick, or if each kind of process would stop the program for longer.
        """
        if query_seconds <= SLOW_QUERY_SECONDS:
            return False
        anonymous_bytes = footprint().anonymous
        # Kinds of processes with the pause that starting one takes; the shorter pause first.
        starters: tuple[tuple[float, Callable[[], ProcessCopy | DetachedFork]], ...] = (
            (CLONE_SECONDS_PER_BYTE, ProcessCopy),
            (FORK_SECONDS_PER_BYTE, partial(DetachedFork, _query_totals)),
        )
        for pause_seconds_per_byte, start in starters:
            if query_seconds > pause_seconds_per_byte * anonymous_bytes:
                # It fails without memory for a copy, on another machine than x86-64, or if a library hangs in a fork.
                with suppress(OSError):
                    self._query_process = start()
                    return True
        return False

    def _schedule_query_(self) -> None:
        """Set the time of the next query: now, or if queries are slow, so late that they keep within their share."""
        query_seconds = expected_seconds()
        is_slow = query_seconds > SLOW_QUERY_SECONDS
        self._next_query_time = monotonic() + (query_seconds / SLOW_QUERY_SHARE if is_slow else 0.0)


def _query_totals() -> tuple[int, int, float] | None:
    """Return the bytes in use, the free bytes, and the CPU seconds of the query; None if there are no totals."""
    # In a fork of this process: no lock is taken, and nothing is printed.
    totals = allocator_totals()
    query_seconds = expected_seconds()  # after a query, those of this query
    return None if totals is None else (totals.in_use, totals.free, query_seconds)
