"""Large arrays that are allocated whole and become resident page by page, as they are filled.

Replay buffers are such arrays (`np.zeros`, `torch.empty`). A census finds them from the user's roots. The watch has
weak references to them, and counts their touched pages at each reading, so that it can report when they will be full.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flatwater_watch.heap.arrays import owning_array
from flatwater_watch.heap.census import Census
from flatwater_watch.heap.raw import is_a
from flatwater_watch.meters.mappings import touched_bytes
from flatwater_watch.thresholds import FILLING

MAXIMUM_ARRAYS = 32
"""Maximum number of arrays whose pages are counted at each reading."""


@dataclass(eq=False, repr=False)
class LargeArray:
    """A large array with pages that are not in RAM yet."""

    path: str
    """Path of the array in the program, as a census named it."""
    array: weakref.ref[Any]
    address: int
    """Address of its first byte."""
    size: int
    """Bytes of the whole array."""
    touched_bytes: int
    """Bytes of its pages in RAM, at the last count."""


FillingArrays = dict[int, LargeArray]
"""The arrays that are being filled, by address."""


def add_untouched_arrays_(arrays: FillingArrays, census: Census) -> None:
    """Add the large arrays of a census of which some pages are not in RAM yet; at most `MAXIMUM_ARRAYS` in all.

    The objects of the census must still live.
    """
    for path, obj in census.containers.items():
        for array, address, size in _large_block(obj):
            has_room = len(arrays) < MAXIMUM_ARRAYS
            if size < FILLING.large_array_bytes or address in arrays or not has_room:
                continue
            touched_size = touched_bytes(address, size)
            if touched_size < FILLING.fully_touched_share * size:
                reference = weakref.ref(array)
                arrays[address] = LargeArray(path, reference, address=address, size=size, touched_bytes=touched_size)


def touched_by_path_(arrays: FillingArrays) -> dict[str, int]:
    """Count the bytes of the arrays that are in RAM now, and return them by path; freed arrays are removed."""
    for address, large_array in list(arrays.items()):
        if large_array.array() is None:  # freed
            del arrays[address]
        # A full array stays full, and is not counted again.
        elif large_array.touched_bytes < FILLING.fully_touched_share * large_array.size:
            large_array.touched_bytes = touched_bytes(address, large_array.size)
    return _sum_by_path(arrays, lambda large_array: large_array.touched_bytes)


def planned_by_path(arrays: FillingArrays) -> dict[str, int]:
    """Return the bytes by path that the arrays have when they are full."""
    return _sum_by_path(arrays, lambda large_array: large_array.size)


def _sum_by_path(arrays: FillingArrays, count_bytes: Callable[[LargeArray], int]) -> dict[str, int]:
    """Return the sum of `count_bytes(array)` over the arrays of each path."""
    sizes: dict[str, int] = {}
    for large_array in arrays.values():
        sizes[large_array.path] = sizes.get(large_array.path, 0) + count_bytes(large_array)
    return sizes


def _large_block(obj: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield the large block of memory of a dense array of numpy or torch in RAM, nothing for other objects.

    A block is a tuple: the array that keeps it alive, the address of its first byte, its bytes.
    """
    # Looked up, never imported: a program without these libraries must not load them for the watch.
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if numpy is not None and is_a(obj, numpy.ndarray):
        # A view keeps the array alive that it is a view of; an array whose base is no array has no memory of its own.
        owner = owning_array(obj)
        # The class's own descriptors are asked, as a subclass of the program's may have replaced its attributes.
        array_class = numpy.ndarray
        size = array_class.nbytes.__get__(owner)
        if array_class.base.__get__(owner) is None and size >= FILLING.large_array_bytes:
            address, _ = array_class.__array_interface__.__get__(owner)["data"]
            yield owner, address, size
    # A subclass of a tensor is left out: its methods may run code of the program.
    elif torch is not None and (type(obj) is torch.Tensor or type(obj) is torch.nn.Parameter):
        if not _is_dense_in_ram(obj, torch):
            return
        storage = obj.untyped_storage()
        if storage.nbytes() >= FILLING.large_array_bytes:
            yield obj, storage.data_ptr(), storage.nbytes()


def _is_dense_in_ram(tensor: Any, torch: Any) -> bool:
    return bool(tensor.layout == torch.strided and tensor.device.type == "cpu")
