"""The safetensors file format: an 8-byte length, a JSON header, and the tensors' bytes end to end.

The safetensors library would need a copy of all tensors of a file; here they are views of the run's own memory. The
tests load the files with the library. This module does not need torch.

Source of the format: https://github.com/huggingface/safetensors#format
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from flatwater.checkpoints.schema import Header, HeaderEntry
from flatwater_watch.files.json_values import convert_to_type, parse_json

_ALIGNMENT_BYTES = 8
LENGTH_BYTES = 8


class Dtype(NamedTuple):
    """A dtype of the format."""

    name: str
    """Name in a header."""
    itemsize: int
    """Bytes of one number."""


DTYPES: Mapping[str, Dtype] = {
    library_name: Dtype(name, itemsize)
    for name, itemsize, *library_names in (
        ("BOOL", 1, "bool", "|b1"),
        ("U8", 1, "uint8", "|u1"),
        ("I8", 1, "int8", "|i1"),
        ("U16", 2, "uint16", "<u2"),
        ("I16", 2, "int16", "<i2"),
        ("U32", 4, "uint32", "<u4"),
        ("I32", 4, "int32", "<i4"),
        ("U64", 8, "uint64", "<u8"),
        ("I64", 8, "int64", "<i8"),
        ("F16", 2, "float16", "<f2"),
        ("BF16", 2, "bfloat16"),  # numpy has no such dtype
        ("F32", 4, "float32", "<f4"),
        ("F64", 8, "float64", "<f8"),
    )
    for library_name in library_names
}
"""Dtypes of the format, by their names in torch and in NumPy; arrays of other dtypes are stored as bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorEntry:
    """The entry of one leaf in a shard's header, with sizes in bytes."""

    dtype: str
    """The format's name of the dtype, such as `BF16`; `U8` for a dtype without one: then `shape` is its bytes."""
    shape: tuple[int, ...]
    itemsize: int
    nbytes: int


class HasByteSize(Protocol):
    """An object with a size in bytes."""

    @property
    def nbytes(self) -> int:
        """Number of bytes."""


T = TypeVar("T", bound=HasByteSize)


def group_into_shards(items: Sequence[T], shard_bytes: int) -> Iterator[list[T]]:
    """Yield groups of `items`, in order, of at most `shard_bytes` each; a larger item is a group of its own."""
    group: list[T] = []
    bytes_left = shard_bytes
    for item in items:
        # A large item does not end the open group, so that the small items around it stay together.
        if item.nbytes > shard_bytes:
            yield [item]
            continue
        if item.nbytes > bytes_left:
            yield group
            group, bytes_left = [], shard_bytes
        group.append(item)
        bytes_left -= item.nbytes
    if group:
        yield group


def shard_header(group: Mapping[str, TensorEntry]) -> bytes:
    """Return the first bytes of a shard, a safetensors file, for the entries in `group`, by name, in this order.

    They are the length of a JSON header, 8 bytes in little-endian order, and the header: dtype, shape and data_offsets
    of each leaf, counted from the end of the header. Entries with larger cells must come first, so that each leaf lies
    at a multiple of its cell's size, as readers map the file.
    """
    entries, position = {}, 0
    for name, entry in group.items():
        offsets = [position, position + entry.nbytes]
        entries[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
        position += entry.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    # Padded, so that the first leaf's bytes begin at a multiple of 8.
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def parse_header(raw: bytes) -> dict[str, HeaderEntry]:
    """Return the entry of each leaf in a shard's JSON header, by name; offsets count from the end of the header.

    Raises:
        ValueError: `raw` is not a valid header.
    """
    return convert_to_type(parse_json(raw), Header)
