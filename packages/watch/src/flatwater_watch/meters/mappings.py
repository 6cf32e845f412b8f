"""What is mapped into a process: pages of its own and pages of files, peaks, and the sum over worker processes."""

import ctypes
import functools
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from flatwater_watch.meters.proc import descendant_pids, has_children, read_kib_counters
from flatwater_watch.meters.system_calls import monotonic, names_in, process_id, read_file

T = TypeVar("T")

_RESET_PEAK = "5"
"""proc(5), clear_refs: set VmHWM to what is resident now."""


@dataclass(frozen=True)
class Footprint:
    """Resident bytes of a process, by origin."""

    resident: int
    file_mapped: int
    """Pages of files (libraries, mapped panels) and shared memory."""

    @property
    def anonymous(self) -> int:
        """Pages that belong to no file: heaps, stacks, tensors."""
        return self.resident - self.file_mapped


def footprint(pid: int | None = None) -> Footprint:
    """Of this process by default, now, in a few microseconds.

    Raises:
        OSError: the process has ended.
    """
    _, resident, shared, *_ = read_file(f"/proc/{'self' if pid is None else pid}/statm").split()
    return Footprint(int(resident) * mmap.PAGESIZE, int(shared) * mmap.PAGESIZE)


@dataclass(frozen=True)
class FamilyMemory:
    """This process and its descendants, pages that they share counted once."""

    count: int
    private: int
    """Bytes that ending all of them would free for sure."""
    proportional: int
    """Private bytes and a fair part of the shared ones."""


def family_memory() -> FamilyMemory:
    """The sum over this process and its workers. Takes 11 to 17 ms per resident GB of each: not for every step."""
    return _sum_family([process_id(), *descendant_pids()])


def descendant_memory(pid: int | None = None) -> FamilyMemory:
    """Memory of the descendants of a process (by default this one), without the process itself.

    As costly as `processes`.
    """
    if pid is None and not has_children():
        return FamilyMemory(0, 0, 0)
    return _sum_family(descendant_pids(pid))


def _sum_family(family: list[int]) -> FamilyMemory:
    private = proportional = count = 0
    for pid in family:
        try:
            found = read_kib_counters(f"/proc/{pid}/smaps_rollup")
        except OSError:  # it ended meanwhile
            continue
        own = sum(found.get(name, 0) for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"))
        private, proportional, count = private + own, proportional + found.get("Pss", 0), count + 1
    return FamilyMemory(count, private, proportional)


@dataclass
class CostlyMeter(Generic[T]):
    """A meter that costs time: read again where that is a small part of the time since."""

    read: Callable[[], T]
    share: float
    """Of the time."""
    due: float = 0.0
    last: T | None = None

    def read_if_due_(self) -> T:
        """The last reading."""
        began = monotonic()
        if self.last is None or began >= self.due:
            self.last = self.read()
            ended = monotonic()
            self.due = ended + (ended - began) / self.share
        return self.last


def open_files() -> int:
    """Descriptors that this process holds."""
    return len(names_in("/proc/self/fd"))


def threads() -> int:
    """Threads of this process, native ones too."""
    return len(names_in("/proc/self/task"))


def peak_bytes() -> int | None:
    """The largest resident memory since the process began or `reset_peak` was called; None where nobody counts it."""
    return read_kib_counters("/proc/self/status").get("VmHWM")


def reset_peak() -> bool:
    """Let `peak_bytes` begin anew. What /usr/bin/time and getrusage tell begins anew with it. False: not permitted."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def touched_bytes(address: int, size: int) -> int:
    """Bytes of a block of memory that have a page in RAM; all of them where the kernel does not tell.

    Args:
        address: of its first byte.
        size: its bytes.
    """
    pages = present_pages(address, size)
    return size if pages is None else min(size, pages.count(1) * mmap.PAGESIZE)


def present_pages(address: int, size: int) -> bytes | None:
    """For each page of a block of memory 1 if it is in RAM, else 0; None where the kernel does not tell."""
    if size == 0:
        return b""
    first, pages = address // mmap.PAGESIZE, page_count(address, size)
    present, told = bytearray(min(pages, _AT_ONCE)), []
    into = ctypes.addressof(ctypes.c_ubyte.from_buffer(present))  # an array of ctypes is a class of its own: garbage
    for page in range(0, pages, _AT_ONCE):
        asked = min(_AT_ONCE, pages - page)
        if not write_page_presence((first + page) * mmap.PAGESIZE, asked * mmap.PAGESIZE, into):
            return None
        told.append(decode_page_presence(bytes(present[:asked])))
    return b"".join(told)


def page_count(address: int, size: int) -> int:
    """Pages that a block of memory lies in."""
    return -(-(address + size) // mmap.PAGESIZE) - address // mmap.PAGESIZE


def write_page_presence(address: int, size: int, into: int) -> bool:
    """Write a byte for each page of a block of memory to an address, for `in_ram`; False: the kernel does not tell."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    return not _mincore()(ctypes.c_void_p(first), ctypes.c_size_t(address + size - first), ctypes.c_void_p(into))


def decode_page_presence(noted: bytes) -> bytes:
    """1 for each page that is in RAM, else 0, by what was noted."""
    return noted.translate(_LOWEST_BIT)


_AT_ONCE = 1 << 16
"""Pages that are asked for in one call: an answer takes a byte each, and a terabyte may be reserved."""
_LOWEST_BIT = bytes(value & 1 for value in range(256))
"""Of mincore's bytes the lowest bit says that the page is there; the others are not defined."""


@functools.cache
def _mincore() -> Callable[..., int]:
    call: Callable[..., int] = ctypes.CDLL(None).mincore
    return call
