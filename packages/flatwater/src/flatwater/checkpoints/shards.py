"""The safetensors file format: an 8-byte length, a JSON header, and the tensors' bytes end to end.

Written here rather than by the safetensors library because the library wants all tensors of a file in memory as bytes;
here they are views of the run's own memory. The tests load the files with the library. No torch is needed here.

Source of the format: https://github.com/huggingface/safetensors#format
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from flatwater.checkpoints.schema import Header, HeaderEntry
from flatwater_watch.files.content import convert_to, parse_json

_ALIGNMENT_BYTES = 8
LENGTH_BYTES = 8


class Dtype(NamedTuple):
    """A type of numbers that the format knows."""

    name: str
    """Name in a header."""
    itemsize: int


DTYPES: Mapping[str, Dtype] = {
    ours: Dtype(name, itemsize)
    for name, itemsize, *both in (
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
    for ours in both
}
"""Dtypes of the format by their names in torch and in numpy; others are stored as bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorEntry:
    """Entry of one leaf in a shard's header."""

    dtype: str
    """The format's name of the dtype, such as `BF16`; `U8` where it has none, with the shape in bytes."""
    shape: tuple[int, ...]
    itemsize: int
    nbytes: int


class HasByteSize(Protocol):
    """An object of a known number of bytes."""

    @property
    def nbytes(self) -> int:
        """Number of bytes."""


T = TypeVar("T", bound=HasByteSize)


def group_into_shards(items: Sequence[T], shard_bytes: int) -> Iterator[list[T]]:
    """Yield groups of `items`, in order, of at most `shard_bytes` each; a larger item is a group of its own."""
    group: list[T] = []
    bytes_left = shard_bytes
    for item in items:
        # The open group stays open: a large leaf between small leaves does not split them.
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
    """Return the beginning of a shard, a safetensors file, that holds `group` end to end in the order given.

    It is the length of a JSON header, 8 bytes in little-endian order, then the header: dtype, shape and data_offsets of
    each leaf, which count from the end of the header. Items must come with the larger items first, so that each lies at
    a multiple of its size: readers map the file.
    """
    places, position = {}, 0
    for name, entry in group.items():
        offsets = [position, position + entry.nbytes]
        places[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
        position += entry.nbytes
    text = json.dumps(places, separators=(",", ":")).encode()
    # Padded, so that the first leaf's bytes begin at a multiple of 8 and can be mapped as they are.
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def parse_header(raw: bytes) -> dict[str, HeaderEntry]:
    """Return where each leaf's bytes lie in a shard, counted from the end of its header, by the header `raw`.

    Raises:
        ValueError: `raw` is not a header.
    """
    return convert_to(parse_json(raw), Header)
