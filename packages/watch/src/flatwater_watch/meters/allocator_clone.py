"""The allocator's totals from a copy of this process, in which no Python runs.

clone(2) starts the copy in a function of one argument, here glibc's own `mallinfo2`, whose result is the answer: on
x86-64 a function that returns a large struct is handed the address to put it at as a hidden first argument (System V
AMD64 ABI, 3.2.3). That address is in memory which both processes share. The program stands still while its page tables
are copied, once.
"""

import ctypes
import functools
import mmap
import signal
import sys
from contextlib import suppress
from typing import Any

from flatwater_watch.meters.allocator import Mallinfo2, expected_seconds, main_heap, totals_from_mallinfo
from flatwater_watch.meters.fork import copy_unsafe_driver
from flatwater_watch.meters.mappings import decode_page_presence, page_count, write_page_presence
from flatwater_watch.meters.proc import WAIT_ALL_CHILDREN, is_waiting
from flatwater_watch.meters.system_calls import monotonic, system

CLONE_FLAGS = 0x00000400 | 0x00800000
"""clone(2), CLONE_FILES and CLONE_UNTRACED: a file that the program closes is closed, though the copy lives, and no
debugger takes it for a thread. Without a signal for its end, `wait` and SIGCHLD leave it out."""
RESULT_BYTES = 1 << 18
"""Bytes of shared memory for the answer, which begins at their beginning, and for the copy's stack, which grows down
from their end. Behind them comes a byte for each page of the heap."""
MINIMUM_KILL_SECONDS, KILL_RATIO = 5.0, 20
"""Age at which a copy is killed, whatever it does: `KILL_RATIO` times the CPU seconds of a query, and at least
`MINIMUM_KILL_SECONDS`."""


class _Signals(ctypes.Structure):
    """A `sigset_t` of glibc."""

    _fields_ = [("bits", ctypes.c_ulong * 16)]


_EVERY_SIGNAL = _Signals((ctypes.c_ulong(-1).value,) * 16)


class ProcessCopy:
    """A copy of this process that queries its allocator. The program's `wait` does not see it, `ps` does.

    The copy receives no signal that can be blocked. If another thread held a lock of malloc when the copy was made, it
    waits for ever, and is killed by the next call of `is_done` or `stop`: call one of these now and then, as the copy
    would outlive this process.
    """

    def __init__(self) -> None:
        """Start the copy; the program pauses for it.

        Raises:
            OSError: there is no memory for a copy, the system forbids it, a driver would fail in it, or this is not
                glibc on x86-64.
        """
        if (driver := copy_unsafe_driver()) is not None:
            raise OSError(f"no copy of a process with {driver}")
        libc, heap = _load_libc(), main_heap()
        if libc is None or heap is None:
            raise OSError("this machine's functions do not answer where they are told to")
        self._owner_pid = system.getpid()
        self._kill_at = monotonic() + max(MINIMUM_KILL_SECONDS, KILL_RATIO * expected_seconds())
        self._query_cpu_seconds: float | None = None  # None until the copy has ended with success
        self._heap_begin, self._heap_end = heap
        heap_bytes = self._heap_end - self._heap_begin
        self._shared_memory = mmap.mmap(-1, RESULT_BYTES + page_count(self._heap_begin, heap_bytes))  # -1: no file
        shared_address = ctypes.addressof(ctypes.c_char.from_buffer(self._shared_memory))
        # Before the copy is made: the program goes on while the copy runs, and the answer is about the heap of now.
        self._presence_written = write_page_presence(self._heap_begin, heap_bytes, target=shared_address + RESULT_BYTES)
        self._pid = _start_copy(libc, shared_address)  # 0 once the copy has ended

    def is_done(self) -> bool:
        """Return whether the copy has ended; kill a copy that waits for a lock or takes far too long."""
        self._poll_()
        # The copy has no reason to sleep but a lock of malloc, which nobody in it will release.
        if self._pid and (is_waiting(self._pid) or monotonic() >= self._kill_at):
            self.stop()
        return not self._pid

    def result(self) -> tuple[int, int, float]:
        """Return the bytes in use and the free bytes of when the copy began, and the CPU seconds of its query.

        To be called once `is_done`.

        Raises:
            RuntimeError: the copy was killed, or the program has waited for it.
        """
        if self._query_cpu_seconds is None:
            raise RuntimeError("a copy of this process ended without an answer")
        info = Mallinfo2.from_buffer_copy(self._shared_memory)
        totals = totals_from_mallinfo(info, self._touched_bytes(info.keepcost))
        return totals.in_use, totals.free, self._query_cpu_seconds

    def stop(self) -> None:
        """Kill the copy, unless it has ended; in a fork of the process that started it, only forget it."""
        self._poll_()
        if self._pid:
            system.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):  # another thread has waited for it
                system.waitpid(self._pid, WAIT_ALL_CHILDREN)
            self._pid = 0

    def _poll_(self) -> None:
        """Set `_pid` to 0 if the copy has ended, and record the CPU seconds of its query if it has succeeded."""
        if system.getpid() != self._owner_pid:  # in a fork of this process the copy is not a child
            self._pid = 0
        if not self._pid:
            return
        try:
            pid, status, usage = system.wait4(self._pid, WAIT_ALL_CHILDREN | system.WNOHANG)
        except ChildProcessError:  # the program has waited for it
            self._pid = 0
            return
        if pid:  # else the copy still runs
            self._pid = 0
            self._query_cpu_seconds = None if status else usage.ru_utime + usage.ru_stime

    def _touched_bytes(self, last_bytes: int) -> int:
        """Return how many of the last bytes of the heap were resident when the copy began.

        If the kernel refused to say, all of them count.
        """
        if not self._presence_written:
            return last_bytes
        first = max(self._heap_begin, self._heap_end - last_bytes)
        pages = page_count(first, self._heap_end - first)
        # The shared memory ends with a byte for each page of the heap, so its last bytes are the heap's last pages.
        presence = decode_page_presence(self._shared_memory[-pages:]) if pages else b""
        return min(last_bytes, presence.count(1) * mmap.PAGESIZE)


def _start_copy(libc: ctypes.PyDLL, shared_address: int) -> int:
    """Start a copy of this process and return its process id.

    The copy writes its answer to the beginning of the shared memory, whose address is given.

    Raises:
        OSError: the system refuses a copy.
    """
    # The functions of `libc` keep the interpreter's lock, so that no thread of Python is within malloc.
    # All signals are blocked in the copy: a handler of the program would run in it too.
    program_mask = _Signals()
    libc.pthread_sigmask(signal.SIG_SETMASK, ctypes.byref(_EVERY_SIGNAL), ctypes.byref(program_mask))
    try:
        # The copy's function returns the address of the answer, and its lowest byte, 0, becomes the exit code.
        pid: int = libc.clone(
            _query_function(libc),
            ctypes.c_void_p(shared_address + RESULT_BYTES),  # the stack, which grows down from here
            CLONE_FLAGS,
            ctypes.c_void_p(shared_address),  # the function's argument
        )
    finally:
        libc.pthread_sigmask(signal.SIG_SETMASK, ctypes.byref(program_mask), None)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "no copy of this process")
    return pid


def _query_function(libc: ctypes.PyDLL) -> Any:  # noqa: ANN401  (a function of C)
    """Return the function of C in which a copy begins and ends."""
    return libc.mallinfo2


@functools.cache
def _load_libc() -> ctypes.PyDLL | None:
    """Return the C library on x86-64, else None; `main_heap` says whether it is glibc."""
    if system.uname().machine != "x86_64" or sys.maxsize < 1 << 32:  # or a Python of 32 bits
        return None
    return ctypes.PyDLL(None, use_errno=True)
