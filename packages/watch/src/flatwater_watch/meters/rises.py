"""The lines at which memory rises: allocations of C code leave no other trace in Python.

The interpreter calls a trace function at each event: a call, a line, a return. Bytes that the process has gained since
the last line of the user's code belong to that line, whatever it called meanwhile: they are a rise. Bytes that are
given back are taken from a recent rise of the same size, or from a few that are as large together, or else from the
latest rises, so that a buffer that is freed again leaves nothing, whatever came after it, and also if it goes with
others a round later.
Short calls are seen as well as long calls; a sampling profiler would blame the line that waits longest. The trace is on
for some steps only, as a program of many short lines is several times slower meanwhile.

A recording may have an end line: rises are early while the function with that line runs and is not past it, and only
lines whose rises are early are reported.

Memory here is the bytes that glibc's allocator has handed out, without freed blocks that it keeps, and the resident
bytes of other allocators and of pages that C code maps itself. Besides, resident bytes alone are recorded: a table that
doubles its size is handed out at once, and filled by other lines.

The function is set in C and not by `sys.settrace`, which would copy the variables of each frame into a dict.
"""

import _thread
import ctypes
import math
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, chain, repeat, takewhile
from operator import attrgetter
from types import CodeType, FrameType
from typing import NamedTuple

from flatwater_watch.meters.allocator import allocator_totals, last_seconds
from flatwater_watch.meters.system_calls import CHUNK_BYTES, monotonic, process_seconds, system, thread_seconds

LinePlace = tuple[str, int, str]
"""File, line, and qualified name of the function."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAXIMUM_COMPARED_RISES = 32
"""Maximum number of the latest rises that are compared, by their size, with bytes that were given back."""
_LEAST_COMBINED_BYTES = 1 << 14
"""Minimum bytes given back that are compared with several rises together, and of a rise that is kept by itself."""
_COMBINED_RISES, _COMBINED_PARTS = 8, 128
"""Maximum number of such rises, 256 sums or 0.16 ms; each has at least one in `_COMBINED_PARTS` of the bytes."""
_MAXIMUM_MISFIT, _MISFIT_PER_RISE = 0.02, 0.005
"""Maximum difference of their bytes, as a share of those given back, and what one rise more must remove of it."""
_RIVAL_SHARE = 0.9
"""Share of the largest line's bytes from which on another line counts as large as it."""
_Measure = Callable[[], tuple[int, int]] | None
"""What gives the numbers that are recorded in place of both kinds of memory, such as of items; None for memory."""
_CALL_EVENT, _RETURN_EVENT = 0, 3
"""Numbers of the events of a call, and of a return (`PyTrace_RETURN`)."""
_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
_set_trace = ctypes.PYFUNCTYPE(None, _Function, ctypes.py_object)(("PyEval_SetTrace", ctypes.pythonapi))
_ignore_event = _Function(lambda *_: 0)
_own_tracers = {0}
"""Ids of recorders, which threads that sleep since a recording still have and keep alive; 0 is no tracer."""
_STATE_WORDS = 32
"""Number of words at the beginning of a thread's state, among which CPython 3.11 to 3.14 have its tracer."""
_MINIMUM_OWN_SHARE = 0.5
"""Share of the CPU seconds of the process that a thread has while a line of it runs, below which the line waits."""


class _Rise(NamedTuple):
    """Rises of one line with no rise of another line between them, as of a list that grows item by item."""

    line: LinePlace | None
    size: int
    """Bytes that were not given back."""
    times: int
    is_early: bool
    """Whether they came before the end line, which `RiseRecorder.begin` is given."""


class _LastingRises:
    """The rises of one kind of memory that were not given back, the latest last."""

    def __init__(self) -> None:
        self._rises: list[_Rise] = []
        self.comparison_events = 0
        """Time of comparing bytes that were given back with several rises together, in units of one event."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of all rises that were not given back."""
        return sum(rise.size for rise in self._rises)

    @property
    def effective_count(self) -> float:
        """Number of equal rises that say as much: one large rise among many small ones counts as little more than 1."""
        # Kish's effective sample size; the rises of one record count as equal ones.
        squares = sum(rise.size * rise.size / rise.times for rise in self._rises)
        return self.kept_bytes**2 / squares if squares else 0.0

    def main_line(self, *, minimum_share: float, minimum_rises: int) -> LinePlace | None:
        """Return the line at which most of the memory came; None if there is no such line.

        The line must have `minimum_share` of all bytes, `minimum_rises` rises or more, and half of its bytes early. A
        call that leaks may stand at several lines: of those with nearly as many bytes the first in the file is taken,
        so that the answer is the same in each run.
        """
        sizes = Counter[LinePlace | None]()
        rise_counts = Counter[LinePlace | None]()
        early_sizes = Counter[LinePlace | None]()
        for rise in self._rises:
            sizes[rise.line] += rise.size
            rise_counts[rise.line] += rise.times
            early_sizes[rise.line] += rise.size if rise.is_early else 0
        if not sizes:
            return None
        largest_size = max(sizes.values())
        rivals = [line for line, size in sizes.items() if size >= _RIVAL_SHARE * largest_size]
        # None, for bytes without a line, sorts first: if they are as many, nobody can be sure of a line.
        main_line = min(rivals, key=lambda line: line or ("", 0, ""))
        size = sizes[main_line]
        has_most_bytes = size >= minimum_share * sum(sizes.values()) and rise_counts[main_line] >= minimum_rises
        is_mostly_early = 2 * early_sizes[main_line] >= size
        return main_line if has_most_bytes and is_mostly_early else None

    def add_gain_(self, gain: int, line: LinePlace | None, *, is_early: bool) -> None:
        """Record a gain of bytes as a rise of a line, or take lost bytes, a negative gain, from earlier rises."""
        if gain > 0:
            self._add_rise_(_Rise(line, size=gain, times=1, is_early=is_early))
        elif gain < 0:
            self._remove_rises_(-gain)

    def _add_rise_(self, rise: _Rise) -> None:
        """Append a rise; a small one that follows a rise of the same line is added to that."""
        rises = self._rises
        is_small = rise.size < _LEAST_COMBINED_BYTES
        if is_small and rises and (rises[-1].line, rises[-1].is_early) == (rise.line, rise.is_early):
            rise = rise._replace(size=rise.size + rises[-1].size, times=1 + rises.pop().times)
        rises.append(rise)

    def _remove_rises_(self, lost_bytes: int) -> None:
        """Remove the recent rises that were given back: those of the same size as the lost bytes.

        Without such rises, take the lost bytes from the latest rises.
        """
        rises = self._rises
        # The latest rise may be another one: when a buffer is copied and then freed, it is the copy, which stays.
        freed_indexes = self._find_rises_of_size_(lost_bytes)  # latest first
        if freed_indexes:
            for index in freed_indexes:
                del rises[index]
            return
        while lost_bytes > 0 and rises:
            rise = rises.pop()
            kept_bytes = rise.size - lost_bytes
            lost_bytes -= rise.size
            if kept_bytes > 0:  # a part of this rise is lost
                rises.append(rise._replace(size=kept_bytes, times=max(1, rise.times * kept_bytes // rise.size)))

    def _find_rises_of_size_(self, size: int) -> tuple[int, ...]:
        """Return the index of the latest of the recent rises that have this size.

        Without one, return the indexes of a few recent rises that have nearly this size together, latest first, or
        none. The time of the search for a sum is added to `comparison_events`.
        """
        rises = self._rises
        recent = range(len(rises) - 1, max(0, len(rises) - MAXIMUM_COMPARED_RISES) - 1, -1)
        equal_index = next((index for index in recent if rises[index].size == size), None)
        if equal_index is not None:
            return (equal_index,)
        # Smaller sizes are compared with single rises only.
        return self._find_rises_of_sum_(size, recent) if size >= _LEAST_COMBINED_BYTES else ()

    def _find_rises_of_sum_(self, size: int, recent: range) -> tuple[int, ...]:
        """Return indexes of a few recent rises that have nearly a size together, latest first; none if no sum is near.

        Of several sums the nearest counts, where each rise more must bring it nearer by `_MISFIT_PER_RISE`. The time of
        the search is added to `comparison_events`. `recent` are indexes of rises, the latest first.
        """
        rises = self._rises
        largest_sum = size * (1 + _MAXIMUM_MISFIT)
        candidates = [index for index in recent if size / _COMBINED_PARTS <= rises[index].size <= largest_sum]
        # All combinations of candidates, each as its sum and its indexes: first none, then with each one more.
        sums: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        for index in candidates[:_COMBINED_RISES]:
            gain = rises[index].size
            sums += [(gain + total, (*indexes, index)) for total, indexes in sums if gain + total <= largest_sum]
        self.comparison_events += len(sums) // 32  # takes as long as so many events, of 0.024 ms each

        def misfit(combination: tuple[int, tuple[int, ...]]) -> float:
            total, indexes = combination
            return abs(size - total) + _MISFIT_PER_RISE * size * len(indexes)

        total, indexes = min(sums, key=misfit)
        return indexes if abs(size - total) <= _MAXIMUM_MISFIT * size else ()


class RiseRecorder:
    """A recorder of the lines at which memory rises, in the thread that begins it, or in all others."""

    running = False
    """Whether lines are recorded."""
    is_in_other_threads = False
    """Whether the threads are recorded that did not begin it."""
    _measure: _Measure = None
    _statm_file: int | None = None
    """Descriptor of /proc/self/statm from the first recording on; another thread may still read it at its end."""

    def __init__(
        self,
        is_user_file: Callable[[str], bool],
        note_rise: Callable[[FrameType, LinePlace, int], None] | None = None,
        *,
        maximum_seconds: float,
        maximum_query_seconds: float,
    ) -> None:
        """Prepare without recording.

        Args:
            is_user_file: returns whether the code of a file is the user's.
            note_rise: called when memory has risen at a line, with the frame, which is past the line by now, the line,
                and the number of calls of its function since `begin`. None notes nothing.
            maximum_seconds: maximum seconds of all recorded events together.
            maximum_query_seconds: maximum seconds of a query to the allocator at each line; a slower allocator is not
                asked, and memory is the private resident bytes then.
        """
        self._is_user_file, self._note_rise, self._maximum_seconds = cache(is_user_file), note_rise, maximum_seconds
        self._call_counts = Counter[CodeType]()
        """Number of calls of each function of the user's since `begin`."""
        self._maximum_query_seconds = maximum_query_seconds
        self._handed_out, self._resident = _LastingRises(), _LastingRises()
        """Rises of the bytes that were handed out, and of those that became resident."""
        self._running_lines: dict[int, LinePlace | None] = {}  # by the thread's id
        self._event_lock = _thread.allocate_lock()
        """Held while an event is recorded: the events of other threads meanwhile are left out."""
        self._cpu_at_last_event = (0.0, 0.0)  # CPU seconds of the thread of the last event, and of the process
        self._working_bytes = Counter[LinePlace | None]()
        """Bytes that each line has gained while it worked, less those while it waited for other threads."""
        self._early_end: tuple[str, int] | None = None
        """The end line, as file and line: rises are early until its function is past it; None if all are early."""
        self._holds_end_by_code: dict[CodeType, bool] = {}  # whether the end line is in a function, by its code
        self._end_function_line: int | None = None
        """The line that runs in the function with the end line; None while the function does not run."""
        self._bytes_beside_allocator: int | None = None
        """Resident bytes other than the allocator's at the beginning."""
        self._bytes_at_last_event = (0, 0)
        """Bytes handed out, and resident bytes, as `_bytes_in_use` returns them."""
        self._event_count = 0
        self._maximum_events = 0
        """Number of events that take `maximum_seconds`; `begin` measures it."""
        self._queries_allocator = True
        """Whether the allocator answers quickly enough to be asked at each line."""
        self._trace_function = _Function(self._on_trace_event)

    def begin(
        self, early_until: tuple[str, int] | None = None, measure: _Measure = None, *, in_other_threads: bool = False
    ) -> bool:
        """Begin to record, unless the program is traced already; return whether lines are recorded.

        Args:
            early_until: file and line of the user's code. Rises are early until the function with this line is past
                it, and only lines of early rises are reported. None makes all rises early.
            measure: gives what is recorded; objects of a line are noted only for memory, None.
            in_other_threads: whether the lines of all threads but this one are recorded.
        """
        if self.running or sys.gettrace() is not None:
            return self.running
        if in_other_threads and (threading.gettrace() is not None or _is_traced_elsewhere(self)):
            return False
        # The records of an earlier recording are dropped.
        self._handed_out, self._resident = _LastingRises(), _LastingRises()
        self._bytes_beside_allocator, self._event_count = None, 0
        self._running_lines.clear()
        self._working_bytes.clear()
        self._early_end, self._end_function_line, self._measure = early_until, None, measure
        self.is_in_other_threads = in_other_threads
        self._holds_end_by_code.clear()
        self._call_counts.clear()
        if self._statm_file is None:
            self._statm_file = system.open("/proc/self/statm", system.O_RDONLY | system.O_CLOEXEC)
        self.running = True
        # A query to the allocator must be quick. If the last one was slow, five more would stop the program for long.
        query_seconds = last_seconds() or 0.0
        if query_seconds < self._maximum_query_seconds:
            query_seconds = _shortest_call_seconds(allocator_totals)
        self._queries_allocator = query_seconds < self._maximum_query_seconds
        # An event takes about as long as a reading of memory. The calls also set the bytes from which gains count.
        event_seconds = _shortest_call_seconds(self.skip_current_gain)
        self._maximum_events = int(self._maximum_seconds / event_seconds)
        if in_other_threads:
            _trace_other_threads(self._trace_function, self)
        else:
            _set_trace(self._trace_function, self)
        return True

    def skip_current_gain(self) -> None:
        """Leave out the bytes gained since the last line, which are the watch's and not the program's."""
        if self.running and self._statm_file is not None:
            self._bytes_at_last_event = self._bytes_in_use(self._statm_file)
            self._cpu_at_last_event = thread_seconds(), process_seconds()

    def end(self) -> None:
        """Stop recording; the records stay. Other threads than this one are traced until their next event."""
        if self.running:
            self._stop_tracing_here()
            self.running = False

    def _stop_tracing_here(self) -> None:
        """Stop tracing the thread that calls this."""
        # `gettrace` returns the object given to `PyEval_SetTrace`; the program may have set another tracer.
        tracer: object = sys.gettrace()
        if tracer is self:
            sys.settrace(None)

    @property
    def is_over_budget(self) -> bool:
        """Whether recording has taken its maximum number of seconds, measured in events."""
        comparison_events = self._handed_out.comparison_events + self._resident.comparison_events
        return self._event_count + comparison_events >= self._maximum_events

    def waits(self, line: LinePlace) -> bool:
        """Return whether most bytes of a line came while it waited, and other threads worked."""
        return self._working_bytes[line] < 0

    def has_enough(self, *, rises: float, size: float) -> bool:
        """Return whether rises that were not given back are at least so many, and have so many bytes together.

        They are counted by `_LastingRises.effective_count`, and must be of one kind of memory.
        """
        # Both of one kind of memory: words that a round writes anew become resident often, and are few bytes beside a
        # block that is handed out at once.
        kinds = (self._handed_out, self._resident)
        return any(kind.effective_count >= rises and kind.kept_bytes >= size for kind in kinds)

    def main_line(self, *, minimum_share: float, minimum_rises: int) -> LinePlace | None:
        """Return the line at which most of the memory came; None without such a line, or if its rises were not early.

        The bytes handed out decide, or if no line has most of them, the bytes that became resident; the other way round
        if these are more than twice as many, as of a table that was handed out at once, and filled later.
        """
        kinds = [self._handed_out, self._resident]
        if self._resident.kept_bytes > 2 * self._handed_out.kept_bytes:
            kinds.reverse()
        for kind in kinds:
            line = kind.main_line(minimum_share=minimum_share, minimum_rises=minimum_rises)
            if line is not None:
                return line
        return None

    def _on_trace_event(self, _given: int, frame: FrameType, event: int, _argument: int) -> int:
        """Record one event of the interpreter: a call, a line, a return, an exception; return 0, so that it goes on.

        The parameters are those of C's `Py_tracefunc`.
        """
        # Runs at every line of the program: little may be done, and each file is classified once.
        statm_file = self._statm_file if self.running else None
        if statm_file is None:
            self._stop_tracing_here()  # another thread has ended the recording
        elif self._is_user_file(frame.f_code.co_filename) and self._event_lock.acquire(blocking=False):
            try:
                self._record_event_(frame, event, statm_file)
            finally:
                self._event_lock.release()
        return 0

    def _record_event_(self, frame: FrameType, event: int, statm_file: int) -> None:
        """Record one event of the user's code, in the thread in which it comes."""
        code, thread = frame.f_code, _thread.get_ident()
        line = self._running_lines.get(thread)
        thread_at_last, process_at_last = self._cpu_at_last_event
        # First of all, as what follows takes CPU time of this thread.
        own_seconds, all_seconds = thread_seconds() - thread_at_last, process_seconds() - process_at_last
        gain = self._assign_gain_(self._bytes_in_use(statm_file), line)
        self._working_bytes[line] += max(0, gain) * (1 if own_seconds >= _MINIMUM_OWN_SHARE * all_seconds else -1)
        if gain > 0 and line is not None and self._measure is None and self._note_rise is not None:
            self._report_rise(frame, line, self._note_rise)
        if event == _CALL_EVENT:  # not at each line: a dict computes the hash of a code object anew each time
            self._call_counts[code] += 1
        is_return = event == _RETURN_EVENT
        # After a return the caller's line goes on.
        event_line = (code.co_filename, frame.f_lineno, code.co_qualname)
        self._running_lines[thread] = self._calling_user_line(frame) if is_return else event_line
        if self._has_end_line(code):
            running_frame = frame.f_back if is_return else frame
            # A recursive function returns to itself: then it still runs.
            still_runs = running_frame is not None and self._has_end_line(running_frame.f_code)
            self._end_function_line = running_frame.f_lineno if running_frame is not None and still_runs else None
        if self.is_over_budget:
            sys.settrace(None)
        self._cpu_at_last_event = thread_seconds(), process_seconds()

    def _report_rise(
        self, frame: FrameType, line: LinePlace, note_rise: Callable[[FrameType, LinePlace, int], None]
    ) -> None:
        """Call `note_rise` with the frame of the line at which memory has risen: `frame`, or one of its callers."""
        file, _, function = line
        rise_frame: FrameType | None = frame
        while rise_frame is not None:
            code = rise_frame.f_code
            if (code.co_filename, code.co_qualname) == (file, function):
                note_rise(rise_frame, line, self._call_counts[code])
                return
            rise_frame = rise_frame.f_back

    def _assign_gain_(self, bytes_in_use: tuple[int, int], line: LinePlace | None) -> int:
        """Assign the bytes gained since the last event to the line that ran; return the larger of both numbers."""
        self._event_count += 1
        (handed_out, resident), (last_handed_out, last_resident) = bytes_in_use, self._bytes_at_last_event
        self._bytes_at_last_event = bytes_in_use
        is_early = self._is_before_end_line()
        self._handed_out.add_gain_(handed_out - last_handed_out, line, is_early=is_early)
        self._resident.add_gain_(resident - last_resident, line, is_early=is_early)
        return max(handed_out - last_handed_out, resident - last_resident)

    def _is_before_end_line(self) -> bool:
        """Return whether the function with the end line runs, and is not past that line; True without an end line."""
        if self._early_end is None:
            return True
        _, end_line = self._early_end
        return self._end_function_line is not None and self._end_function_line <= end_line

    def _has_end_line(self, code: CodeType) -> bool:
        """Return whether the end line is in a function, by the function's code; False if there is no end line."""
        if self._early_end is None:
            return False
        end_file, end_line = self._early_end
        if code.co_filename != end_file:
            return False
        if code not in self._holds_end_by_code:
            self._holds_end_by_code[code] = any(line == end_line for _, _, line in code.co_lines())
        return self._holds_end_by_code[code]

    def _calling_user_line(self, frame: FrameType) -> LinePlace | None:
        """Return the line of the user's code to which a function returns, past any libraries; None if there is none."""
        caller = frame.f_back
        while caller is not None and not self._is_user_file(caller.f_code.co_filename):
            caller = caller.f_back
        return None if caller is None else (caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_qualname)

    def _bytes_in_use(self, statm_file: int) -> tuple[int, int]:
        """Return the bytes handed out, and the resident bytes, both of private memory.

        Handed out are those of the allocator, with the resident bytes of other private memory gained since `begin`.
        Resident are all private bytes but those that the allocator has freed. Both are the same, all private resident
        bytes, if the allocator is not asked.
        """
        if self._measure is not None:
            return self._measure()
        _, resident_pages, shared_pages, *_ = system.pread(statm_file, CHUNK_BYTES, 0).split()
        private_bytes = (int(resident_pages) - int(shared_pages)) * _PAGE_BYTES
        totals = allocator_totals() if self._queries_allocator else None
        if totals is None:
            return private_bytes, private_bytes
        other_bytes = private_bytes - totals.in_use - totals.free
        if self._bytes_beside_allocator is None:  # the first reading, in `begin`
            self._bytes_beside_allocator = other_bytes
        return totals.in_use + max(0, other_bytes - self._bytes_beside_allocator), private_bytes - totals.free


def _is_traced_elsewhere(recorder: RiseRecorder) -> bool:
    """Return whether another thread has a tracer, which would be replaced; True too if that cannot be seen."""
    own_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))()
    # CPython tells no tracer of another thread, and not where a thread's state has it: where this thread's then has it.
    _set_trace(_ignore_event, recorder)
    words = [*(ctypes.c_size_t * _STATE_WORDS).from_address(own_state)]
    sys.settrace(None)
    if id(recorder) not in words:
        return True
    _own_tracers.add(id(recorder))
    offset = words.index(id(recorder)) * ctypes.sizeof(ctypes.c_size_t)
    places = map(ctypes.c_size_t.from_address, map(offset.__add__, _thread_states()))
    return not _own_tracers.issuperset(map(attrgetter("value"), places))


def _trace_other_threads(function: "ctypes._FuncPointer", recorder: RiseRecorder) -> None:
    """Trace all threads but this one, until each stops itself."""
    api, tracer = ctypes.pythonapi, ctypes.py_object(recorder)
    if sys.version_info >= (3, 12):
        api.PyEval_SetTraceAllThreads(function, tracer)
    else:
        arguments = (ctypes.c_void_p, _Function, ctypes.py_object)
        set_trace = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(("_PyEval_SetTrace", api))
        deque(map(set_trace, _thread_states(), repeat(function), repeat(tracer)), maxlen=0)
    sys.settrace(None)


def _thread_states() -> Iterator[int]:
    """Iterate over the addresses of all threads' states; in C code alone, as by `map`, so that no thread ends."""
    api, pointer = ctypes.pythonapi, ctypes.c_void_p
    first_thread = ctypes.PYFUNCTYPE(pointer, pointer)(("PyInterpreterState_ThreadHead", api))
    # It takes one argument, and ignores the other.
    next_thread = ctypes.PYFUNCTYPE(pointer, pointer, ctypes.c_int)(("PyThreadState_Next", api))
    interpreter = ctypes.PYFUNCTYPE(pointer)(("PyInterpreterState_Get", api))()
    return takewhile(bool, accumulate(chain(map(first_thread, (interpreter,)), repeat(0)), next_thread))


def _shortest_call_seconds(call: Callable[[], object]) -> float:
    """Return the seconds of the shortest of five calls, as other processes may interrupt a call."""
    shortest = math.inf
    for _ in range(5):
        began = monotonic()
        call()
        shortest = min(shortest, monotonic() - began)
    return shortest
