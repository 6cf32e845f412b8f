"""What the JSON of a manifest and of a shard's header must look like: the one check of both, by msgspec.

Such files come from disks and from stores, so anything may stand in them. Whatever does not fit is a `ValueError` that
says where; nothing of it reaches the code behind. This module does not need torch.
"""

import json
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

MOST_BYTES = 64 << 20
"""Of a manifest, and of a shard's header."""
MOST_DEPTH = 64
"""Brackets inside brackets, of facts."""
_LARGEST = 2**62

Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
Shape = Annotated[list[Count], Meta(max_length=64)]


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leaf whose bytes lie in a shard."""

    path: str
    kind: Literal["tensor", "array", "generator"]
    sha256: Hash
    dtype: str
    shape: Shape
    shard: Hash


class Inline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leaf whose value stands in the manifest."""

    path: str
    kind: Literal["float", "int", "bool", "str", "none"]
    sha256: Hash
    value: int | float | bool | str | None


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard."""

    sha256: Hash
    bytes: Count


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manifest of the format that is written here."""

    format: int
    round: Count
    step: Count
    saved: str
    facts: dict[str, Any]
    leaves: list[dict[str, Any]]
    """Each is a `Stored` or an `Inline`; its `kind` says which."""
    shards: list[File]
    sha256: Hash


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a leaf's bytes lie in a shard, by the shard's header."""

    dtype: str
    shape: Shape
    data_offsets: tuple[Count, Count]


Header: TypeAlias = dict[str, Place]
T = TypeVar("T")


def parsed(raw: bytes) -> Any:  # noqa: ANN401  (JSON)
    """The JSON in `raw`.

    Raises:
        ValueError: it is none, too large or too deep, or has NaN or infinities, which JSON does not know.
    """
    if len(raw) > MOST_BYTES:
        raise ValueError(f"{len(raw)} bytes are more than the {MOST_BYTES} that it may have")
    try:
        content = json.loads(raw, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("brackets are nested too deep") from None
    require_shallow(content)
    return content


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def require_shallow(content: object) -> None:
    """That brackets are nested at most `MOST_DEPTH` deep.

    Raises:
        ValueError: they are nested deeper.
    """
    level = [content]
    for _ in range(MOST_DEPTH):
        level = [below for each in level for below in _inside(each)]
        if not level:
            return
    raise ValueError(f"brackets are nested more than {MOST_DEPTH} deep")


def _inside(content: object) -> list[Any]:
    inside = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return [each for each in inside if isinstance(each, dict | list)]


def fitted(content: object, kind: type[T]) -> T:
    """`content` as a `kind`, once it fits: types to the letter, no field missing, none too many.

    Raises:
        ValueError: it does not fit; says where.
    """
    return msgspec.convert(content, kind, strict=True)
