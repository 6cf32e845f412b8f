"""The lines at which memory rises: allocations of C code leave no other trace in Python.

The interpreter calls a trace function at each line. Bytes that the process has gained since the last line of the user's
belong to that line, whatever it called meanwhile. Bytes that are given back are taken from the latest gains, so that a
buffer that is freed again leaves nothing. Short calls are seen as well as long ones; samples in time would blame the
line that waits longest. The trace is on for some steps only: a program of many short lines is several times slower
meanwhile.

Memory is the bytes that glibc's allocator has handed out, so that freed blocks which it keeps hide nothing, and the
resident bytes beside it: other allocators, and pages that C code maps itself.

The function is set below `sys.settrace`, which would copy the variables of each frame into a dict and keep it.
"""

import ctypes
import math
import os
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from flatwater_watch.meters.allocator import allocator_totals, last_seconds
from flatwater_watch.meters.system_calls import close_file, monotonic, open_file, read_at_beginning

Place = tuple[str, int, str]
"""File, line, and qualified name of the function."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RETURN = 3
"""Number of the event of a return (`PyTrace_RETURN`)."""
_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
_set = ctypes.PYFUNCTYPE(None, _Function, ctypes.py_object)(("PyEval_SetTrace", ctypes.pythonapi))


class RiseRecorder:
    """Records the lines at which memory rises, in the thread that begins it."""

    def __init__(self, is_users: Callable[[str], bool], *, seconds: float, quick: float) -> None:
        """Prepare without recording.

        Args:
            is_users: whether the code of a file is the user's.
            seconds: maximum seconds of all recorded events together.
            quick: maximum seconds of a query to the allocator at each line; it takes longer the more holes a heap has.
        """
        self._is_users, self._seconds, self._quick = is_users, seconds, quick
        self._files: dict[str, bool] = {}
        self._kept: list[tuple[Place | None, int, bool]] = []
        """Line and bytes of each rise that was not given back, and whether it came early; the latest last."""
        self._line: Place | None = None
        """The user's line that runs."""
        self._end: tuple[str, int] | None = None
        """The line up to which a rise is early."""
        self._has_end: dict[CodeType, bool] = {}
        """Whether that line is in a function, by the function's code."""
        self._stands: int | None = None
        """The line at which the function with that line stands; None while it does not run."""
        self._file: int | None = None
        """Descriptor of /proc/self/statm, which stays open: a read costs less than an open."""
        self._beside: int | None = None
        """Resident bytes beside the allocator's at the beginning."""
        self._before = self._events = self._most = 0
        self._asks = True
        """Whether the allocator answers quickly enough to be asked at each line."""
        self._function = _Function(self._on_trace_event)

    @property
    def running(self) -> bool:
        """Whether lines are recorded."""
        return self._file is not None

    def begin(self, end: tuple[str, int] | None = None) -> bool:
        """Begin, unless the program is traced already; return whether lines are recorded.

        Args:
            end: file and line of the user's. Rises are early until its function comes to the line after it, and only
                lines of early rises are reported.
        """
        if self.running or sys.gettrace() is not None:
            return self.running
        self._kept.clear()
        self._line, self._beside, self._events = None, None, 0
        self._end, self._stands = end, None
        self._has_end.clear()
        self._file = open_file("/proc/self/statm")
        query_seconds = last_seconds() or 0.0
        if query_seconds < self._quick:  # else it would stop the program five times
            query_seconds = _seconds(allocator_totals)
        self._asks = query_seconds < self._quick
        self._most = int(self._seconds / _seconds(self.skip_current_gain))
        _set(self._function, self)
        return True

    def skip_current_gain(self) -> None:
        """Leave out the bytes gained since the last line: they are not the program's."""
        if self._file is not None:
            self._before = self._bytes(self._file)

    def end(self) -> None:
        """Stop recording, in the thread that began; the records stay."""
        if self._file is not None:
            tracer: object = sys.gettrace()
            if tracer is self:  # the program may have set a tracer of its own meanwhile
                sys.settrace(None)
            close_file(self._file)
            self._file = None

    @property
    def kept_count(self) -> int:
        """Number of rises that were not given back."""
        return len(self._kept)

    @property
    def is_over_budget(self) -> bool:
        """Whether recording has taken as long as it may."""
        return self._events >= self._most

    def main_line(self, *, mostly: float, fewest: int) -> Place | None:
        """The line at which most of the memory came; None if there is no such line, or its rises were not early.

        Args:
            mostly: minimum share of all bytes for the line.
            fewest: minimum number of rises for the line.
        """
        sizes, times = Counter[Place | None](), Counter[Place | None]()
        early = Counter[Place | None]()
        for place, size, is_early in self._kept:
            sizes[place] += size
            times[place] += 1
            early[place] += size * is_early
        if not sizes:
            return None
        place, size = sizes.most_common(1)[0]
        is_main = size >= mostly * sum(sizes.values()) and times[place] >= fewest
        return place if is_main and early[place] >= mostly * size else None

    def _on_trace_event(self, _given: int, frame: FrameType, event: int, _argument: int) -> int:
        """Record one event of the interpreter: a call, a line, a return, an exception.

        Args:
            _given: object of the trace function, not used; the parameters are those of C's `Py_tracefunc`.
            frame: frame in which the event occurs.
            event: number of the event, such as `_RETURN`.
            _argument: address of the event's value, not used.

        Returns:
            0: the program goes on.
        """
        # Runs at every line of the program: little may be done, and no file of a library is looked at twice.
        code = frame.f_code
        users = self._files.get(code.co_filename)
        if users is None:
            users = self._files[code.co_filename] = self._is_users(code.co_filename)
        if users and self._file is not None:
            self._note(self._bytes(self._file))
            line_here = (code.co_filename, frame.f_lineno, code.co_qualname)
            self._line = self._outer(frame) if event == _RETURN else line_here
            if self._holds_end(code):
                goes_on = frame.f_back if event == _RETURN else frame
                holds_end = goes_on is not None and self._holds_end(goes_on.f_code)
                self._stands = goes_on.f_lineno if goes_on is not None and holds_end else None
            if self._events >= self._most:
                sys.settrace(None)
        return 0

    def _note(self, now: int) -> None:
        """Assign bytes gained since the last event to the line that ran; take lost bytes from the latest rises."""
        self._events += 1
        gain, self._before = now - self._before, now
        if gain > 0:
            self._kept.append((self._line, gain, self._is_early()))
        while gain < 0 and self._kept:
            line, size, is_early = self._kept.pop()
            gain += size
            if gain > 0:
                self._kept.append((line, gain, is_early))

    def _is_early(self) -> bool:
        return self._end is None or (self._stands is not None and self._stands <= self._end[1])

    def _holds_end(self, code: CodeType) -> bool:
        """Whether the code has the line up to which a rise is early."""
        if self._end is None or code.co_filename != self._end[0]:
            return False
        if code not in self._has_end:
            self._has_end[code] = any(line == self._end[1] for _, _, line in code.co_lines())
        return self._has_end[code]

    def _outer(self, frame: FrameType) -> Place | None:
        """The user's line that goes on when a function returns; None if there is none."""
        outer = frame.f_back
        while outer is not None and not self._is_users(outer.f_code.co_filename):
            outer = outer.f_back
        return None if outer is None else (outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_qualname)

    def _bytes(self, file: int) -> int:
        """Bytes that the allocator has handed out, and anonymous resident bytes beside it."""
        _, resident, shared, *_ = read_at_beginning(file).split()
        private = (int(resident) - int(shared)) * _PAGE
        totals = allocator_totals() if self._asks else None
        if totals is None:
            return private
        beside = private - totals.in_use - totals.free
        if self._beside is None:
            self._beside = beside
        return totals.in_use + max(0, beside - self._beside)


def _seconds(act: Callable[[], object]) -> float:
    """Seconds of a call without interruption: the least of five, as other processes may have the core meanwhile."""
    shortest = math.inf
    for _ in range(5):
        began = monotonic()
        act()
        shortest = min(shortest, monotonic() - began)
    return shortest
