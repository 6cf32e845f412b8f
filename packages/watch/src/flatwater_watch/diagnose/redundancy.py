"""Redundancy in arrays that were stored one after the other: equal ones, overlapping ones, needless precision."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from flatwater_watch.heap.raw import is_a
from flatwater_watch.thresholds import OWNING

MAXIMUM_SHIFT = 4
"""Maximum rows by which an array may be shifted against the array before."""
MAXIMUM_ELEMENTS = 1 << 20
"""Maximum elements of an array that is compared, as the program waits meanwhile."""


def describe_redundancy(arrays: Sequence[Any]) -> str | None:
    """Return a sentence if arrays are equal, overlap, or need only float32; None if none of this is so.

    Args:
        arrays: arrays and tensors in the order in which they were stored; those that NumPy cannot read, such as tensors
            on another device, are left out.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    readable = [array for array in map(_as_array, arrays) if array is not None and 0 < array.size <= MAXIMUM_ELEMENTS]
    neighbours = list(pairwise(readable))
    are_alike = all(earlier.shape == later.shape and earlier.dtype == later.dtype for earlier, later in neighbours)
    if neighbours and are_alike and readable[0].size > 1:  # single numbers may be equal by chance
        if all(numpy.array_equal(earlier, later) for earlier, later in neighbours):
            return "all arrays are equal: store one"
        overlap = _describe_overlap(neighbours)
        if overlap is not None:
            return overlap
    if readable and all(array.dtype == numpy.float64 and _fits_float32(numpy, array) for array in readable):
        return "float64 whose values fit float32: half of the bytes would do"
    return None


def _as_array(obj: Any) -> Any:
    """Return an array or tensor as a plain numpy array that shares its memory; None if NumPy cannot read its memory."""
    # A plain array: a subclass may override the comparison, and run the program's code.
    numpy: Any = sys.modules["numpy"]
    torch: Any = sys.modules.get("torch")
    if is_a(obj, numpy.ndarray):
        array = numpy.ndarray.view(obj, numpy.ndarray)
        return None if array.dtype.hasobject else array  # comparing objects would run the program's code
    # No other subclass of a tensor, whose operations may be the program's.
    if torch is None or (type(obj) is not torch.Tensor and type(obj) is not torch.nn.Parameter):
        return None
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        # What NumPy can read without a copy; it has no bfloat16.
        is_readable = obj.device.type == "cpu" and obj.layout == torch.strided and obj.dtype != torch.bfloat16
        return obj.detach().numpy() if is_readable else None


def _describe_overlap(pairs: Sequence[tuple[Any, Any]]) -> str | None:
    """Return a sentence if arrays overlap as sliding windows do: nearly each is the one before, shifted by a few rows.

    Args:
        pairs: neighbours (earlier array, later array), all of one shape; a row is a slice along any one axis.

    Returns:
        The sentence; None if they do not overlap so.
    """
    numpy: Any = sys.modules["numpy"]
    first_array, _ = pairs[0]
    shape = first_array.shape
    for axis, rows in enumerate(shape):
        for shift in range(1, min(MAXIMUM_SHIFT, rows // 2) + 1):  # at least half of the rows are shared
            earlier_part, later_part = [slice(None)] * len(shape), [slice(None)] * len(shape)
            # The earlier array without its first rows is the later array without its last rows.
            earlier_part[axis], later_part[axis] = slice(shift, None), slice(None, rows - shift)
            matches = sum(
                numpy.array_equal(earlier[tuple(earlier_part)], later[tuple(later_part)]) for earlier, later in pairs
            )
            # Not all pairs need match, as a new episode begins a new window.
            if matches >= OWNING.minimum_overlap_share * len(pairs):
                words = "one" if shift == 1 else str(shift)
                return f"consecutive arrays share all rows but {words}: store row numbers"
    return None


def _fits_float32(numpy: Any, array: Any) -> bool:
    """Return whether no value is changed by a conversion to float32 and back."""
    with numpy.errstate(over="ignore"):
        return bool(numpy.array_equal(array, array.astype(numpy.float32).astype(numpy.float64), equal_nan=True))
