"""The lines at which memory rises: allocations of C code leave no other trace in Python.

The interpreter calls a trace function at each line. Bytes that the process has gained since the last line of the user's
belong to that line, whatever it called meanwhile. Bytes that are given back are taken from a recent gain of the same
size, or else from the latest gains, so that a buffer that is freed again leaves nothing, whatever came after it. Short
calls are seen as well as long calls; samples in time would blame the line that waits longest. The trace is on for some
steps only: a program of many short lines is several times slower meanwhile.

Memory is the bytes that glibc's allocator has handed out, so that freed blocks which it keeps hide nothing, and the
resident bytes of others: other allocators, and pages that C code maps itself.

The function is set below `sys.settrace`, which would copy the variables of each frame into a dict and keep it.
"""

import ctypes
import math
import os
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import NamedTuple

from flatwater_watch.meters.allocator import allocator_totals, last_seconds
from flatwater_watch.meters.system_calls import close_file, monotonic, open_file, read_at_beginning

LinePlace = tuple[str, int, str]
"""File, line, and qualified name of the function."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAXIMUM_COMPARED_RISES = 32
"""Maximum number of the latest rises whose size is compared with that of lost bytes."""
_RETURN_EVENT = 3
"""Number of the event of a return (`PyTrace_RETURN`)."""
_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
_set_trace = ctypes.PYFUNCTYPE(None, _Function, ctypes.py_object)(("PyEval_SetTrace", ctypes.pythonapi))


class _Rise(NamedTuple):
    """Rises of one line with no rise of another between them, as of a list that grows item by item."""

    line: LinePlace | None
    size: int
    """Bytes that were not given back."""
    times: int
    is_early: bool


class RiseRecorder:
    """Records the lines at which memory rises, in the thread that begins it."""

    def __init__(self, is_users: Callable[[str], bool], *, seconds: float, quick: float) -> None:
        """Prepare without recording.

        Args:
            is_users: whether the code of a file is the user's.
            seconds: maximum seconds of all recorded events together.
            quick: maximum seconds of a query to the allocator at each line; it takes longer the more holes a heap has.
        """
        self._is_users, self._maximum_seconds, self._maximum_query_seconds = is_users, seconds, quick
        self._user_file_by_name: dict[str, bool] = {}
        self._lasting_rises: list[_Rise] = []
        """Rises that were not given back, the latest last."""
        self._running_line: LinePlace | None = None
        """The user's line that runs."""
        self._early_end: tuple[str, int] | None = None
        """The line up to which a rise is early."""
        self._holds_end_by_code: dict[CodeType, bool] = {}
        """Whether that line is in a function, by the function's code."""
        self._end_function_line: int | None = None
        """The line at which the function with that line stands; None while it does not run."""
        self._statm_file: int | None = None
        """Descriptor of /proc/self/statm, which stays open: a read costs less than an open."""
        self._bytes_beside_allocator: int | None = None
        """Resident bytes other than the allocator's at the beginning."""
        self._bytes_at_last_event = self._event_count = self._maximum_events = 0
        self._queries_allocator = True
        """Whether the allocator answers quickly enough to be asked at each line."""
        self._trace_function = _Function(self._on_trace_event)

    @property
    def running(self) -> bool:
        """Whether lines are recorded."""
        return self._statm_file is not None

    def begin(self, end: tuple[str, int] | None = None) -> bool:
        """Begin, unless the program is traced already; return whether lines are recorded.

        Args:
            end: file and line of the user's. Rises are early until its function comes to the line after it, and only
                lines of early rises are reported.
        """
        if self.running or sys.gettrace() is not None:
            return self.running
        self._lasting_rises.clear()
        self._running_line, self._bytes_beside_allocator, self._event_count = None, None, 0
        self._early_end, self._end_function_line = end, None
        self._holds_end_by_code.clear()
        self._statm_file = open_file("/proc/self/statm")
        query_seconds = last_seconds() or 0.0
        if query_seconds < self._maximum_query_seconds:  # else it would stop the program five times
            query_seconds = _shortest_call_seconds(allocator_totals)
        self._queries_allocator = query_seconds < self._maximum_query_seconds
        self._maximum_events = int(self._maximum_seconds / _shortest_call_seconds(self.skip_current_gain))
        _set_trace(self._trace_function, self)
        return True

    def skip_current_gain(self) -> None:
        """Leave out the bytes gained since the last line: they are not the program's."""
        if self._statm_file is not None:
            self._bytes_at_last_event = self._bytes_in_use(self._statm_file)

    def end(self) -> None:
        """Stop recording, in the thread that began; the records stay."""
        if self._statm_file is not None:
            tracer: object = sys.gettrace()
            if tracer is self:  # the program may have set a tracer of its own meanwhile
                sys.settrace(None)
            close_file(self._statm_file)
            self._statm_file = None

    @property
    def kept_count(self) -> int:
        """Number of rises that were not given back."""
        return sum(rise.times for rise in self._lasting_rises)

    @property
    def is_over_budget(self) -> bool:
        """Whether recording has taken as long as it may."""
        return self._event_count >= self._maximum_events

    def main_line(self, *, mostly: float, fewest: int) -> LinePlace | None:
        """The line at which most of the memory came; None if there is no such line, or its rises were not early.

        Args:
            mostly: minimum share of all bytes for the line.
            fewest: minimum number of rises for the line.
        """
        sizes = Counter[LinePlace | None]()
        times = Counter[LinePlace | None]()
        early_sizes = Counter[LinePlace | None]()
        for rise in self._lasting_rises:
            sizes[rise.line] += rise.size
            times[rise.line] += rise.times
            early_sizes[rise.line] += rise.size * rise.is_early
        if not sizes:
            return None
        place, size = sizes.most_common(1)[0]
        is_main = size >= mostly * sum(sizes.values()) and times[place] >= fewest
        return place if is_main and early_sizes[place] >= mostly * size else None

    def _on_trace_event(self, _given: int, frame: FrameType, event: int, _argument: int) -> int:
        """Record one event of the interpreter: a call, a line, a return, an exception.

        Args:
            _given: object of the trace function, not used; the parameters are those of C's `Py_tracefunc`.
            frame: frame in which the event occurs.
            event: number of the event, such as `_RETURN_EVENT`.
            _argument: address of the event's value, not used.

        Returns:
            0: the program goes on.
        """
        # Runs at every line of the program: little may be done, and no file of a library is looked at twice.
        code = frame.f_code
        users = self._user_file_by_name.get(code.co_filename)
        if users is None:
            users = self._user_file_by_name[code.co_filename] = self._is_users(code.co_filename)
        if users and self._statm_file is not None:
            self._assign_gain_(self._bytes_in_use(self._statm_file))
            line_here = (code.co_filename, frame.f_lineno, code.co_qualname)
            self._running_line = self._outer_user_line(frame) if event == _RETURN_EVENT else line_here
            if self._holds_end(code):
                goes_on = frame.f_back if event == _RETURN_EVENT else frame
                holds_end = goes_on is not None and self._holds_end(goes_on.f_code)
                self._end_function_line = goes_on.f_lineno if goes_on is not None and holds_end else None
            if self._event_count >= self._maximum_events:
                sys.settrace(None)
        return 0

    def _assign_gain_(self, now: int) -> None:
        """Assign bytes gained since the last event to the line that ran; take lost bytes from their rise."""
        self._event_count += 1
        gain, self._bytes_at_last_event = now - self._bytes_at_last_event, now
        rises = self._lasting_rises
        if gain > 0:
            rise = _Rise(self._running_line, gain, 1, self._is_early())
            if rises and (rises[-1].line, rises[-1].is_early) == (rise.line, rise.is_early):
                rise = rise._replace(size=gain + rises[-1].size, times=1 + rises.pop().times)
            rises.append(rise)
        elif gain < 0:
            # What goes after a copy was made of it is not the copy.
            recent = reversed(range(max(0, len(rises) - MAXIMUM_COMPARED_RISES), len(rises)))
            same = next((index for index in recent if rises[index].size == -gain), None)
            if same is not None:
                del rises[same]
                return
        while gain < 0 and rises:
            rise = rises.pop()
            gain += rise.size
            if gain > 0:
                rises.append(rise._replace(size=gain, times=max(1, rise.times * gain // rise.size)))

    def _is_early(self) -> bool:
        return self._early_end is None or (
            self._end_function_line is not None and self._end_function_line <= self._early_end[1]
        )

    def _holds_end(self, code: CodeType) -> bool:
        """Whether the code has the line up to which a rise is early."""
        if self._early_end is None or code.co_filename != self._early_end[0]:
            return False
        if code not in self._holds_end_by_code:
            self._holds_end_by_code[code] = any(line == self._early_end[1] for _, _, line in code.co_lines())
        return self._holds_end_by_code[code]

    def _outer_user_line(self, frame: FrameType) -> LinePlace | None:
        """The user's line that goes on when a function returns; None if there is none."""
        outer = frame.f_back
        while outer is not None and not self._is_users(outer.f_code.co_filename):
            outer = outer.f_back
        return None if outer is None else (outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_qualname)

    def _bytes_in_use(self, file: int) -> int:
        """Bytes that the allocator has handed out, and other anonymous resident bytes."""
        _, resident, shared, *_ = read_at_beginning(file).split()
        private = (int(resident) - int(shared)) * _PAGE_BYTES
        totals = allocator_totals() if self._queries_allocator else None
        if totals is None:
            return private
        other_bytes = private - totals.in_use - totals.free
        if self._bytes_beside_allocator is None:
            self._bytes_beside_allocator = other_bytes
        return totals.in_use + max(0, other_bytes - self._bytes_beside_allocator)


def _shortest_call_seconds(act: Callable[[], object]) -> float:
    """Seconds of a call without interruption: the least of five, as other processes may have the core meanwhile."""
    shortest = math.inf
    for _ in range(5):
        began = monotonic()
        act()
        shortest = min(shortest, monotonic() - began)
    return shortest
