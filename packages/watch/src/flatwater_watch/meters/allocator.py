"""Totals of the C allocator: bytes that the program uses, and bytes that it freed and glibc keeps.

A heap is a range of addresses from which glibc hands out blocks; a chunk is a block with its header. The heap of the
main thread ends at the program break (`sbrk(0)`), and its last chunk is often free. A trim gives pages of free chunks
back to the kernel: they are no longer resident, and glibc counts their bytes as free all the same.
"""

import ctypes
import functools
import mmap
import os
import re
from dataclasses import dataclass

from flatwater_watch.meters.mappings import footprint, present_pages, touched_bytes
from flatwater_watch.meters.system_calls import read_text, thread_seconds


@dataclass(frozen=True)
class AllocatorTotals:
    """Totals over all arenas of glibc's malloc. Python's own small objects live outside of it."""

    in_use: int
    """Bytes handed out and not freed."""
    free: int
    """Bytes freed and kept, without untouched pages at the end of the heap. After a trim some of their pages are not
    resident, and glibc does not say how many: `used_bytes` asks the kernel.
    """

    def kept_bytes(self, anonymous: int) -> int:
        """Return the freed bytes that may be resident: at most those of `anonymous` that are not handed out.

        `anonymous` are the resident bytes of pages that belong to no file. Blocks that were handed out and never
        touched make this bound too low.
        """
        return min(self.free, max(0, anonymous - self.in_use))


@dataclass(frozen=True)
class AllocatorPages(AllocatorTotals):
    """Totals, and the free bytes that stay resident."""

    kept: int
    """Estimate of the free bytes that stay resident after a trim: those that share a page with bytes in use."""


_MALLINFO2_NAMES = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class Mallinfo2(ctypes.Structure):
    """The `struct mallinfo2` of malloc.h, glibc 2.33 or later."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO2_NAMES]


def allocator_totals() -> AllocatorTotals | None:
    """Return the totals of glibc's allocator now; None without glibc 2.33.

    glibc visits each free chunk: the call takes 0.5 ms or less with few of them, a tenth of a second and more with
    600,000.
    """
    libc = _load_libc()
    if libc is None:
        return None
    totals, _ = _query_mallinfo(libc)
    return totals


SLOWEST_SECONDS_PER_BYTE = 0.25 / (1 << 30)
"""Maximum CPU seconds of a query per byte of heap: 600,000 holes in 0.9 GiB take 0.13 to 0.2 s."""
_last_query_seconds: float | None = None


def last_seconds() -> float | None:
    """Return the CPU seconds of the last query; None before the first query."""
    return _last_query_seconds


def expected_seconds() -> float:
    """Return the CPU seconds that the next query may take: those of the last query, or the most for such a heap."""
    if _last_query_seconds is not None:
        return _last_query_seconds
    heap = main_heap()
    if heap is None:  # no glibc 2.33: a query does nothing
        return 0.0
    first, end = heap
    return SLOWEST_SECONDS_PER_BYTE * (end - first)


def note_seconds(seconds: float) -> None:
    """Record the CPU seconds of a query that another process has made."""
    global _last_query_seconds  # noqa: PLW0603  (of this process, as its heap is)
    _last_query_seconds = seconds


def _query_mallinfo(libc: ctypes.CDLL) -> tuple[AllocatorTotals, int]:
    """Return the totals, and the address at which the heap's last free chunk begins; record the query's CPU seconds."""
    began = thread_seconds()
    info = libc.mallinfo2()
    note_seconds(thread_seconds() - began)
    last_chunk_bytes: int = info.keepcost
    last_chunk = libc.sbrk(0) - last_chunk_bytes  # the chunk ends at the program break
    return totals_from_mallinfo(info, touched_bytes(last_chunk, last_chunk_bytes)), last_chunk


def totals_from_mallinfo(info: Mallinfo2, touched_bytes: int) -> AllocatorTotals:
    """Return the totals from a result of glibc's `mallinfo2`.

    `touched_bytes` are those in RAM of the heap's last free chunk, which has `info.keepcost` bytes.
    """
    free_bytes = max(0, info.fordblks - info.keepcost + touched_bytes)
    bytes_in_use = info.uordblks + info.hblkhd  # blocks in heaps, and large blocks in mappings of their own
    return AllocatorTotals(in_use=bytes_in_use, free=free_bytes)


class _TrimmedPages:
    """A tracker of the pages of the main heap that were resident and are not any more, as a trim gave them back.

    Pages that nothing has touched yet, such as those of a large block that was just handed out, are not among them.
    """

    def __init__(self) -> None:
        self._pages_once_touched = 0
        """A number with a byte for each page from the beginning of the heap: 1 if the page was seen resident."""
        self.trimmed_elsewhere = False
        """Whether other threads' heaps once had more free bytes than there are resident bytes. The kernel cannot say
        which of their pages were given back, so none of their bytes count as kept from then on.
        """

    def update_trimmed_bytes_(self, first: int, size: int) -> int:
        """Note which pages of the heap are resident now, and return the bytes that were resident and are not any more.

        They are 0 if the kernel does not say. The heap has `size` bytes from the address `first` on.
        """
        presence = present_pages(first, size)
        if presence is None:
            return 0
        # One number with a byte, 0 or 1, for each page instead of a list: its operators run in C over all pages.
        present_mask = int.from_bytes(presence, "little")
        heap_mask = (1 << (8 * len(presence))) - 1  # cuts off pages behind the present end of the heap
        self._pages_once_touched = (self._pages_once_touched & heap_mask) | present_mask
        trimmed_mask = self._pages_once_touched & ~present_mask
        return trimmed_mask.bit_count() * mmap.PAGESIZE


_trimmed_pages = _TrimmedPages()


def used_bytes() -> int:
    """Return the anonymous resident bytes now, without bytes that the allocator has freed and keeps resident.

    The call takes 20 µs, and a millisecond for each GiB of heap. All freed bytes in heaps of other threads count as
    resident until they are more than all resident bytes; from then on none of them does.
    """
    libc = _load_libc()
    if libc is None:
        return footprint().anonymous
    totals, last_chunk = _query_mallinfo(libc)
    heap_start, anonymous = _heap_start(), footprint().anonymous
    trimmed_bytes = _trimmed_pages.update_trimmed_bytes_(heap_start, last_chunk - heap_start)
    kept_bytes = max(0, totals.free - trimmed_bytes)
    if kept_bytes > anonymous:  # impossible, unless a trim gave back pages in the heaps of other threads as well
        _trimmed_pages.trimmed_elsewhere = True
    if _trimmed_pages.trimmed_elsewhere:  # then only free bytes of the main heap count
        kept_bytes = min(anonymous, max(0, kept_bytes - _free_in_other_heaps(_malloc_info(libc))))
    return anonymous - kept_bytes


def main_heap() -> tuple[int, int] | None:
    """Return the addresses at which the heap of the main thread begins and ends; None without glibc 2.33."""
    libc = _load_libc()
    return None if libc is None else (_heap_start(), libc.sbrk(0))


@functools.cache
def _heap_start() -> int:
    """Return the address at which the heap begins; it never changes in a process and its forks."""
    return int(read_text("/proc/self/stat").rpartition(")")[2].split()[_START_BRK_FIELD])


_START_BRK_FIELD = 44
"""Index of the field `start_brk` in /proc/PID/stat (proc(5)), counted behind the program's name."""


def allocator_pages() -> AllocatorPages | None:
    """Return the allocator's totals, with the freed bytes that stay resident after a trim; None without glibc 2.33.

    The call takes twice as long as `allocator_totals`.
    """
    libc, totals = _load_libc(), allocator_totals()
    if libc is None or totals is None:
        return None
    return AllocatorPages(in_use=totals.in_use, free=totals.free, kept=_kept_bytes(_malloc_info(libc)))


def _kept_bytes(report: bytes) -> int:
    """Return the free bytes that stay resident after a trim, from malloc_info's XML, which lists free chunks by size.

    The two ends of a free chunk lie anywhere in their pages, so a large chunk keeps a page's worth on average.
    """
    # Matches lines such as `<size from="33" to="48" total="96" count="2"/>`.
    bins = re.findall(rb'<(?:size|unsorted) from="\d+" to="\d+" total="(\d+)" count="(\d+)"/>', report)
    return sum(min(int(total), int(count) * mmap.PAGESIZE) for total, count in bins)


def _free_in_other_heaps(report: bytes) -> int:
    """Return the freed bytes in the heaps of other threads than the main thread, from malloc_info's XML."""
    # The XML has two sums, such as `<total type="fast" count="2" size="96"/>`, of fast bins and of the rest, for each
    # heap, the main heap first, and at the end for all together.
    sums = [int(size) for size in re.findall(rb'<total type="(?:fast|rest)" count="\d+" size="(\d+)"/>', report)]
    bytes_in_all_heaps, bytes_in_main_heap = sum(sums[-2:]), sum(sums[:2])
    return bytes_in_all_heaps - bytes_in_main_heap


def _malloc_info(libc: ctypes.CDLL) -> bytes:
    """Return the XML of glibc's `malloc_info` on all heaps, with the number and bytes of free chunks by size."""
    text = ctypes.c_void_p()
    size = ctypes.c_size_t()
    # malloc_info writes to a FILE only: a stream in memory needs no file of the program's file system.
    stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    libc.malloc_info(0, ctypes.c_void_p(stream))
    libc.fclose(ctypes.c_void_p(stream))
    try:
        return ctypes.string_at(text.value or 0, size.value)
    finally:
        libc.free(text)


@functools.cache
def _load_libc() -> ctypes.CDLL | None:
    """Return the C library with the types of its functions declared; None if it is not glibc 2.33 or later."""
    # Not by `platform`, whose patterns take longer to compile than all of this module.
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")  # such as "glibc 2.36"
    except (OSError, ValueError):  # a library that does not say
        return None
    if name != "glibc" or tuple(int(part) for part in version.split(".")) < (2, 33):
        return None
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo2
    libc.open_memstream.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    return libc
