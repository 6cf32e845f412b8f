"""The allocator's totals from a copy of this process, in which no Python runs.

clone(2) begins with a function of one argument, here glibc's own `mallinfo2`: on x86-64 a function that returns a large
struct is handed the address to put it at as a hidden first argument (System V AMD64 ABI, 3.2.3). That address is in
memory which both processes share. The program stands still while its page tables are copied, once.
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
"""Bytes of shared memory for the answer, at their beginning, and for the copy's stack, which begins at their end.
Behind it comes a byte for each page of the heap, which stays as it was found: none of this is in it."""
PATIENCE, TIMES = 5.0, 20
"""Age at which a copy is killed, whatever it does: at least `PATIENCE` seconds, or `TIMES` times the CPU seconds
of a query."""


class _Signals(ctypes.Structure):
    """A `sigset_t` of glibc."""

    _fields_ = [("bits", ctypes.c_ulong * 16)]


_EVERY_SIGNAL = _Signals((ctypes.c_ulong(-1).value,) * 16)


class ProcessCopy:
    """A copy of this process; `wait` for children of the usual kind does not see it, `ps` does.

    The copy receives no signal that can be blocked. If another thread held a lock of malloc when it was made, it waits
    for ever, and is killed by the next call of `is_done` or `stop`: call one now and then, as the copy would outlive
    this process.
    """

    def __init__(self) -> None:
        """Start the copy; the program pauses for it.

        Raises:
            OSError: there is no memory for a copy, the system forbids it, a driver does not bear it, or this is no
                glibc on x86-64.
        """
        if (driver := copy_unsafe_driver()) is not None:
            raise OSError(f"no copy of a process with {driver}")
        libc, heap = _libc(), main_heap()
        if libc is None or heap is None:
            raise OSError("this machine's functions do not answer where they are told to")
        self._owner = system.getpid()
        self._kill_at = monotonic() + max(PATIENCE, TIMES * expected_seconds())
        self._query_cpu_seconds: float | None = None
        self._heap_begin, self._heap_end = heap
        self._shared_memory = mmap.mmap(
            -1, RESULT_BYTES + page_count(self._heap_begin, self._heap_end - self._heap_begin)
        )
        shared_address = ctypes.addressof(ctypes.c_char.from_buffer(self._shared_memory))
        # Before the copy is made: the answer is about the heap of this moment, and the program goes on meanwhile.
        self._presence_written = write_page_presence(
            self._heap_begin, self._heap_end - self._heap_begin, shared_address + RESULT_BYTES
        )
        self._pid = _start_copy(libc, shared_address)

    def is_done(self) -> bool:
        """Whether the copy has ended; a copy that waits for a lock or takes far too long is killed."""
        self._poll_()
        if self._pid and (is_waiting(self._pid) or monotonic() >= self._kill_at):
            self.stop()
        return not self._pid

    def result(self) -> tuple[int, int, float]:
        """Bytes in use and free when the copy began, and the CPU seconds of its query; to be called after its end.

        Raises:
            RuntimeError: the copy was killed, or somebody else has waited for it.
        """
        if self._query_cpu_seconds is None:
            raise RuntimeError("a copy of this process ended without an answer")
        info = Mallinfo2.from_buffer_copy(self._shared_memory)
        totals = totals_from_mallinfo(info, self._touched_bytes(info.keepcost))
        return totals.in_use, totals.free, self._query_cpu_seconds

    def stop(self) -> None:
        """End the copy, done or not; in a fork of the process that started it, only forget it."""
        self._poll_()
        if self._pid:
            system.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):  # another thread has waited for it
                system.waitpid(self._pid, WAIT_ALL_CHILDREN)
            self._pid = 0

    def _poll_(self) -> None:
        """Note whether and how the copy has ended."""
        if system.getpid() != self._owner:  # in a fork: the copy is the parent's child
            self._pid = 0
        if not self._pid:
            return
        try:
            pid, status, spent = system.wait4(self._pid, WAIT_ALL_CHILDREN | system.WNOHANG)
        except ChildProcessError:  # the program has waited for it
            self._pid = 0
            return
        if pid:
            self._pid = 0
            self._query_cpu_seconds = None if status else spent.ru_utime + spent.ru_stime

    def _touched_bytes(self, top: int) -> int:
        """Resident bytes among the last `top` bytes of the heap as the copy began; `top` if the kernel refused to say.

        `_heap_begin` and `_heap_end` are the heap's addresses. Behind its first `RESULT_BYTES`, the shared memory has
        a byte for each page of the heap, so the pages at the heap's end are its last bytes.
        """
        if not self._presence_written:
            return top
        pages = page_count(max(self._heap_begin, self._heap_end - top), min(top, self._heap_end - self._heap_begin))
        return min(top, decode_page_presence(self._shared_memory[-pages:] if pages else b"").count(1) * mmap.PAGESIZE)


def _start_copy(libc: ctypes.PyDLL, shared: int) -> int:
    """Start a copy and return its process id.

    Args:
        libc: C library whose functions keep the interpreter's lock, so that no thread that has it is within malloc.
        shared: address of the memory for the answer. Its lowest byte, which is 0, is also the copy's exit code.

    Raises:
        OSError: the system refuses a copy.
    """
    # All signals are blocked in the copy: a handler of the program would run in it too.
    before = _Signals()
    libc.pthread_sigmask(signal.SIG_SETMASK, ctypes.byref(_EVERY_SIGNAL), ctypes.byref(before))
    try:
        pid: int = libc.clone(
            _query_function(libc), ctypes.c_void_p(shared + RESULT_BYTES), CLONE_FLAGS, ctypes.c_void_p(shared)
        )
    finally:
        libc.pthread_sigmask(signal.SIG_SETMASK, ctypes.byref(before), None)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "no copy of this process")
    return pid


def _query_function(libc: ctypes.PyDLL) -> Any:  # noqa: ANN401  (a function of C)
    """The function that a copy runs."""
    return libc.mallinfo2


@functools.cache
def _libc() -> ctypes.PyDLL | None:
    """The C library, if the calling convention is known; `main_heap` says whether it is glibc."""
    if system.uname().machine != "x86_64" or sys.maxsize < 1 << 32:
        return None
    return ctypes.PyDLL(None, use_errno=True)
