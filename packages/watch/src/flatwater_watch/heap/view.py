"""What a look into one object gives, and the walk that remembers what was seen."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Named = tuple[str, Any]
"""A child and how the path goes on to it: ".memory", "[*]", "['best']", ".<closure of on_step>.optimizer"."""


class OpenedObject(NamedTuple):
    """One object, opened."""

    kind: str
    size: int
    """Bytes of its own: without children, with those of a storage that nothing seen earlier holds."""
    length: int = 0
    """Items of a container, elements of an array, nodes of a graph."""
    parts: Sequence[Named] = ()
    """Children that count as they are."""
    drawn: Sequence[Named] = ()
    """Children that stand for all `of` of a big container."""
    of: int = 0
    each: int = 1
    """Children that one item has: an entry of a dict has two."""
    capacity: int | None = None


@dataclass(slots=True)
class Walk:
    """What one census has seen."""

    draw: int
    """Items of a big container that are looked at."""
    is_user_class: Callable[[type], bool]
    most: int
    """Objects to visit."""
    visited: int = 0
    seen: set[int] = field(default_factory=set)
    """Ids of objects. Each is alive as long as the walk: in the program, or in `kept`."""
    kept: list[Any] = field(default_factory=list)
    """Objects made by looking, whose ids must not be used again."""
    storages: set[int] = field(default_factory=set)
    """Addresses of storages whose bytes have an owner."""
    looks: dict[int, Callable[[Any, "Walk"], OpenedObject]] = field(default_factory=dict)
    """How to open an object of each type met, by the type's id: a metaclass may make types that have no hash."""
    unread: Counter[str] = field(default_factory=Counter)
    """Objects that could not be read, by class and what went wrong."""


Look = Callable[[Any, Walk], OpenedObject]

OPAQUE = OpenedObject("opaque", 0)
"""Nothing of it is the user's: a module, a library's class, a weak reference, one of our own objects."""


def claim_bytes(walk: Walk, address: int, size: int) -> int:
    """`size` for the first who asks for a storage, 0 for all others."""
    if address in walk.storages:
        return 0
    walk.storages.add(address)
    return size


def evenly_spaced_slice(count: int, draw: int) -> slice:
    """At most `draw` evenly spaced positions of `count`; all where there are no more."""
    return slice(0, count, max(1, -(-count // draw)))


def item_fields(walk: Walk, values: Sequence[Any] | Iterable[Any], count: int) -> dict[str, Any]:
    """The fields of an `OpenedObject` for values of which `count` are there and some were taken."""
    named = [("[*]", value) for value in values]
    return {"parts": named} if count <= walk.draw else {"drawn": named, "of": count}


def allocated_size(size: int) -> int:
    """What Python's allocator takes for so many bytes: multiples of 16."""
    return size + 15 & -16
