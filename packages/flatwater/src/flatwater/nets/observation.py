"""The rows in which observations are stored, and their parts as a network reads them.

A row is tokens, a vector of float32, or bytes if there are images: first the numbers next to the images, each of four
bytes, then the pixels of one image after the other, each of one byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

from torch import Tensor

FLOAT_BYTES = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class Part:
    """A part of an observation: the whole of it, or the entry of a Dict or a Tuple under its keys."""

    keys: tuple[str | int, ...] = ()
    """Keys and positions that lead to the part; empty for the whole observation."""
    shape: tuple[int, ...] = ()
    """Shape as the environment gives it; a choice is one-hot."""
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
    def max_value(self) -> float:
        """Highest value of all its numbers."""
        return max(self.high)

    @property
    def size(self) -> int:
        """Number of its values."""
        return prod(self.shape)

    @property
    def read_shape(self) -> tuple[int, ...]:
        """Shape in which a network reads it: an image as [C, H, W]."""
        if self.channels is None:
            return self.shape
        sides = [size for axis, size in enumerate(self.shape) if axis not in self.channels]
        return (self.size // prod(sides), *sides)  # all channels of all images of a stack in one axis


Parts = tuple[Part, ...]


def count_numbers(parts: Sequence[Part]) -> int:
    """Return the number of values outside of images."""
    return sum(part.size for part in parts if not part.is_image)


def whole_float_bytes(byte_count: int) -> int:
    """Return `byte_count` rounded up to whole floats."""
    return -(-byte_count // FLOAT_BYTES) * FLOAT_BYTES  # `-(-a // b)` divides and rounds up


def row_bytes(parts: Sequence[Part]) -> int:
    """Return the bytes of a row with images, rounded up so that the floats of every row are aligned."""
    byte_count = FLOAT_BYTES * count_numbers(parts) + sum(part.size for part in parts if part.is_image)
    return whole_float_bytes(byte_count)


def view_numbers(row: Any, parts: Sequence[Part], dtype: Any) -> Any:  # noqa: ANN401  (a Tensor, or an array of NumPy)
    """Return the numbers [..., N] outside of images as a view of the rows [..., bytes].

    Args:
        row: rows of bytes.
        parts: parts of a row.
        dtype: float32 of torch or of NumPy, as `row` is.
    """
    byte_count = FLOAT_BYTES * count_numbers(parts)
    # A row of images alone may have any length, which `view` would refuse.
    return row[..., :byte_count].view(dtype) if byte_count else row[..., :0]


def split_parts(parts: Sequence[Part], numbers: Tensor, row: Tensor | None, *, is_raw: bool = False) -> list[Tensor]:
    """Return the parts of B observations, each [B, *read_shape] as float32; images are channels first.

    Args:
        parts: parts of a row.
        numbers: the numbers outside of images, [B, N], scaled for the network.
        row: the rows of bytes [B, bytes]; None if there is no image.
        is_raw: whether pixels keep their values, in channels-last memory order; otherwise they are divided to [0, 1].
    """
    # Numbers are in `numbers` one after another. In a row, images begin behind the bytes of the numbers.
    values, number_start, image_start = [], 0, FLOAT_BYTES * count_numbers(parts)
    for part in parts:
        if part.channels is None:
            values.append(numbers[:, number_start : number_start + part.size].reshape(-1, *part.read_shape))
            number_start += part.size
            continue
        assert row is not None  # noqa: S101  (for the type checker: an image lies in bytes)
        image = row[:, image_start : image_start + part.size].reshape(-1, *part.shape)
        image_start += part.size
        # Raw pixels get their channels last, scaled pixels first.
        side_axes = [axis for axis in range(len(part.shape)) if axis not in part.channels]
        axes = (*side_axes, *part.channels) if is_raw else (*part.channels, *side_axes)
        channels, *sides = part.read_shape
        shape = (*sides, channels) if is_raw else part.read_shape
        # Permuted as bytes: floats would be four times as many bytes to move.
        permuted_image = image.permute(0, *(1 + axis for axis in axes)).contiguous()
        pixels = permuted_image.view(-1, *shape).float()
        # `movedim` makes a view [B, C, H, W], and leaves channels last in memory.
        values.append(pixels.movedim(-1, 1) if is_raw else pixels.div_(part.max_value))
    return values


def nest_parts(parts: Sequence[Part], values: Sequence[Any]) -> Any:  # noqa: ANN401  (as the observation is)
    """Return values in the form of the observation: a single value, or nested dicts and tuples by the parts' keys.

    Args:
        parts: parts of the observation.
        values: a value for each part.
    """
    if not parts[0].keys:
        return values[0]
    # Parts with the same first key belong to one dict or tuple, a level deeper.
    groups: dict[str | int, tuple[list[Part], list[Any]]] = {}
    for part, value in zip(parts, values, strict=True):
        inner_parts, inner_values = groups.setdefault(part.keys[0], ([], []))
        inner_parts.append(replace(part, keys=part.keys[1:]))
        inner_values.append(value)
    nested_parts = {key: nest_parts(*group) for key, group in groups.items()}
    positions = [key for key in nested_parts if isinstance(key, int)]
    if not positions:
        return nested_parts
    # A position without a part held text in the observation, which no network reads: it becomes None.
    return tuple(nested_parts.get(position) for position in range(max(positions) + 1))


def part_value(part: Part, nested_values: Any) -> Any:  # noqa: ANN401  (as the observation is)
    """Return the value of a part in an observation or in a result of `nest_parts`."""
    for key in part.keys:
        nested_values = nested_values[key]
    return nested_values
