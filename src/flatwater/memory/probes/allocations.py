"""Where an object was allocated, as far as tracemalloc remembers.

Two places are looked at that `tracemalloc.get_object_traceback` leaves out. Python 3.11 allocates an object with a
`__dict__` two pointers further in front than it looks for it afterwards (3.12 looks at the right place), so that no
such object has a line there. And an empty list or dict is one that waited on a free list: what was allocated when it
was filled is its table.
"""

import ctypes
import sys
import tracemalloc
from collections.abc import Iterator

Frames = tuple[tuple[str, int], ...]
"""Files and lines, from the innermost outwards."""

_GC_HEAD = 2 * ctypes.sizeof(ctypes.c_void_p)
_MANAGED_DICT = 1 << 4
"""Flag of a type whose instances have two pointers before the collector's own, in Python 3.11."""
_BEFORE = 2 * ctypes.sizeof(ctypes.c_void_p)
_TABLES = {id(list): 3 * ctypes.sizeof(ctypes.c_void_p), id(dict): 4 * ctypes.sizeof(ctypes.c_void_p)}
"""Where in a list and a dict the address of its table stands; within the object in every version, if not the table."""


def _lookup() -> "ctypes._FuncPointer | None":
    try:
        return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_uint, ctypes.c_size_t)(
            ("_PyTraceMalloc_GetTraceback", ctypes.pythonapi)
        )
    except AttributeError:  # a Python that keeps it to itself
        return None


_traceback_at = _lookup()


def frames_of(item: object) -> Frames:
    """The lines that allocated an object, or the table of its items; nothing where it is not known."""
    known = tracemalloc.get_object_traceback(item)
    if known is not None:
        return tuple((frame.filename, frame.lineno) for frame in reversed(known))
    for address in _addresses(item):
        frames: Frames | None = None if _traceback_at is None else _traceback_at(0, address)
        if frames is not None:
            return frames
    return ()


def _addresses(item: object) -> Iterator[int]:
    kind = type(item)
    if sys.version_info < (3, 12) and type.__dict__["__flags__"].__get__(kind) & _MANAGED_DICT:
        yield id(item) - _GC_HEAD - _BEFORE
    table = _TABLES.get(id(kind))
    if table is not None:
        yield ctypes.c_size_t.from_address(id(item) + table).value
