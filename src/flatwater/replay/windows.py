"""Where windows are stored whole, for those who ask for it."""

import mmap
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.errors import MemoryLimitError
from flatwater.state.tree import derived, state
from flatwater.units import format_bytes

FLOAT_BYTES = 4


@state
class StoredWindows:
    """A window before and one after each transition; on a CPU their pages are touched when they are first written."""

    seen: Float[Tensor, "C N W F"] = derived()
    following: Float[Tensor, "C N W F"] = derived()


def build_windows(capacity: int, window: tuple[int, int, int], device: torch.device) -> StoredWindows:
    """Room for `capacity` windows of [columns, days, features], twice.

    Raises:
        MemoryLimitError: the system has not so many addresses to give.
    """
    shape = (capacity, *window)
    return StoredWindows(seen=_untouched(shape, device), following=_untouched(shape, device))


def _untouched(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A float32 tensor whose pages come from the system: an allocator could give some that were touched before."""
    if device.type != "cpu":
        return torch.empty(shape, device=device)
    size = FLOAT_BYTES * prod(shape)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as refused:
        raise MemoryLimitError(
            f"replay.windows = 'stored': the system refuses {format_bytes(size)} for one of its two blocks "
            f"({refused.strerror}). Lower replay.generations, or use replay.windows = 'rows'."
        ) from refused
    return torch.frombuffer(pages, dtype=torch.float32).view(shape)
