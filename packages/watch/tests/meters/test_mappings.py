"""Pages counted against pages that were made."""

import ctypes
import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from flatwater_watch.meters.mappings import family_memory, footprint, open_file_count, touched_bytes
from flatwater_watch.meters.proc import thread_count

MIB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@contextmanager
def untouched_block(size: int) -> Iterator[tuple[mmap.mmap, int]]:
    """A fresh block of untouched pages, and its address."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    window = ctypes.c_char.from_buffer(block)
    try:
        yield block, ctypes.addressof(window)
    finally:
        del window
        block.close()


def test_only_touched_pages_count_to_the_page() -> None:
    with untouched_block(1000 * mmap.PAGESIZE) as (block, address):
        assert touched_bytes(address, len(block)) == 0
        # Every 16th page: a huge page in one piece would be counted as what it is, so none is asked for here.
        for page in range(0, 1000, 16):
            block[page * mmap.PAGESIZE] = 1
        found = touched_bytes(address, len(block)) // mmap.PAGESIZE
        assert found == 63 or found % 512 in range(400, 512)


def test_a_block_within_a_page_is_its_own_size() -> None:
    with untouched_block(mmap.PAGESIZE) as (block, address):
        block[0] = 1
        assert touched_bytes(address + 10, 100) == 100
        assert touched_bytes(address, 0) == 0


def test_own_pages_and_file_pages_are_told_apart() -> None:
    found = footprint()
    memory = psutil.Process().memory_info()
    assert found.resident == pytest.approx(memory.rss, rel=0.02)
    assert found.file_mapped == pytest.approx(memory.shared, rel=0.02)
    assert found.anonymous == found.resident - found.file_mapped


def test_pages_shared_with_a_worker_count_once() -> None:
    """A fork shares all pages: two processes together take little more than one."""
    program = (
        "import os, json, sys\n"
        "from flatwater_watch.meters.mappings import family_memory\n"
        "block = bytearray(os.urandom(1 << 20)) * 64\n"
        "alone = family_memory()\n"
        "read, write = os.pipe()\n"
        "child = os.fork()\n"
        "if not child:\n    os.read(read, 1)\n    os._exit(0)\n"
        "both = family_memory()\n"
        "os.write(write, b'x')\n"
        "print(alone.count, both.count, both.proportional - alone.proportional)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    alone, both, more = map(int, ran.stdout.split())
    assert (alone, both) == (1, 2)
    assert abs(more) < 16 * MIB


def test_a_process_without_children_reads_no_other_process() -> None:
    """That took 12 ms where 300 processes ran."""
    program = "from flatwater_watch.meters import mappings\nmappings.descendant_pids = None\n"
    program += "print(mappings.family_memory().count)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


def test_private_bytes_grow_by_what_is_written() -> None:
    before = family_memory().private
    with untouched_block(32 * MIB) as (block, _):
        for page in range(0, 32 * MIB, mmap.PAGESIZE):
            block[page] = 1
        assert 24 * MIB < family_memory().private - before < 40 * MIB


def test_a_peak_is_remembered_until_it_is_reset() -> None:
    program = (
        "import mmap\n"
        "from flatwater_watch.meters.mappings import peak_bytes, reset_peak\n"
        "before = peak_bytes()\n"
        "block = bytearray(64 << 20)\n"
        "del block\n"
        "high = peak_bytes()\n"
        "print(high - before, reset_peak(), peak_bytes() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    high, permitted, after = ran.stdout.split()
    assert int(high) > 60 * MIB
    if permitted == "True":
        assert int(after) < 8 * MIB


def test_files_and_threads_are_those_that_psutil_counts() -> None:
    process = psutil.Process()
    assert abs(open_file_count() - process.num_fds()) <= 1
    assert thread_count() == process.num_threads()
