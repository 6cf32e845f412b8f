"""A trace of allocations that can pause, and the lines that allocated an object, as far as tracemalloc remembers.

A block is memory that an allocator has handed out. CPython has several allocators, each a set of functions with a
number, its domain; tracemalloc puts functions that trace in their place.

Two addresses are looked up that `tracemalloc.get_object_traceback` leaves out. Python 3.11 allocates an object with a
`__dict__` two pointers before the address at which it looks the object up (3.12 does not), so that it finds no line for
such objects. And the part of a container that grows is a block of its own: the table of a list or a dict, which may
also have waited on a free list, or the buffer of a file in memory.
"""

import array
import ctypes
import io
import sys
import tracemalloc
from collections.abc import Iterator

Frames = tuple[tuple[str, int], ...]
"""Files and lines, from the innermost outwards."""

_DOMAINS = (1, 2)
"""CPython's numbers of the allocators of objects and of their blocks."""
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_MANAGED_DICT = 1 << 4
"""Flag of a type whose instances have two pointers before the collector's own, in Python 3.11."""
_BLOCK_PATHS: dict[int, tuple[tuple[int, ...], ...]] = {
    id(list): ((3,),),
    id(dict): ((4,),),
    id(bytearray): ((4,),),
    id(array.array): ((3,),),
    id(io.BytesIO): ((2,),),
    id(io.StringIO): ((2,), (7,)) if sys.version_info >= (3, 12) else ((2,), (8, 3)),  # it is a list of texts at first
}
"""By the id of a type, paths to the blocks of its instances: offsets, in pointers, at which an address is read, first
from the object, and then from the object that lies there. The first offset lies within the object in every supported
version, so that reading it is safe even if there is no block."""


class _Allocator(ctypes.Structure):
    """CPython's structure of an allocator: its functions, and the argument that they get."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


class AllocationTrace:
    """A trace by tracemalloc that forgets nothing while it pauses, as it does for the watch's own work.

    Python that only allocates is 20 to 75 times as slow under a trace, and 1.2 to 2 times while the trace pauses.
    """

    def __init__(self) -> None:
        self.running = False
        """Whether this trace runs, or pauses."""
        self._is_paused = False
        """Whether new blocks are not traced until `resume`."""
        self._tracing_allocators: list[_Allocator] = []
        """The allocators that trace, by domain."""
        self._paused_allocators: list[_Allocator] = []
        """The allocators while the trace is paused: new blocks are not traced, and freed ones lose their trace. A block
        that is reallocated, as the table of a list that grows, gets the line of the reallocation."""

    def start(self, frames: int) -> None:
        """Begin to trace, and keep `frames` frames of each allocation; after `pause` the trace waits for `resume`.

        A paused trace takes the untraced functions that make new blocks, and the traced ones that resize or free.
        """
        untraced_allocators = _current_allocators()
        tracemalloc.start(frames)
        self._tracing_allocators, self.running = _current_allocators(), True
        # All functions of an allocator get one argument, `ctx`. Python's allocators ignore theirs, which is null; where
        # the program has set another allocator, there is no pause.
        self._paused_allocators = []
        for untraced, traced in zip(untraced_allocators, self._tracing_allocators, strict=True):
            paused = _Allocator(traced.ctx, untraced.malloc, untraced.calloc, traced.realloc, traced.free)
            self._paused_allocators.append(traced if untraced.ctx else paused)
        if self._is_paused:
            self.pause()

    def pause(self) -> None:
        """Trace no new block until `resume`; blocks that grow, such as tables of lists, stay traced."""
        self._is_paused = True
        _replace_allocators(self._tracing_allocators, self._paused_allocators)

    def resume(self) -> None:
        """Trace new blocks again."""
        self._is_paused = False
        _replace_allocators(self._paused_allocators, self._tracing_allocators)

    def stop(self) -> None:
        """End the trace, and forget it."""
        if self.running:
            tracemalloc.stop()  # sets the allocators of before
            self._tracing_allocators, self._paused_allocators, self.running = [], [], False


def _current_allocators() -> list[_Allocator]:
    """Return copies of CPython's allocators of objects and of their blocks, as they are now."""
    allocators = [_Allocator() for _ in _DOMAINS]
    for domain, allocator in zip(_DOMAINS, allocators, strict=True):
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(allocator))
    return allocators


def _replace_allocators(expected: list[_Allocator], allocators: list[_Allocator]) -> None:
    """Set the new allocators in place of the expected ones, where somebody else has not set theirs meanwhile.

    Each list has an allocator for each domain; both are empty while nothing is traced.
    """
    for domain, current, old, new in zip(_DOMAINS, _current_allocators(), expected, allocators):  # noqa: B905  (may be empty)
        if bytes(current) == bytes(old):  # structures have no `==` of their own
            ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(new))


def _find_traceback_function() -> "ctypes._FuncPointer | None":
    """Return CPython's function that returns the lines which allocated an address; None if this Python hides it."""
    try:
        return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_uint, ctypes.c_size_t)(
            ("_PyTraceMalloc_GetTraceback", ctypes.pythonapi)
        )
    except AttributeError:  # a Python that does not export it
        return None


_traceback_at = _find_traceback_function()


def allocation_frames(item: object) -> Frames:
    """Return the lines that allocated an object or its block, innermost first; empty if they are not known."""
    traceback = tracemalloc.get_object_traceback(item)
    if traceback is not None:
        return tuple((frame.filename, frame.lineno) for frame in reversed(traceback))
    for address in _block_addresses(item):
        frames: Frames | None = None if _traceback_at is None else _traceback_at(0, address)  # 0: Python's domain
        if frames is not None:
            return frames
    return ()


def _block_addresses(item: object) -> Iterator[int]:
    """Yield the addresses of blocks of an object that tracemalloc does not look up itself; 0 for a missing block."""
    kind = type(item)
    if sys.version_info < (3, 12) and type.__dict__["__flags__"].__get__(kind) & _MANAGED_DICT:
        # Before the object come two pointers of the collector's, and before these two for its `__dict__`.
        yield id(item) - (2 + 2) * _POINTER
    for path in _BLOCK_PATHS.get(id(kind), ()):  # offsets that lead to a block
        address = id(item)
        for offset in path:
            if address:  # a null pointer ends the path, as an empty container has no block
                address = ctypes.c_size_t.from_address(address + offset * _POINTER).value
        yield address
