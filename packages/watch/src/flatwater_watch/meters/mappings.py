"""Memory that is mapped into a process: its own pages and pages of files, peaks, and the sum over worker processes.

Pages are resident, or present, while they are in RAM. A family is a process with all processes that descend from it.
"""

import ctypes
import functools
import mmap
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flatwater_watch.meters.proc import descendant_pids, has_children, read_kib_counters
from flatwater_watch.meters.system_calls import list_folder, process_id, read_file, read_text

_RESET_PEAK = "5"
"""Command to /proc/PID/clear_refs (proc(5)) that sets VmHWM to the bytes that are resident now."""


class Footprint(NamedTuple):
    """Resident bytes of a process, by origin."""

    resident: int
    file_mapped: int
    """Bytes in pages of files (libraries, mapped panels) and shared memory."""

    @property
    def anonymous(self) -> int:
        """Bytes in pages that belong to no file: heaps, stacks, tensors."""
        return self.resident - self.file_mapped


def footprint(pid: int | None = None) -> Footprint:
    """Return the resident bytes of a process, by default of this process; the call takes a few microseconds.

    Raises:
        OSError: the process has ended.
    """
    _, resident_pages, shared_pages, *_ = read_file(f"/proc/{'self' if pid is None else pid}/statm").split()
    return Footprint(resident=int(resident_pages) * mmap.PAGESIZE, file_mapped=int(shared_pages) * mmap.PAGESIZE)


_SHARED_STEP = 256 << 10
"""Bytes by which `Footprint.file_mapped` has to change before the bytes of shared memory in it are read again."""
_newest_shared = {"file_mapped": -1, "shared_memory": 0}
"""`Footprint.file_mapped` when shared memory was last read, and the bytes of shared memory in it."""


def file_pages(memory: Footprint) -> int:
    """Return the resident bytes of this process in pages of files that the system can take back.

    They are `memory.file_mapped` without shared memory, which is read anew only after a change of that number.
    """
    if abs(memory.file_mapped - _newest_shared["file_mapped"]) >= _SHARED_STEP:
        shared_memory = read_kib_counters("/proc/self/status").get("RssShmem", 0)
        _newest_shared.update(file_mapped=memory.file_mapped, shared_memory=shared_memory)
    return max(0, memory.file_mapped - _newest_shared["shared_memory"])


def fileless_spans() -> list[tuple[int, int]]:
    """Return the first address and the end of each mapping of this process that belongs to no file, ascending."""
    spans = []
    for line in read_text("/proc/self/maps").splitlines():
        # A line is `7f00-7f10 rw-p offset device inode name`, where the name may be missing.
        addresses, _, _, _, _, *names = line.split(maxsplit=5)
        if not names or names[0].startswith(_FILELESS):
            first, _, end = addresses.partition("-")
            spans.append((int(first, 16), int(end, 16)))
    return spans


_FILELESS = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV", "[")  # noqa: S108  (names that the kernel gives)
"""Beginnings of the names of mappings whose pages belong to no file on a disk."""


@dataclass(frozen=True)
class FamilyMemory:
    """Memory of several processes, with shared pages counted once."""

    count: int = 0
    private: int = 0
    """Bytes that no other process shares: ending all of them would free these for sure."""
    proportional: int = 0
    """Private bytes, and each shared page divided by the number of processes that share it."""
    libraries: int = 0
    """Bytes of the code of loaded libraries: while it grows, processes still start."""
    private_by_child: Mapping[int, int] = field(default_factory=dict)
    """Private bytes of each child, with all that it has started itself, by the child's id."""


def family_memory() -> FamilyMemory:
    """Return the memory of this process and its descendants; the call takes 11 to 17 ms per resident GB of each."""
    own_entry = {process_id(): process_id()}  # this process counts by itself, as a child does
    # To look for descendants is to read every process of the machine.
    return _sum_family(own_entry | descendant_pids() if has_children() else own_entry)


def descendant_memory(pid: int | None = None) -> FamilyMemory:
    """Return the memory of the descendants of a process, by default of this process, without the process itself.

    The call is as costly as `family_memory`.
    """
    if pid is None and not has_children():
        return FamilyMemory()
    return _sum_family(descendant_pids(pid))


def _sum_family(child_by_pid: Mapping[int, int]) -> FamilyMemory:
    """Return sums over the processes that have not ended yet.

    `child_by_pid` has the id of each process, and the id of the child from which it descends: a child's private bytes
    include those of its descendants.
    """
    proportional = libraries = count = 0
    private = Counter[int]()
    for pid, child in child_by_pid.items():
        try:
            counters = read_kib_counters(f"/proc/{pid}/smaps_rollup")
            libraries += read_kib_counters(f"/proc/{pid}/status").get("VmLib", 0)
        except OSError:  # the process ended meanwhile
            continue
        private[child] += sum(counters.get(name, 0) for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"))
        proportional += counters.get("Pss", 0)
        count += 1
    return FamilyMemory(count, private.total(), proportional, libraries, private)


def open_file_count() -> int:
    """Return the number of descriptors that this process holds."""
    return len(list_folder("/proc/self/fd"))


def peak_bytes() -> int | None:
    """Return the most resident bytes since the process began or `reset_peak` was called; None if they are not known."""
    return read_kib_counters("/proc/self/status").get("VmHWM")


def reset_peak() -> bool:
    """Set the peak of resident bytes, also of getrusage, to the present bytes; return False if that is forbidden."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as peaks:  # noqa: PTH123  (see `paths.py`)
            peaks.write(_RESET_PEAK)
    except OSError:
        return False
    return True


def touched_bytes(address: int, size: int) -> int:
    """Return the bytes of a block of memory that have a page in RAM; all of them if the kernel does not say."""
    pages = present_pages(address, size)
    return size if pages is None else min(size, pages.count(1) * mmap.PAGESIZE)


def present_pages(address: int, size: int) -> bytes | None:
    """Return a byte for each page of a block of memory, 1 if it is in RAM, else 0; None if the kernel does not say."""
    if size == 0:
        return b""
    first_page, pages = address // mmap.PAGESIZE, page_count(address, size)
    mincore_bytes = bytearray(min(pages, _PAGES_AT_ONCE))
    pieces = []
    # A bytearray and no array of ctypes, which would make a class for each length, and so garbage.
    # The kernel writes into the bytearray through this address, call after call.
    buffer_address = ctypes.addressof(ctypes.c_ubyte.from_buffer(mincore_bytes))
    for page_offset in range(0, pages, _PAGES_AT_ONCE):
        batch_pages = min(_PAGES_AT_ONCE, pages - page_offset)
        batch_address = (first_page + page_offset) * mmap.PAGESIZE
        if not write_page_presence(batch_address, batch_pages * mmap.PAGESIZE, target=buffer_address):
            return None
        pieces.append(decode_page_presence(bytes(mincore_bytes[:batch_pages])))
    return b"".join(pieces)


def page_count(address: int, size: int) -> int:
    """Return the number of pages that a block of memory touches, those of both ends included."""
    first_page = address // mmap.PAGESIZE
    end_page = -(-(address + size) // mmap.PAGESIZE)  # rounded up
    return end_page - first_page


def write_page_presence(address: int, size: int, target: int) -> bool:
    """Write a byte for each page of a block of memory to the address `target`; return False if the kernel refuses.

    They are the bytes of mincore(2), which `decode_page_presence` reads.
    """
    first_page_address = address // mmap.PAGESIZE * mmap.PAGESIZE
    length = address + size - first_page_address
    status = _mincore()(ctypes.c_void_p(first_page_address), ctypes.c_size_t(length), ctypes.c_void_p(target))
    return status == 0


def decode_page_presence(mincore_bytes: bytes) -> bytes:
    """Return a byte for each page, 1 if it is in RAM, else 0, from the bytes of `write_page_presence`."""
    return mincore_bytes.translate(_LOWEST_BIT)


_PAGES_AT_ONCE = 1 << 16
"""Maximum pages of one call, which takes a byte for each page: a program may have reserved a terabyte."""
_LOWEST_BIT = bytes(value & 1 for value in range(256))
"""Table that keeps the lowest bit of mincore's bytes: it says that the page is there; the others are not defined."""


@functools.cache
def _mincore() -> Callable[..., int]:
    call: Callable[..., int] = ctypes.CDLL(None).mincore
    return call
