"""Mapped memory: pages of a file are the system's, and have an owner; those of shared memory are somebody's."""

import mmap
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.shared_memory import lies_in_file
from flatwater_watch.heap.view import OPAQUE, OpenedObject, Walk
from flatwater_watch.meters.mappings import file_pages, footprint

MIB = 1 << 20


def open_mapping(mapping: Any) -> OpenedObject:
    return open_object(mapping, Walk(24, lambda _: False, 100))


def test_a_mapping_without_a_file_counts_by_its_pages_in_memory() -> None:
    with mmap.mmap(-1, 4 * MIB) as mapping:
        mapping[: 2 * MIB] = bytes(2 * MIB)
        assert 2 * MIB <= open_mapping(mapping).size < 2.1 * MIB
        assert mapping[:1] == bytes(1), "it can still be closed and read"
    assert open_mapping(mapping) is OPAQUE, "it is closed"


def test_a_mapped_file_counts_by_its_pages_in_memory_and_is_known(tmp_path: Path) -> None:
    """Arrays over it are as well: a kept view of a mapped file keeps all its pages."""
    file = tmp_path / "rows"
    file.write_bytes(bytes(MIB))
    walk = Walk(24, lambda _: False, 100)
    with file.open("rb") as rows, mmap.mmap(rows.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        assert sum(mapping[::4096]) == 0
        assert MIB <= open_mapping(mapping).size < 1.1 * MIB
        assert lies_in_file(mapping, walk)
        assert not lies_in_file(bytes(MIB), walk)
    assert not lies_in_file(mapping, walk), "it is closed"
    mapped_rows = np.memmap(file, mode="r")[100:]
    walk = Walk(24, lambda _: False, 100)
    assert lies_in_file(mapped_rows, walk)
    assert not lies_in_file(np.array(mapped_rows), walk)


def test_pages_of_shared_memory_are_no_pages_of_files() -> None:
    """The system cannot take them back: they were told as "mapped", with the advice to count private bytes."""
    segment = SharedMemory(create=True, size=16 * MIB)
    try:
        before = footprint()
        pages_before = file_pages(before)
        segment.buf[:] = bytes(16 * MIB)
        after = footprint()
        assert after.file_mapped - before.file_mapped >= 15 * MIB
        assert file_pages(after) - pages_before < MIB
        assert open_mapping(segment._mmap).size >= 16 * MIB  # type: ignore[attr-defined]
    finally:
        segment.close()
        segment.unlink()
