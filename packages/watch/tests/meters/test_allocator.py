"""The allocator's totals against blocks that were taken and given back."""

import ctypes
import subprocess
import sys

import pytest

from flatwater_watch.meters.allocator import AllocatorTotals, _kept_bytes, allocator_pages

MIB = 1 << 20
BLOCKS, SIZE = 400, 64 << 10
FRAGMENTED = f"""
import ctypes
from flatwater_watch.meters.allocator import allocator_pages
from flatwater_watch.meters.process import resident_bytes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
allocator_pages(), resident_bytes()
before, began = allocator_pages(), resident_bytes()
blocks = [libc.malloc({SIZE}) for _ in range({BLOCKS})]
for block in blocks:
    ctypes.memset(block, 1, {SIZE})
for block in blocks[::2]:
    libc.free(ctypes.c_void_p(block))
libc.malloc_trim(0)
after = allocator_pages()
print(after.in_use - before.in_use, after.free - before.free, after.kept - before.kept, resident_bytes() - began)
"""

UNTOUCHED = """
import ctypes
from flatwater_watch.meters.allocator import allocator_totals, used_bytes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.mallopt(-4, 0)  # M_MMAP_MAX: every block is the heap's
libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: what is freed at its end stays
SIZE = 20 << 20
used_bytes(), allocator_totals()
before, free = used_bytes(), allocator_totals().free
libc.free(ctypes.c_void_p(libc.malloc(SIZE)))
untouched, kept = used_bytes(), allocator_totals().free
block = libc.malloc(SIZE)
ctypes.memset(block, 1, SIZE)
filled = used_bytes()
libc.free(ctypes.c_void_p(block))
libc.free(ctypes.c_void_p(libc.malloc(1 << 40)))
print(untouched - before, kept - free, filled - before, used_bytes() - before, allocator_totals().free - free)
"""


TRIMMED = f"""
import ctypes
from flatwater_watch.meters.allocator import used_bytes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.mallopt(-4, 0)  # M_MMAP_MAX: every block is the heap's
def take(blocks):
    taken = [libc.malloc({SIZE}) for _ in range(blocks)]
    for block in taken:
        ctypes.memset(block, 1, {SIZE})
    return taken
used_bytes()
before = used_bytes()
blocks = take({BLOCKS})
filled = used_bytes()
for block in blocks[::2]:
    libc.free(ctypes.c_void_p(block))
freed = used_bytes()
libc.malloc_trim(0)
trimmed = used_bytes()
take({BLOCKS} // 4)
again = used_bytes()
libc.malloc({SIZE} * {BLOCKS})  # nothing touches it
print(filled - before, freed - before, trimmed - before, again - before, used_bytes() - before)
"""


ELSEWHERE = f"""
import ctypes, mmap, os, threading
from flatwater_watch.meters.allocator import used_bytes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.mallopt(-4, 0)  # M_MMAP_MAX: every block is the heap's
freed, over = threading.Event(), threading.Event()
def fill():
    taken = [libc.malloc({SIZE}) for _ in range(3000)]
    for block in taken:
        ctypes.memset(block, 1, {SIZE})
    for block in taken[:-1]:
        libc.free(ctypes.c_void_p(block))
    freed.set()
    over.wait()
before = used_bytes()
threading.Thread(target=fill).start()
freed.wait()
kept = used_bytes()
libc.malloc_trim(0)
trimmed = used_bytes()
pages = mmap.mmap(-1, 20 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages.write(bytes(20 << 20))
more = used_bytes()
pages.close()
print(kept - before, trimmed - before, more - trimmed, used_bytes() - before)
over.set()
"""


def test_the_heap_knows_what_is_in_use_and_what_was_freed() -> None:
    before = allocator_pages()
    if before is None:
        pytest.skip("no glibc 2.33")
    blocks = [ctypes.create_string_buffer(100_000) for _ in range(100)]
    held = allocator_pages()
    assert held is not None
    # Less by what other threads freed meanwhile: their heaps count too.
    assert 9_000_000 < held.in_use - before.in_use < 11_000_000
    del blocks
    after = allocator_pages()
    assert after is not None
    assert after.in_use - before.in_use < 1_000_000


def test_of_free_blocks_only_the_ends_stay_resident_after_a_trim() -> None:
    """Every other of 400 blocks of 64 KiB is freed: 12.5 MiB are free, and of each a page in two halves is kept."""
    if allocator_pages() is None:
        pytest.skip("no glibc 2.33")
    ran = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True)
    in_use, free, kept, resident = map(int, ran.stdout.split())
    half = BLOCKS // 2
    assert in_use == pytest.approx(half * SIZE, rel=0.05)
    assert free == pytest.approx(half * SIZE, rel=0.05)
    assert kept == pytest.approx(half * 4096, rel=0.2)
    assert resident == pytest.approx(in_use + kept, rel=0.1)


def test_what_is_put_into_holes_that_a_trim_gave_back_counts_once() -> None:
    if allocator_pages() is None:
        pytest.skip("no glibc 2.33")
    ran = subprocess.run([sys.executable, "-c", TRIMMED], capture_output=True, text=True, check=True)
    whole = BLOCKS * SIZE
    parts = [int(size) / whole for size in ran.stdout.split()]
    assert parts == pytest.approx([1, 0.5, 0.5, 0.75, 0.75], abs=0.06)


def test_pages_are_seen_to_come_after_a_trim_of_a_threads_heap() -> None:
    """More is free in that heap than all that is resident: those bytes are not kept, and nothing else is hidden."""
    if allocator_pages() is None:
        pytest.skip("no glibc 2.33")
    ran = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True)
    assert [int(size) / MIB for size in ran.stdout.split()] == pytest.approx([0, 0, 20, 0], abs=1.5)


def test_small_chunks_stay_whole_and_of_large_ones_a_page() -> None:
    report = (
        b'<malloc version="1"><heap nr="0"><sizes>'
        b'<size from="33" to="48" total="480" count="10"/>'
        b'<size from="100000" to="200000" total="450000" count="3"/>'
        b'<unsorted from="65" to="9000" total="9065" count="2"/>'
        b"</sizes></heap></malloc>"
    )
    assert _kept_bytes(report) == 480 + 3 * 4096 + 2 * 4096


def test_what_is_put_into_pages_that_nothing_has_touched_counts_once() -> None:
    """A block that was freed untouched is no memory that the allocator keeps; one that was filled is, when freed."""
    if allocator_pages() is None:
        pytest.skip("no glibc 2.33")
    ran = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=True)
    untouched, kept, filled, freed, at_last = map(int, ran.stdout.split())
    size, little = 20 << 20, 1 << 20
    assert abs(untouched) < little
    assert abs(kept) < little
    assert size - little < filled < size + little
    assert abs(freed) < little
    assert size - little < at_last < size + little


@pytest.mark.parametrize(
    ("anonymous", "in_use", "free", "kept"),
    [
        (300, 150, 120, 120),  # all that was freed is resident
        (300, 250, 900, 50),  # most of it was given back by a trim
        (300, 250, 1 << 40, 50),  # or was asked for and never touched
        (300, 700, 900, 0),  # handed out and never touched
    ],
)
def test_freed_bytes_count_as_far_as_they_are_resident(anonymous: int, in_use: int, free: int, kept: int) -> None:
    assert AllocatorTotals(in_use=in_use, free=free).kept_bytes(anonymous) == kept
