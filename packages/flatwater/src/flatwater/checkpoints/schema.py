"""Types of the JSON in a manifest and in a shard's header, which the readers hold it to.

This module does not need torch.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_MAXIMUM_NUMBER = 2**62

Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Count = Annotated[int, Meta(ge=0, le=_MAXIMUM_NUMBER)]
Shape = Annotated[list[Count], Meta(max_length=64)]  # torch and numpy have no more axes than 64


class ShardLeaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leaf whose bytes lie in a shard."""

    path: str
    kind: Literal["tensor", "array", "generator"]
    sha256: Hash
    dtype: str
    shape: Shape
    shard: Hash


class InlineLeaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leaf whose value stands in the manifest."""

    path: str
    kind: Literal["float", "int", "bool", "str", "none"]
    sha256: Hash
    value: int | float | bool | str | None


class ShardFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard's file."""

    sha256: Hash
    bytes: Count


class ManifestContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manifest of the format that is written here."""

    format: int
    round: Count
    step: Count
    saved: str
    facts: dict[str, Any]
    leaves: list[dict[str, Any]]
    """Records that are each a `ShardLeaf` or an `InlineLeaf`; the `kind` says which."""
    shards: list[ShardFile]
    sha256: Hash


class HeaderEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Place of a leaf's bytes in a shard, by the shard's header."""

    dtype: str
    shape: Shape
    data_offsets: tuple[Count, Count]


Header = dict[str, HeaderEntry]
