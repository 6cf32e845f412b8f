"""Which line runs while memory rises: what C code allocates has no other trace in Python.

The interpreter calls a trace function at each line. What the process has gained since the last line of the user's
belongs to that one, whatever it called meanwhile. What is given back was gained last, so a buffer that is freed again
leaves nothing. Short calls are seen as well as long ones; samples in time would put them down to what waits longest. It
is on for some steps only: a program of many short lines is several times slower meanwhile.

Memory is what glibc's allocator has handed out, so that what it keeps of freed blocks hides nothing, and what is
resident beside it: other allocators, and pages that C code maps itself.

The function is handed over below `sys.settrace`, which would copy the variables of each frame into a dict and keep it.
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
"""How the interpreter calls the event."""
_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
_set = ctypes.PYFUNCTYPE(None, _Function, ctypes.py_object)(("PyEval_SetTrace", ctypes.pythonapi))


class RiseRecorder:
    """Notes the lines at which memory rises, in the thread that begins it."""

    def __init__(self, is_users: Callable[[str], bool], *, seconds: float, quick: float) -> None:
        """Note nothing yet.

        Args:
            is_users: whether the code of a file is the user's.
            seconds: that the notes may take.
            quick: seconds above which the allocator is not asked at each line, as its answer takes as long as it has
                holes.
        """
        self._is_users, self._seconds, self._quick = is_users, seconds, quick
        self._files: dict[str, bool] = {}
        self._kept: list[tuple[Place | None, int, bool]] = []
        """Line and bytes of each rise that was not given back, and whether it came early; the latest last."""
        self._line: Place | None = None
        """The one that runs."""
        self._end: tuple[str, int] | None = None
        """The line up to which a rise is early."""
        self._has_end: dict[CodeType, bool] = {}
        self._stands: int | None = None
        """The line at which the function with that one stands; None while it does not run."""
        self._file: int | None = None
        self._beside: int | None = None
        """What was resident beside the allocator's at the beginning."""
        self._before = self._events = self._most = 0
        self._asks = True
        """Whether the allocator answers quickly enough to be asked at each line."""
        self._function = _Function(self._on_trace_event)

    @property
    def running(self) -> bool:
        """Whether it is noted."""
        return self._file is not None

    def begin(self, end: tuple[str, int] | None = None) -> bool:
        """Begin, unless the program is traced already. Returns whether it has begun.

        Args:
            end: file and line of the user's. Rises are early until its function comes to the line after it, and what
                is told is early.
        """
        if self.running or sys.gettrace() is not None:
            return self.running
        self._kept.clear()
        self._line, self._beside, self._events = None, None, 0
        self._end, self._stands = end, None
        self._has_end.clear()
        self._file = open_file("/proc/self/statm")
        asking = last_seconds() or 0.0
        if asking < self._quick:  # else it would stop the program five times
            asking = _seconds(allocator_totals)
        self._asks = asking < self._quick
        self._most = int(self._seconds / _seconds(self.skip_current_gain))
        _set(self._function, self)
        return True

    def skip_current_gain(self) -> None:
        """What was gained since the last line is not the program's."""
        if self._file is not None:
            self._before = self._bytes(self._file)

    def end(self) -> None:
        """Note nothing more, in the thread that began; what was noted stays."""
        if self._file is not None:
            tracer: object = sys.gettrace()
            if tracer is self:
                sys.settrace(None)
            close_file(self._file)
            self._file = None

    @property
    def kept_count(self) -> int:
        """Rises that were not given back."""
        return len(self._kept)

    @property
    def is_over_budget(self) -> bool:
        """Whether lines have taken as long as they may."""
        return self._events >= self._most

    def main_line(self, *, mostly: float, fewest: int) -> Place | None:
        """The line at which most of the memory came; None if there is none, or it came too late.

        Args:
            mostly: part of all that came that it must have.
            fewest: rises that it must have.
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
        known = size >= mostly * sum(sizes.values()) and times[place] >= fewest
        return place if known and early[place] >= mostly * size else None

    def _on_trace_event(self, _given: int, frame: FrameType, event: int, _argument: int) -> int:
        """One event of the interpreter: a call, a line, a return, an exception."""
        code = frame.f_code
        users = self._files.get(code.co_filename)
        if users is None:
            users = self._files[code.co_filename] = self._is_users(code.co_filename)
        if users and self._file is not None:
            self._note(self._bytes(self._file))
            here = (code.co_filename, frame.f_lineno, code.co_qualname)
            self._line = self._outer(frame) if event == _RETURN else here
            if self._holds_end(code):
                goes_on = frame.f_back if event == _RETURN else frame
                known = goes_on is not None and self._holds_end(goes_on.f_code)
                self._stands = goes_on.f_lineno if goes_on is not None and known else None
            if self._events >= self._most:
                sys.settrace(None)
        return 0

    def _note(self, now: int) -> None:
        """Put what has come since the last event down to the line that ran; what has gone, to what came last."""
        self._events += 1
        gained, self._before = now - self._before, now
        if gained > 0:
            self._kept.append((self._line, gained, self._is_early()))
        while gained < 0 and self._kept:
            place, size, is_early = self._kept.pop()
            gained += size
            if gained > 0:
                self._kept.append((place, gained, is_early))

    def _is_early(self) -> bool:
        return self._end is None or (self._stands is not None and self._stands <= self._end[1])

    def _holds_end(self, code: CodeType) -> bool:
        """Whether the line up to which a rise is early is one of the code's."""
        if self._end is None or code.co_filename != self._end[0]:
            return False
        if code not in self._has_end:
            self._has_end[code] = any(line == self._end[1] for _, _, line in code.co_lines())
        return self._has_end[code]

    def _outer(self, frame: FrameType) -> Place | None:
        """The user's line that goes on when a function returns."""
        outer = frame.f_back
        while outer is not None and not self._is_users(outer.f_code.co_filename):
            outer = outer.f_back
        return None if outer is None else (outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_qualname)

    def _bytes(self, file: int) -> int:
        """What is handed out, and what is resident beside it and in no file."""
        _, resident, shared, *_ = read_at_beginning(file).split()
        private = (int(resident) - int(shared)) * _PAGE
        held = allocator_totals() if self._asks else None
        if held is None:
            return private
        beside = private - held.in_use - held.free
        if self._beside is None:
            self._beside = beside
        return held.in_use + max(0, beside - self._beside)


def _seconds(act: Callable[[], object]) -> float:
    """What it takes where no other process has the core meanwhile: the least of five times."""
    least = math.inf
    for _ in range(5):
        began = monotonic()
        act()
        least = min(least, monotonic() - began)
    return least
