"""What is stored more than once: overlapping windows, equal arrays, wide numbers that are narrow."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from flatwater.memory.leaks.raw import is_a

LARGEST_SHIFT = 4
"""Rows by which consecutive windows may be apart."""

MOST_ELEMENTS = 1 << 20
"""Arrays above are not read: the question is asked while the program waits."""


def redundancy(arrays: Sequence[Any]) -> str | None:
    """A sentence on what arrays that were stored one after the other have in common; None if nothing was found.

    Args:
        arrays: numpy arrays or torch tensors, as they were stored; those of other devices are left out.
    """
    numpy: Any = sys.modules.get("numpy")
    readable = (
        [] if numpy is None else [a for a in map(_as_array, arrays) if a is not None and 0 < a.size <= MOST_ELEMENTS]
    )
    pairs = [(a, b) for a, b in pairwise(readable) if a.shape == b.shape and a.dtype == b.dtype]
    if pairs and len(pairs) == len(readable) - 1 and readable[0].size > 1:
        if all(numpy.array_equal(a, b) for a, b in pairs):
            return "all arrays are equal: store one"
        overlap = _overlap(pairs)
        if overlap is not None:
            return overlap
    if readable and all(a.dtype == numpy.float64 and _fits_float32(numpy, a) for a in readable):
        return "float64 whose values fit float32: half of the bytes would do"
    return None


def _as_array(obj: Any) -> Any:  # noqa: ANN401
    """The object as a plain numpy array on the same memory, or None. A class of the program's compares as it likes."""
    numpy: Any = sys.modules["numpy"]
    torch: Any = sys.modules.get("torch")
    if is_a(obj, numpy.ndarray):
        array = numpy.ndarray.view(obj, numpy.ndarray)
        return None if array.dtype.hasobject else array
    if torch is None or (type(obj) is not torch.Tensor and type(obj) is not torch.nn.Parameter):
        return None
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # noqa: SLF001
        plain = obj.device.type == "cpu" and obj.layout == torch.strided and obj.dtype != torch.bfloat16
        return obj.detach().numpy() if plain else None


def _overlap(pairs: Sequence[tuple[Any, Any]]) -> str | None:
    """Whether each array is the one before, moved on by a few rows along one axis."""
    numpy: Any = sys.modules["numpy"]
    shape = pairs[0][0].shape
    for axis, rows in enumerate(shape):
        for shift in range(1, min(LARGEST_SHIFT, rows // 2) + 1):
            kept, lost = [slice(None)] * len(shape), [slice(None)] * len(shape)
            kept[axis], lost[axis] = slice(shift, None), slice(None, rows - shift)
            shared = sum(numpy.array_equal(a[tuple(kept)], b[tuple(lost)]) for a, b in pairs)
            if shared >= 0.8 * len(pairs):  # a new episode begins a new window
                words = "one" if shift == 1 else str(shift)
                return f"consecutive arrays share all rows but {words}: store row numbers"
    return None


def _fits_float32(numpy: Any, array: Any) -> bool:  # noqa: ANN401
    """Whether nothing is lost on the way to float32 and back."""
    with numpy.errstate(over="ignore"):
        return bool(numpy.array_equal(array, array.astype(numpy.float32).astype(numpy.float64), equal_nan=True))
