"""The items that were added to a container last; of a container without an order, a sample that likely has them."""

import tracemalloc
from collections import deque
from collections.abc import Collection, Iterable
from itertools import chain, islice, repeat
from typing import Any

from flatwater_watch.heap.children import ATOM_TYPE_IDS, is_short_atom, open_object
from flatwater_watch.heap.containers import inner_container
from flatwater_watch.heap.functions import newest_results
from flatwater_watch.heap.instances import CHILD_SAMPLE_RATIO
from flatwater_watch.heap.raw import own_size, read_stable
from flatwater_watch.heap.view import Walk, evenly_spaced_slice
from flatwater_watch.meters.allocations import allocation_frames

SAMPLED_SET_ITEMS, SAMPLED_SET_RANGE = 4096, 1_000_000
"""Maximum items of a set that are checked for an allocation trace, as a set has no order; they are spread over the
first million items, which takes 10 to 30 ms. As many items of a container are compared with those of another one."""
SINGLE_ITEM_KINDS = frozenset({"array", "graph", "text", "bytes"})
"""Kinds of holdings that are their own single item."""
CHILDREN_PER_ITEM = 32
"""Children of an object of C that are taken for one item: they are of several classes, and lie in no order."""
MAXIMUM_OPENED = 3000
"""Maximum number of objects that are opened below the items of a container."""


def newest_items(container: Any, kind: str, count: int) -> list[Any]:
    """Return the `count` items that were added last, oldest first; if there is no order, items that are likely new.

    Args:
        container: the container.
        kind: kind of the container in a census, such as "list" or "cache".
        count: maximum number of items; of an object that C code made, `CHILDREN_PER_ITEM` children for each.
    """
    if kind in SINGLE_ITEM_KINDS:
        return [container]
    if kind == "cache":
        return [_heavier_part(key, result) for key, result in newest_results(container, count)]
    inner = inner_container(container)  # such as the deque in a `queue.Queue`; else the container itself
    builtin = _builtin_class(inner)
    if builtin is not None:
        entries = read_stable(_newest_entries, builtin, inner, count)
        return [_entry_value(key, value) for key, value in entries] if builtin is dict else entries
    # Else it is an object that C code made, or one with attributes. `open_object` samples `CHILD_SAMPLE_RATIO` times as
    # many children as items, so that the sample has half of `SAMPLED_SET_ITEMS`.
    opened_object = open_object(container, fresh_walk(SAMPLED_SET_ITEMS // (2 * CHILD_SAMPLE_RATIO)))
    sampled_children = [child for _, child in opened_object.sampled]
    # A small object has no sample: its parts that are items (`[*]`) are taken, or all parts without such.
    items = [part for name, part in opened_object.parts if name == "[*]"] or [part for _, part in opened_object.parts]
    return _newest_by_trace(sampled_children, CHILDREN_PER_ITEM * count) or items[-count:]


_BUILTIN_CONTAINERS: tuple[Any, ...] = (list, tuple, deque, dict, set, frozenset)


def _builtin_class(container: Any) -> Any:
    """Return the builtin class on which a container's class is built; None if it is built on none."""
    return next((cls for cls in _BUILTIN_CONTAINERS if issubclass(type(container), cls)), None)


def _newest_entries(builtin: Any, container: Any, count: int) -> list[Any]:
    """Return the newest items of a container, oldest first; of a dict, its newest (key, value).

    A set has no order: while allocations are traced, its items with a trace are taken, which are newer than the trace.
    Called by `read_stable`, as another thread may change the container meanwhile.

    Args:
        builtin: builtin class on which the container's class is built; its methods are called, as the container's class
            may override them.
        container: the container.
        count: maximum number of items.
    """
    length = builtin.__len__(container)
    if builtin is deque:  # has no slices: its items are taken by index, in C code alone
        return list(map(deque.__getitem__, repeat(container), range(max(0, length - count), length)))
    if builtin is dict:
        return list(islice(reversed(dict.items(container)), count))[::-1]  # a dict keeps the order of insertion
    if builtin is list or builtin is tuple:
        return list(builtin.__getitem__(container, slice(-count, None)))
    if not tracemalloc.is_tracing():
        return list(islice(builtin.__iter__(container), count))
    # Every `stride`-th item, so that the sample has about `SAMPLED_SET_ITEMS`.
    stride = max(1, min(length, SAMPLED_SET_RANGE) // SAMPLED_SET_ITEMS)
    return _newest_by_trace(list(islice(builtin.__iter__(container), 0, SAMPLED_SET_RANGE, stride)), count)


def _newest_by_trace(sample: list[Any], count: int) -> list[Any]:
    """Return at most `count` items of a sample, likely the newest.

    While allocations are traced, these are items with a trace, as they are newer than it, or else the last items.
    Without a trace nothing tells new items from old ones, and items are taken evenly from the whole sample.
    """
    if not tracemalloc.is_tracing():
        return sample[evenly_spaced_slice(len(sample), count)]  # neighbours in a table of C are often of one class
    # From the end, where most new items are: to look up the trace of one takes 20 µs.
    traced_items = list(islice((item for item in reversed(sample) if allocation_frames(item)), count))
    return traced_items[::-1] or sample[-count:]


def items_and_parts(items: Iterable[Any]) -> list[Any]:
    """Return items, each followed by what it holds directly.

    Classes, numbers and short texts are left out, as unrelated objects share them.
    """
    walk, objects = fresh_walk(CHILDREN_PER_ITEM), list[Any]()
    for item in items:
        opened_object = open_object(item, walk)
        parts = islice(chain(opened_object.parts, opened_object.sampled), CHILDREN_PER_ITEM)
        objects += [item, *(part for _, part in parts)]
    return [obj for obj in objects if not is_short_atom(obj) and not issubclass(type(obj), type)]


def ids_in_container(container: Any, sought_ids: Collection[int]) -> set[int]:
    """Return those of the sought ids (`id()` of objects) that items of a container have.

    Only the newest million items are looked at, and only containers of builtin classes or of classes derived from them.
    """
    inner = inner_container(container)
    builtin = _builtin_class(inner)
    return set() if builtin is None else set(read_stable(_ids_in_builtin, builtin, inner, sought_ids))


def _ids_in_builtin(builtin: Any, container: Any, sought_ids: Collection[int]) -> list[int]:
    """Return those of the sought ids (`id()` of objects) that the newest million items of a container have.

    Called by `read_stable`, as another thread may change the container meanwhile. `builtin` is the builtin class of the
    container, whose methods are called, as the container's own class may override them.
    """
    items: Iterable[Any]
    if builtin is list or builtin is tuple:
        items = builtin.__getitem__(container, slice(-SAMPLED_SET_RANGE, None))
    elif builtin is deque:
        items = deque.__reversed__(container)
    else:
        items = reversed(dict.values(container)) if builtin is dict else builtin.__iter__(container)
    return [item_id for item_id in map(id, islice(items, SAMPLED_SET_RANGE)) if item_id in sought_ids]


def _entry_value(key: Any, value: Any) -> Any:
    """Return the value of a dict's entry; or its key, if the value is a number or a text and smaller than the key."""
    is_atom = id(type(value)) in ATOM_TYPE_IDS
    return key if is_atom and own_size(key) > own_size(value) else value


def _heavier_part(key: Any, result: Any) -> Any:
    """Return the result of a cached call; or its arguments, if the result is a number or a text and smaller.

    `key` is the key of the call in the cache: usually a list of the arguments, of a class derived from `list`.
    """
    is_single_argument = issubclass(type(key), list) and list.__len__(key) == 1
    arguments = list.__getitem__(key, 0) if is_single_argument else key
    return _entry_value(arguments, result)


def fresh_walk(sample_size: int) -> Walk:
    """Return a new walk over objects, which samples `sample_size` items of each large container."""
    return Walk(sampled_items=sample_size, is_user_class=lambda _: False, maximum_objects=MAXIMUM_OPENED)
