"""What the C allocator holds: bytes that the program uses, and bytes that it freed and glibc keeps."""

import ctypes
import functools
import mmap
import platform
import re
from dataclasses import dataclass

from flatwater.memory.probes.mappings import footprint, touched_bytes


@dataclass(frozen=True)
class Totals:
    """Over all arenas of glibc's malloc. Python's own small objects live outside of it."""

    in_use: int
    """Bytes handed out and not freed."""
    free: int
    """Bytes freed and kept, without the pages at the end of the heap that nothing has touched yet. After a trim the
    whole pages among them are not resident either, and glibc does not say how many these are.
    """

    def kept_within(self, anonymous: int) -> int:
        """Freed bytes that may be resident: what is resident and not handed out bounds them.

        What was handed out and never touched makes that bound too low, so it holds where there is more of both than of
        pages.

        Args:
            anonymous: resident bytes that belong to no file.
        """
        return min(self.free, max(0, anonymous - self.in_use))


@dataclass(frozen=True)
class Heap(Totals):
    """The same, by pages."""

    kept: int
    """Estimate of the free bytes that stay resident after a trim: those that share a page with bytes in use."""


class _Mallinfo2(ctypes.Structure):
    """malloc.h, glibc 2.33 or later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
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
    ]


def totals() -> Totals | None:
    """Totals now; None where there is no glibc 2.33.

    Takes 0.5 ms or less, but glibc visits every free chunk: 600,000 take it a tenth of a second and more.
    """
    libc = _libc()
    if libc is None:
        return None
    found = libc.mallinfo2()
    top: int = found.keepcost
    untouched = top - touched_bytes(libc.sbrk(0) - top, top)
    return Totals(in_use=found.uordblks + found.hblkhd, free=max(0, found.fordblks - untouched))


def used() -> int:
    """Anonymous resident bytes now, without those that the allocator has freed and kept: 20 µs, or more in large heaps.

    Freed bytes count as resident unless they are more than all resident ones.

    Raises:
        OSError: there is no /proc.
    """
    found, anonymous = totals(), footprint().anonymous
    if found is None:
        return anonymous
    return anonymous - (found.free if found.free <= anonymous else found.kept_within(anonymous))


def heap() -> Heap | None:
    """The same by pages, in twice the time."""
    libc, now = _libc(), totals()
    return None if libc is None or now is None else Heap(now.in_use, now.free, _kept_bytes(_malloc_info(libc)))


def _kept_bytes(report: bytes) -> int:
    """From malloc_info's XML: free chunks, in bins of like size.

    The two ends of a free chunk lie anywhere in their pages, so of a large one a page's worth stays on average.
    """
    bins = re.findall(rb'<(?:size|unsorted) from="\d+" to="\d+" total="(\d+)" count="(\d+)"/>', report)
    return sum(min(int(total), int(count) * mmap.PAGESIZE) for total, count in bins)


def _malloc_info(libc: ctypes.CDLL) -> bytes:
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    libc.malloc_info(0, ctypes.c_void_p(stream))
    libc.fclose(ctypes.c_void_p(stream))
    try:
        return ctypes.string_at(text.value or 0, size.value)
    finally:
        libc.free(text)


@functools.cache
def _libc() -> ctypes.CDLL | None:
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(int(part) for part in version.split(".")) < (2, 33):
        return None
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    libc.open_memstream.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    return libc
