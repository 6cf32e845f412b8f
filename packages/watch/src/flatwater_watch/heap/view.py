"""The result of opening one object, and the memory of a walk: objects and storages that it has seen.

To open an object is to read its size and its children, the objects that it holds; an opener does so for the objects of
one class. A storage is the block of memory of an array or a tensor, which several objects may share.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Named = tuple[str, Any]
"""A child with its part of the path: ".memory", "[*]", "['best']", ".<closure of on_step>.optimizer"."""


class OpenedObject(NamedTuple):
    """The result of opening one object."""

    kind: str
    """Kind, as in `Holding.kind`; `opaque` if the object is not entered."""
    size: int
    """Its own bytes, without children; a storage counts with the first object that holds it."""
    length: int = 0
    """Items of a container, elements of an array, nodes of a graph."""
    parts: Sequence[Named] = ()
    """Children that count once each."""
    sampled: Sequence[Named] = ()
    """Sampled children of a big container, which stand for those of all its items."""
    children_per_item: int = 1
    """Children of one item: an entry of a dict has two."""
    capacity: int | None = None
    """Maximum number of items; None if nothing bounds it."""


@dataclass(eq=False, repr=False, slots=True)
class Walk:
    """Objects and storages that one census has seen."""

    sampled_items: int
    """Number of sampled items of a big container."""
    is_user_class: Callable[[type], bool]
    maximum_objects: int
    """Maximum number of objects to visit."""
    must_open_ids: frozenset[int] = frozenset()
    """Ids of items that are opened whether they are sampled or not."""
    opened_count: int = 0
    """Number of objects that were opened."""
    seen_ids: set[int] = field(default_factory=set)
    """Ids of objects, each of which lives as long as the walk: in the program, or in `kept_alive`."""
    kept_alive: list[Any] = field(default_factory=list)
    """Objects that were made by opening others: while they live, no new object gets their ids."""
    storage_addresses: set[int] = field(default_factory=set)
    """Addresses of storages whose bytes have an owner."""
    openers: dict[int, Callable[[Any, "Walk"], OpenedObject]] = field(default_factory=dict)
    """Openers by the id of a type: a metaclass may make types that have no hash."""
    fileless_spans: list[tuple[int, int]] | None = None
    """First address and end of each mapping that belongs to no file, ascending; None until they are needed."""
    child_bytes: dict[int, int] = field(default_factory=dict)
    """Private bytes of each child process that no object seen earlier stands for, by its id."""
    contexts: dict[int, Context] | None = None
    """The contexts of all tasks by their ids; None until a context variable or a context was opened in this slice."""
    unread_by_class: Counter[str] = field(default_factory=Counter)
    """Number of objects that could not be read, by class and exception."""


Opener = Callable[[Any, Walk], OpenedObject]

OPAQUE = OpenedObject("opaque", 0)
"""The result for an object that is not entered: a module, a library's class, an object of the watch."""


def claim_bytes(walk: Walk, address: int, size: int) -> int:
    """Return `size` for the first owner of the storage at an address, and 0 for all later ones: it counts once."""
    if address in walk.storage_addresses:
        return 0
    walk.storage_addresses.add(address)
    return size


def evenly_spaced_slice(count: int, maximum: int) -> slice:
    """Return a slice of all of `count` positions, or of at most `maximum` evenly spaced ones if there are more."""
    # It ends at `count` in any case, as another thread may have appended since. The step is rounded up.
    return slice(count) if count <= maximum else slice(0, count, -(-count // maximum))


def open_container(  # noqa: PLR0917  (the fields of an opened object)
    kind: str, size: int, count: int, values: Iterable[Any], walk: Walk, capacity: int | None = None
) -> OpenedObject:
    """Return the result for a container with `count` items, of which `values` are all, or a sample if they are many.

    The other arguments are those of `OpenedObject`.
    """
    # Fields by place, as this runs for most objects of a heap: kind, size, length, parts, sampled, children_per_item,
    # capacity.
    labelled_values = [("[*]", value) for value in values]
    if count <= walk.sampled_items:
        return OpenedObject(kind, size, count, labelled_values, (), 1, capacity)
    return OpenedObject(kind, size, count, (), labelled_values, 1, capacity)


def allocated_size(size: int) -> int:
    """Return the bytes that Python's allocator takes for an object: the next multiple of 16."""
    return (size + 15) & -16


class OwnWeakref(weakref.ref[Any]):
    """A weak reference made by the walk: its type tells it from weak references of the program."""

    __slots__ = ()


def strong_object(reference: Any) -> Any:
    """Return the object to which a walk's weak reference leads, None if it is gone; other objects as they are."""
    return reference() if type(reference) is OwnWeakref else reference
