"""Leaves as bytes: how a shard stores a tensor, an array or a generator, and how these are read back in place."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flatwater.checkpoints.manifest import LeafKind, describe_leaf
from flatwater.checkpoints.shards import DTYPES, TensorEntry
from flatwater.state.tree import Leaf, Scalar

_SCALAR_KINDS: dict[type, LeafKind] = {float: "float", int: "int", bool: "bool", str: "str", type(None): "none"}

ReadBytes = Callable[[memoryview], None]
"""A function that fills the memory that it gets with saved bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """A leaf whose bytes are stored in a shard: a tensor, an array or a generator."""

    leaf: Leaf
    kind: LeafKind
    dtype: str
    """Dtype as torch or numpy writes it."""
    shape: tuple[int, ...]
    stored: TensorEntry
    """Its entry in the shard's header."""

    @property
    def nbytes(self) -> int:
        """Bytes in the shard."""
        return self.stored.nbytes

    def __str__(self) -> str:
        """Return text such as `tensor float32 [4, 3]`."""
        return describe_leaf(self.kind, self.dtype, self.shape)


def scalar_kind(path: str, value: Scalar) -> LeafKind:
    """Return the kind of a scalar leaf: a number, a flag, a string or None.

    Raises:
        TypeError: the value has a subclass, such as np.float64, and would be restored as the plain type.
    """
    kind = _SCALAR_KINDS.get(type(value))
    if kind is None:
        raise TypeError(f"{path}: a {type(value).__name__} would be restored as a plain number. Store a plain number.")
    return kind


def make_payload(leaf: Leaf) -> Payload | None:
    """Return the leaf as a shard stores it; None for a scalar, whose value is in the manifest.

    Raises:
        TypeError: the leaf has no bytes of its own that could be saved and written back in place.
    """
    value = leaf.value
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return _build_payload(leaf, "generator", "uint8", tuple(state.shape), itemsize=1)
    if isinstance(value, Tensor):
        _require_plain_tensor(leaf.path, value)
        dtype = str(value.dtype).removeprefix("torch.")
        return _build_payload(leaf, "tensor", dtype, tuple(value.shape), itemsize=value.element_size())
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or _has_overlap(value.shape, value.strides):
            raise TypeError(
                f"{leaf.path}: a checkpoint cannot hold an array of objects or an array whose cells overlap"
            )
        # A structured dtype has no short name: its fields are written out.
        dtype = value.dtype.str if value.dtype.fields is None else str(value.dtype.descr)
        return _build_payload(leaf, "array", dtype, value.shape, itemsize=value.itemsize)
    return None


def _build_payload(leaf: Leaf, kind: LeafKind, dtype: str, shape: tuple[int, ...], itemsize: int) -> Payload:
    """Return the payload of a leaf; a dtype without a name in the format is stored as bytes, with the dtype U8.

    Args:
        leaf: the leaf.
        kind: kind of the leaf, for the manifest.
        dtype: type of its numbers, as torch or NumPy writes it.
        shape: shape of the leaf.
        itemsize: bytes of one cell.
    """
    size = prod(shape) * itemsize
    if dtype in DTYPES:
        header_entry = TensorEntry(dtype=DTYPES[dtype].name, shape=shape, itemsize=itemsize, nbytes=size)
    else:
        header_entry = TensorEntry(dtype="U8", shape=(size,), itemsize=1, nbytes=size)  # single bytes
    return Payload(leaf=leaf, kind=kind, dtype=dtype, shape=shape, stored=header_entry)


def _require_plain_tensor(path: str, value: Tensor) -> None:
    """Refuse a tensor whose memory is not simply its elements, one after the other.

    Raises:
        TypeError: the tensor is sparse, quantized, meta or otherwise not dense, or its elements share memory.
    """
    # These have no memory, or their memory differs from their values, as a lazy conjugate's or a lazy minus's.
    if value.layout is not torch.strided or value.is_quantized or value.is_meta or value.is_conj() or value.is_neg():
        raise TypeError(f"{path}: expected a dense tensor in memory, got a {value.layout} tensor on {value.device}")
    if _has_overlap(value.shape, value.stride()):
        raise TypeError(f"{path}: elements share memory (expand). Store the tensor from before expand().")


def _has_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements of a tensor or an array share memory along an axis of stride 0, as after `expand`."""
    # An empty array has strides of 0 in NumPy, and shares nothing.
    return prod(shape) > 0 and any(n > 1 and stride == 0 for n, stride in zip(shape, strides, strict=True))


def payload_bytes(payload: Payload) -> memoryview:
    """Return the leaf's bytes in row-major order: a view of its memory if it is contiguous on the CPU, else a copy."""
    if payload.nbytes == 0:
        return memoryview(b"")
    value = payload.leaf.value
    if isinstance(value, np.ndarray):
        return _array_bytes(value)
    tensor = value.get_state() if isinstance(value, torch.Generator) else value
    return _tensor_bytes(_to_tensor(tensor).detach().cpu().contiguous())


def fill_leaf_(payload: Payload, read_into: ReadBytes) -> None:
    """Overwrite the leaf in place with saved bytes, which `read_into` writes into a buffer in row-major order."""
    value = payload.leaf.value
    if isinstance(value, torch.Generator):
        state = torch.empty(payload.shape, dtype=torch.uint8)
        read_into(_tensor_bytes(state))
        value.set_state(state)
    elif payload.nbytes == 0:
        return
    elif isinstance(value, np.ndarray):
        # Straight into the array's memory if it is contiguous, else by way of a copy of the same size.
        buffer = value if value.flags.c_contiguous else np.empty(value.shape, value.dtype)
        read_into(_array_bytes(buffer))
        if buffer is not value:
            value[...] = buffer
    else:
        _fill_tensor_(_to_tensor(value).detach(), read_into)


def _fill_tensor_(value: Tensor, read_into: ReadBytes) -> None:
    """Read saved bytes into the tensor's storage, by way of a copy if it is not contiguous or not on the CPU."""
    if value.device.type == "cpu" and value.is_contiguous():
        read_into(_tensor_bytes(value))
    else:
        host_tensor = torch.empty(value.shape, dtype=value.dtype)
        read_into(_tensor_bytes(host_tensor))
        value.copy_(host_tensor)  # keeps the tensor's storage, on any device


def _to_tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)  # noqa: S101  (`make_payload` accepts nothing else)
    return value


def _tensor_bytes(tensor: Tensor) -> memoryview:
    """Return a view of a contiguous CPU tensor's bytes, whatever its dtype."""
    # Viewed as bytes in torch, as NumPy lacks some dtypes, such as BF16.
    return tensor.view(-1).view(torch.uint8).numpy().data


def _array_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return an array's bytes in row-major order; `reshape` copies an array that is not contiguous."""
    return array.reshape(-1).view(np.uint8).data
