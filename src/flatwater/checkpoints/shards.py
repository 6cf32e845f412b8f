"""The safetensors file format: an 8-byte length, a JSON header, and the tensors' bytes end to end.

Written here rather than by the safetensors library because that one wants all tensors of a file in memory as bytes;
here they are views of the run's own memory. The tests load the files with the library. No torch is needed here.

Source of the format: https://github.com/huggingface/safetensors#format
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol, TypeVar

_ALIGNMENT = 8
_LENGTH_BYTES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What a shard's header says of one leaf."""

    dtype: str
    """safetensors' name of the dtype, such as `BF16`; `U8` where it has none, with the shape in bytes."""
    shape: tuple[int, ...]
    itemsize: int
    nbytes: int


class Sized(Protocol):
    """Something of a known number of bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes."""


T = TypeVar("T", bound=Sized)


def pack(items: Sequence[T], shard_bytes: int) -> Iterator[list[T]]:
    """Groups of `items`, in order, of at most `shard_bytes` each; an item larger than that is a group of its own."""
    group: list[T] = []
    room = shard_bytes
    for item in items:
        if item.nbytes > shard_bytes:
            yield [item]
            continue
        if item.nbytes > room:
            yield group
            group, room = [], shard_bytes
        group.append(item)
        room -= item.nbytes
    if group:
        yield group


def header(group: Mapping[str, Stored]) -> bytes:
    """The beginning of a shard that holds `group`, end to end in the order given.

    Items must come with the larger ones first, so that each lies at a multiple of its size: readers map the file.
    """
    places, at = {}, 0
    for name, stored in group.items():
        offsets = [at, at + stored.nbytes]
        places[name] = {"dtype": stored.dtype, "shape": list(stored.shape), "data_offsets": offsets}
        at += stored.nbytes
    text = json.dumps(places, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def read_header(file: IO[bytes]) -> dict[str, int]:
    """Where each leaf's bytes begin in a shard whose hash was found right."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    places = json.loads(file.read(length))
    start = _LENGTH_BYTES + length
    return {name: start + place["data_offsets"][0] for name, place in places.items()}
