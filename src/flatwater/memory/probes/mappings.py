"""What is mapped into a process: pages of its own and pages of files, peaks, and the sum over worker processes."""

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_LINUX: bool = sys.platform == "linux"
_SELF = Path("/proc/self")
_RESET_PEAK = "5"
"""proc(5), clear_refs: set VmHWM to what is resident now."""


@dataclass(frozen=True)
class Footprint:
    """Resident bytes of this process, by origin."""

    resident: int
    file_mapped: int
    """Pages of files (libraries, mapped panels) and shared memory."""

    @property
    def anonymous(self) -> int:
        """Pages that belong to no file: heaps, stacks, tensors."""
        return self.resident - self.file_mapped


def footprint() -> Footprint:
    """Now, in a few microseconds on Linux; elsewhere nothing is told apart."""
    if _LINUX:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123  (a Path would double the time of the probe)
            _, resident, shared, *_ = statm.read().split()
        return Footprint(int(resident) * mmap.PAGESIZE, int(shared) * mmap.PAGESIZE)
    return Footprint(int(psutil.Process().memory_info().rss), 0)


@dataclass(frozen=True)
class Processes:
    """This process and its descendants, pages that they share counted once."""

    count: int
    private: int
    """Bytes that ending all of them would free for sure."""
    proportional: int
    """Private bytes and a fair part of the shared ones; 0 where the platform does not tell."""


def processes() -> Processes:
    """The sum over this process and its workers. Takes 11 to 17 ms per resident GB of each: not for every step."""
    return _summed([psutil.Process(), *psutil.Process().children(recursive=True)])


def descendants(pid: int | None = None) -> Processes:
    """The sum over the processes below one, this one by default, without itself. As costly as `processes`."""
    return _summed(psutil.Process(pid).children(recursive=True))


def _summed(family: list[psutil.Process]) -> Processes:
    private = proportional = count = 0
    for process in family:
        try:
            own, fair = _rollup(process.pid)
        except (OSError, psutil.Error):  # it ended meanwhile
            continue
        private, proportional, count = private + own, proportional + fair, count + 1
    return Processes(count, private, proportional)


def _rollup(pid: int) -> tuple[int, int]:
    """Private and proportional bytes of a process."""
    if not _LINUX:
        return int(psutil.Process(pid).memory_full_info().uss), 0
    private = proportional = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in {"Private_Clean", "Private_Dirty", "Private_Hugetlb"}:
            private += int(rest.split()[0]) * 1024
        elif name == "Pss":
            proportional = int(rest.split()[0]) * 1024
    return private, proportional


def open_files() -> int:
    """Descriptors that this process holds."""
    return len(os.listdir("/proc/self/fd")) if _LINUX else int(psutil.Process().num_fds())  # noqa: PTH208  (a tenth of the time)


def threads() -> int:
    """Threads of this process, native ones too."""
    return len(os.listdir("/proc/self/task")) if _LINUX else int(psutil.Process().num_threads())  # noqa: PTH208


def peak_bytes() -> int | None:
    """The largest resident memory since the process began or `reset_peak` was called; None where nobody counts it."""
    if _LINUX:
        for line in (_SELF / "status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak() -> bool:
    """Let `peak_bytes` begin anew. What /usr/bin/time and getrusage tell begins anew with it. False: not permitted."""
    try:
        (_SELF / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def touched_bytes(address: int, size: int) -> int:
    """Bytes of a block of memory that have a page in RAM; all of them where the platform does not tell.

    Args:
        address: of its first byte.
        size: its bytes.
    """
    call = _mincore()
    if call is None or size == 0:
        return size
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    pages = -(-(address + size - first) // mmap.PAGESIZE)
    present = (ctypes.c_ubyte * pages)()
    if call(ctypes.c_void_p(first), ctypes.c_size_t(pages * mmap.PAGESIZE), present):
        return size
    # The lowest bit says that the page is there; the others are not defined.
    return min(size, len(bytes(present).translate(None, _ABSENT)) * mmap.PAGESIZE)


_ABSENT = bytes(range(0, 256, 2))
"""Values of mincore's bytes whose lowest bit is not set."""


@functools.cache
def _mincore() -> Callable[..., int] | None:
    if not _LINUX:
        return None
    call: Callable[..., int] = ctypes.CDLL(None).mincore
    return call
