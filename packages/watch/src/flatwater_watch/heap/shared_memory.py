"""Mapped memory: pages of files, anonymous mappings, and segments in shared memory.

Pages of a file are the system's, which takes them back. Pages without a file stay until the mapping is closed, and a
segment in /dev/shm stays until it is unlinked.
"""

import ctypes
import mmap
from bisect import bisect_right
from typing import Any

from flatwater_watch.heap.arrays import data_address
from flatwater_watch.heap.raw import GC_BYTES
from flatwater_watch.heap.view import OPAQUE, OpenedObject, Walk, claim_bytes
from flatwater_watch.meters.mappings import fileless_spans, touched_bytes


class _Buffer(ctypes.Structure):
    """The buffer that an object exports to C code (Py_buffer), of which only the beginning is read."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("exporter", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
        ("rest", ctypes.c_void_p * 9),
    )


def open_mapping(mapping: Any, walk: Walk) -> OpenedObject:
    """Open an `mmap`: its bytes are those of its pages in RAM, and it has no children; a closed one is not entered."""
    # Runs no code of the watched program.
    address, size = _address_and_size(mapping)
    if size == 0:
        return OPAQUE
    size_in_memory = claim_bytes(walk, address, touched_bytes(address, size))
    return OpenedObject("bytes", object.__sizeof__(mapping) + GC_BYTES + size_in_memory, size)


def lies_in_file(obj: Any, walk: Walk) -> bool:
    """Return whether the bytes of an array, a tensor or an `mmap` are pages of a mapped file; False for all others."""
    # Runs no code of the watched program.
    address = _address_and_size(obj)[0] if type(obj) is mmap.mmap else data_address(obj)
    if address == 0:
        return False
    if walk.fileless_spans is None:
        walk.fileless_spans = fileless_spans()
    # The index of the last span that begins at the address or below it: 1 << 64 is greater than all ends of spans.
    index = bisect_right(walk.fileless_spans, (address, 1 << 64)) - 1
    if index < 0:
        return True
    _, end = walk.fileless_spans[index]
    return address >= end  # behind that span: the mapping at the address has a file


def _address_and_size(mapping: Any) -> tuple[int, int]:
    """Return the address of a mapping, and its bytes; both are 0 for a mapping that is closed."""
    # By the buffer that it exports to C code, which is given back at once: the address stays the same.
    view = _Buffer()
    try:
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(view), 0)  # 0: PyBUF_SIMPLE
    except (ValueError, BufferError):
        return 0, 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return view.address or 0, view.size
