"""Mapped memory that belongs to no file: anonymous mappings, and segments in shared memory.

Pages of a file are the system's, which takes them back. Pages without a file stay until the mapping is closed, and a
segment in /dev/shm stays until it is unlinked.
"""

import ctypes
from bisect import bisect_right
from typing import Any

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
    """Open an `mmap`: its pages in RAM, unless they are pages of a file."""
    # Runs no code of the watched program.
    if walk.fileless_spans is None:
        walk.fileless_spans = fileless_spans()
    address, size = _address_and_size(mapping)
    # The last span that begins at the address or below it: no span ends at 1 << 64 or above.
    index = bisect_right(walk.fileless_spans, (address, 1 << 64)) - 1
    if size == 0 or index < 0 or address >= walk.fileless_spans[index][1]:
        return OPAQUE
    touched = claim_bytes(walk, address, touched_bytes(address, size))
    return OpenedObject("bytes", object.__sizeof__(mapping) + GC_BYTES + touched, size)


def _address_and_size(mapping: Any) -> tuple[int, int]:
    """Return address and bytes of a mapping; both are 0 for a mapping that is closed."""
    view = _Buffer()
    try:
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(view), 0)
    except (ValueError, BufferError):
        return 0, 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return view.address or 0, view.size
