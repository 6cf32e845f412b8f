"""An observation as it lies in a row, and its parts as a network reads them.

A row is tokens, a vector of float32, or bytes where there are images: the numbers next to the images first, each of
four bytes, then the pixels of one image after the other. So an image takes a byte for each of its numbers until it is
read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

from torch import Tensor

FLOAT = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class Part:
    """A part of an observation: the whole of it, or the entry of a Dict or a Tuple under its keys."""

    keys: tuple[str | int, ...] = ()
    """Keys and positions that lead to the part; empty for the whole observation."""
    shape: tuple[int, ...] = ()
    """Shape as the environment gives it; a choice is its place among 0 and 1."""
    channels: tuple[int, ...] | None = None
    """Axes of an image whose numbers belong to one pixel: its channels, and the images of a stack. None: no image."""
    low: tuple[float, ...] = (-inf,)
    """Lowest value, or that of each number."""
    high: tuple[float, ...] = (inf,)
    """Highest value, or that of each number; pixels are read as shares of it."""

    @property
    def is_image(self) -> bool:
        """Whether the part is an image, whose numbers lie in bytes."""
        return self.channels is not None

    @property
    def most(self) -> float:
        """Highest value of all its numbers."""
        return max(self.high)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    @property
    def read_shape(self) -> tuple[int, ...]:
        """Shape in which a network reads it: [C, H, W] of an image."""
        if self.channels is None:
            return self.shape
        places = [size for axis, size in enumerate(self.shape) if axis not in self.channels]
        return (self.size // prod(places), *places)


Parts = tuple[Part, ...]


def count_numbers(parts: Sequence[Part]) -> int:
    """Return the number of values outside of images."""
    return sum(part.size for part in parts if not part.is_image)


def row_bytes(parts: Sequence[Part]) -> int:
    """Return the bytes of a row with images: a multiple of four, so that the numbers of every row are aligned."""
    byte_count = FLOAT * count_numbers(parts) + sum(part.size for part in parts if part.is_image)
    return -(-byte_count // FLOAT) * FLOAT


def view_numbers(row: Any, parts: Sequence[Part], kind: Any) -> Any:  # noqa: ANN401  (a Tensor, or an array of NumPy)
    """Return the numbers [..., N] that lie in no image, sharing the memory of a row [..., bytes] where that is dense.

    Args:
        row: rows of bytes.
        parts: parts of a row.
        kind: float32 of torch or of NumPy, as `row` is.
    """
    byte_count = FLOAT * count_numbers(parts)
    # Rows of a single image have any length, and none of them is read as floats.
    return row[..., :byte_count].view(kind) if byte_count else row[..., :0]


def split_parts(parts: Sequence[Part], numbers: Tensor, row: Tensor | None, *, raw: bool = False) -> list[Tensor]:
    """Return the parts of B observations, each [B, *read_shape] as float32, channels first.

    Pixels are shares in [0, 1], or as convolutions read them fastest.

    Args:
        parts: parts of a row.
        numbers: the numbers that are in no image [B, N], as the network shall read them.
        row: the rows of bytes [B, bytes]; None if there is no image.
        raw: whether pixels are numbers as in their bytes, and the channels of each lie side by side in memory,
            whatever the order of the axes.
    """
    values, number, pixel = [], 0, FLOAT * count_numbers(parts)
    for part in parts:
        if part.channels is None:
            values.append(numbers[:, number : number + part.size].reshape(-1, *part.read_shape))
            number += part.size
            continue
        assert row is not None  # noqa: S101  (for the type checker: an image lies in bytes)
        image = row[:, pixel : pixel + part.size].reshape(-1, *part.shape)
        places = [axis for axis in range(len(part.shape)) if axis not in part.channels]
        axes = (*places, *part.channels) if raw else (*part.channels, *places)
        channels, *sides = part.read_shape
        shape = (*sides, channels) if raw else part.read_shape
        # Turned while it is bytes: floats would be four times as many to move.
        turned = image.permute(0, *(1 + axis for axis in axes)).contiguous()
        pixels = turned.view(-1, *shape).float()
        values.append(pixels.movedim(-1, 1) if raw else pixels.div_(part.most))
        pixel += part.size
    return values


def nest_parts(parts: Sequence[Part], values: Sequence[Any]) -> Any:  # noqa: ANN401  (as the observation is)
    """Return values in the form of the observation: a single value, or in dicts and tuples under its keys.

    Args:
        parts: parts of the observation.
        values: one for each part.
    """
    if not parts[0].keys:
        return values[0]
    inside: dict[str | int, tuple[list[Part], list[Any]]] = {}
    for part, value in zip(parts, values, strict=True):
        part_values = inside.setdefault(part.keys[0], ([], []))
        part_values[0].append(replace(part, keys=part.keys[1:]))
        part_values[1].append(value)
    nested = {key: nest_parts(*part_values) for key, part_values in inside.items()}
    places = [key for key in nested if isinstance(key, int)]
    # A place without a part is that of words, which nobody reads.
    return tuple(nested.get(place) for place in range(max(places) + 1)) if places else nested


def value_of(part: Part, nested: Any) -> Any:  # noqa: ANN401  (as the observation is)
    """Return the value of a part in a result of `nest_parts`, or in an observation."""
    for key in part.keys:
        nested = nested[key]
    return nested
