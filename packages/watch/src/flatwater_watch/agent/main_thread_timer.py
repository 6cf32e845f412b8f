"""Timed calls in the main thread of a program, between two of its instructions.

A thread of the watch requests them by `Py_AddPendingCall`: the interpreter takes the call as soon as the main thread is
between two instructions. While the main thread waits in a call, as for another thread to end, the calls are made in the
watch's own thread.
"""

import _thread
import ctypes
import sys
from collections.abc import Callable
from types import FrameType

from flatwater_watch.agent.boundaries import TICK_SECONDS
from flatwater_watch.agent.guard import Guard
from flatwater_watch.meters.fork_warnings import filter_fork_warnings, register_thread_work, remove_filter_if_old
from flatwater_watch.meters.proc import context_switches
from flatwater_watch.meters.program_faults import function_code
from flatwater_watch.meters.suspended_tracing import frameless_callable
from flatwater_watch.meters.system_calls import monotonic, process_id, sleep

IMPORTING = frozenset({"<frozen importlib._bootstrap>", "<frozen site>", "<frozen zipimport>"})
"""Files of the interpreter's own code: it loads modules, is not ready yet, or looks for the script to run."""
IDLE_SECONDS = 0.5
"""Seconds of unbroken sleep after which the main thread counts as waiting for another thread."""
_add_pending_call = ctypes.pythonapi.Py_AddPendingCall
_is_true_address = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)


def start_ticking(
    guard: Guard, on_tick: Callable[[int], int], wait: float = 0.0, tick_if_forbidden: Callable[[], int] = lambda: 1
) -> None:
    """Call a function in the main thread at ticks, between two of its instructions, until the guard has ended.

    To be called in the main thread. No debugger or coverage tool sees the calls; torch operations can be traced there.

    Args:
        guard: runs each call; once it has ended, no call is made.
        on_tick: function that gets the ticks since its last call, and returns the number of ticks to its next call.
        wait: seconds until the first call.
        tick_if_forbidden: called in place of `on_tick` in imports, in trace functions, and where a fork would hang.
    """
    request_lock, owner_pid, main_thread = _thread.allocate_lock(), process_id(), _thread.get_ident()
    next_ticks, latest_call = 1, monotonic()

    # The lock is held until the call ends: a second request would make CPython 3.11 enter a traced function for ever.
    def call_in_main_thread() -> None:  # in a fork too, if the program forks between request and call
        try:
            if not guard.has_ended and process_id() == owner_pid:
                guard.run(call_tick)
        finally:
            if request_lock.locked():
                request_lock.release()

    def call_tick() -> None:  # counts the ticks passed, calls one of the two functions, and sets the ticks to the next
        nonlocal next_ticks, latest_call
        remove_filter_if_old()
        now = monotonic()  # as a main thread that sleeps takes a call only when it wakes up
        passed_ticks, latest_call = max(1, round((now - latest_call) / TICK_SECONDS)), now
        # The documented way to see the frames of the main thread from another thread. No variable may hold the frame.
        is_forbidden = _forbids_reading(sys._current_frames().get(main_thread))  # noqa: SLF001  (the only way)
        next_ticks = max(1, tick_if_forbidden() if is_forbidden else on_tick(passed_ticks))

    pending_call = _call_on_truth_test(call_in_main_thread)

    def request_calls() -> None:
        """Request a call at each due tick, from the watch's own thread; make it here while the main thread sleeps."""
        sleep(wait)
        sleep_detector = _SleepDetector(owner_pid)
        while not guard.has_ended:
            if not request_lock.acquire(blocking=False):  # the last request still waits for the main thread
                if sleep_detector.update_idle_():
                    guard.run(call_tick)
            elif _add_pending_call(_is_true_address, ctypes.py_object(pending_call)):  # -1: the queue of calls is full
                request_lock.release()
            # Each wake-up costs a program that releases the interpreter's lock often (`bench_watch.py --parts steps`).
            sleep(next_ticks * TICK_SECONDS)

    _start_thread(request_calls)


def _call_on_truth_test(call: Callable[[], None]) -> object:
    """Return an object that makes the call when `PyObject_IsTrue` tests its truth value; it is never freed.

    A signal handler of the program may run in the call, and its exceptions must reach the program. They would be lost
    in a callback of ctypes; `PyObject_IsTrue` raises them.
    """
    # `bool(pending_call)` makes the call, without a frame that a debugger would see.
    pending_call = type("PendingCall", (), {"__bool__": staticmethod(frameless_callable(call))})()
    # Never freed: a requested call may come when the watch is gone.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pending_call))
    return pending_call


def _start_thread(run: Callable[[], None]) -> None:
    """Run a function in a thread of the watch, and keep Python from warning of that thread at the program's forks."""
    # Before the thread starts: hooks at forks, each run with a guard of its own.
    filter_fork_warnings(lambda hook: Guard().run(hook))
    # `register_thread_work` has the filter know this thread as the watch's.
    # A guard of its own: if the program has replaced functions that the thread calls, the thread ends without a word.
    _thread.start_new_thread(Guard().run, (register_thread_work(run),))


class _SleepDetector:
    """A detector of a main thread that sleeps: while it does, the system's count of its context switches stays."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._sleeping_since, self._switches = monotonic(), -1  # -1: no count yet, or the thread ran at the last look

    def update_idle_(self) -> bool:
        """Return whether the thread has slept for `IDLE_SECONDS`, and note its switches for the next call."""
        switches = context_switches(self._pid)  # None while the thread runs
        if switches is None or switches != self._switches:  # it has woken up since the last call
            self._sleeping_since = monotonic()
            self._switches = -1 if switches is None else switches
        return monotonic() - self._sleeping_since >= IDLE_SECONDS


def _forbids_reading(frame: FrameType | None) -> bool:
    """Return whether the program imports, runs a trace function, or could make a fork hang: no reading may be taken.

    Args:
        frame: innermost frame of the main thread. The caller must not keep it in a variable of that same frame: a frame
            that holds itself keeps the program's frames and all their objects until the next full collection.
    """
    return _is_importing(frame) or _is_in_trace_function(frame) or _cannot_fork()


def _cannot_fork() -> bool:
    """Return whether a fork made now could wait for ever for a lock that the interrupted code holds itself.

    `concurrent.futures` takes a lock before each fork, and not a reentrant one. The lock is held while work is
    submitted, and until the hooks of other libraries after a fork have run.
    """
    executor_module = sys.modules.get("concurrent.futures.thread")
    # From the namespace: the program may have put in a module that runs code when it is asked for an attribute.
    lock = None if executor_module is None else vars(executor_module).get("_global_shutdown_lock")
    return lock is not None and lock.locked()


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a frame, or one of its callers, imports a module, which takes memory that is no growth."""
    while frame is not None:
        if frame.f_code.co_filename in IMPORTING:
            return True
        frame = frame.f_back
    return False


def _is_in_trace_function(frame: FrameType | None) -> bool:
    """Return whether the program is within a trace function of its own: a debugger that waits, or `trace` that prints.

    `frame` is the innermost frame. CPython 3.11 and 3.12 write the traced frame's dict of locals back into its
    variables when that function returns. A read of the frame's locals meanwhile would change the variables.
    """
    global_tracer_code = function_code(sys.gettrace())
    while frame is not None:
        caller = frame.f_back
        # The local trace function of a frame is called from that frame.
        is_local_tracer = caller is not None and function_code(caller.f_trace) is frame.f_code
        if is_local_tracer or frame.f_code is global_tracer_code:
            return True
        frame = caller
    return False
