"""Bytes behind handles: small Python objects that keep memory of a C library alive, which no census sees.

Handles are, for example, SSL contexts, databases in memory, compressors and boosters. If nothing else explains the
growth, the new items of containers that became longer are searched for objects of classes that C code made, and the
growth is divided over these items.
"""

import builtins
import re
import types
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_use import UserCode
from flatwater_watch.diagnose.item_growth import ITEM_KINDS
from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.diagnose.owners import Owner, describe_owner
from flatwater_watch.heap.arrays import Graph
from flatwater_watch.heap.census import Census
from flatwater_watch.heap.children import ATOM_TYPE_IDS, open_object
from flatwater_watch.heap.raw import class_name, full_name, made_in_c, mro
from flatwater_watch.heap.roots import Callback
from flatwater_watch.heap.view import OPAQUE, Walk
from flatwater_watch.thresholds import HANDLES
from flatwater_watch.units import format_bytes

_FULLY_COUNTED_MODULES = frozenset({
    "types", "collections", "functools", "itertools", "operator", "weakref", "datetime", "decimal", "array",
    "random", "_random", "_thread", "threading", "_queue", "queue", "_asyncio", "_contextvars", "_struct", "_operator",
    "_functools", "_collections", "_weakref", "_abc", "_decimal", "re", "typing", "enum", "numpy", "numpy.random",
})  # fmt: skip
"""Modules of C whose objects are fully counted by a census, or hold next to nothing."""
_TYPES_CLASSES = frozenset(id(kind) for kind in vars(types).values() if isinstance(kind, type))
"""Ids of builtin classes that have a name only in `types`: functions, frames, cells."""


_ADDRESSES = range(1 << 32, 1 << 47)
"""Numbers that may be addresses of a process: its heap lies beyond its code, above the first 4 GiB."""
_POINTER_NAME = re.compile("ptr|pointer|handle|address", re.IGNORECASE)
"""Names of attributes with an address."""


class _Candidate(NamedTuple):
    """A container whose new items have handles: small Python objects with memory of a C library behind them."""

    path: str
    new_items: int
    """Number of items since the earlier census."""
    handles: tuple[Any, ...]
    """One handle for each of the newest items that has one."""
    handles_per_item: float
    """Handles per item."""


def find_handles(earlier_census: Census, later_census: Census, missing_bytes: float) -> list[Owner]:
    """Return the container whose new items have handles, as it may own the missing bytes: a list of one, or none.

    A handle is a small Python object that keeps memory of a C library alive.

    Args:
        earlier_census: earlier census, with or without its containers.
        later_census: later census, with its containers.
        missing_bytes: bytes that came between the censuses, and that no container explains; they are divided over
            the new items.
    """
    candidates_by_path = (_find_candidate(earlier_census, later_census, path) for path in later_census.holdings)
    candidates = [candidate for candidate in candidates_by_path if candidate is not None]
    if not candidates:
        return []
    # The one with the most new items that have a handle. Parents come first in a census, so that `max` takes the
    # outermost of several containers that hold the same handles.
    best_candidate = max(candidates, key=lambda candidate: min(candidate.handles_per_item, 1.0) * candidate.new_items)
    handle_bytes = missing_bytes / best_candidate.new_items
    if handle_bytes < HANDLES.least_bytes:  # too little for memory of a C library
        return []
    path = best_candidate.path
    holding = later_census.holdings[path]
    owner = describe_owner(earlier_census.holdings[path], later_census, path, missing_bytes, UserCode())
    item_count = holding.length * holding.instances  # of all containers on the path
    item_words, handle_class = owner.holders[-1], type(best_candidate.handles[-1])  # the last holder is an item
    contents = replace(
        owner.contents,
        what=_describe_items(item_count, item_words, handle_class, handle_bytes),
        count=item_count,
        leaves=_without_callbacks(best_candidate.handles) or owner.contents.leaves,
    )
    item_bytes = round(handle_bytes) + owner.item_bytes
    return [replace(owner, contents=contents, item_bytes=item_bytes, outside_python=True)]


def _describe_items(count: int, item: str, handle_class: type, handle_bytes: float) -> str:
    """Return items in words: "30 × Client, each with its SSLContext, and about 1 MiB outside of Python with each".

    Args:
        count: number of items.
        item: item in words, such as "Client".
        handle_class: class of the handles, such as `SSLContext`, which hold the memory of C.
        handle_bytes: bytes behind each handle.
    """
    handle_name = class_name(handle_class)
    items_text = f"{count} × {item}"
    # Not if the item itself is the handle; and classes of ctypes have names that say nothing.
    if item != handle_name and full_name(handle_class)[0] != "ctypes":
        items_text += f", each with its {handle_name}"
    place = "" if handle_class is Callback else "outside of Python "  # a callback may keep Python objects
    return f"{items_text}, and about {format_bytes(handle_bytes)} {place}with each"


def nested_handles(items: Sequence[Any]) -> tuple[Any, ...]:
    """Return the first handle (object with memory of a C library) below each item, if a line of the program made it."""
    return _without_callbacks(_first_handles(items))


def _without_callbacks(handles: Sequence[Any]) -> tuple[Any, ...]:
    """Return the handles without callbacks that C code keeps: these were made at no line of the program."""
    return tuple(handle for handle in handles if type(handle) is not Callback)


def _find_candidate(earlier_census: Census, later_census: Census, path: str) -> _Candidate | None:
    """Return the container on a path if it became longer and enough of its new items have a handle; else None.

    A handle is a small Python object that keeps memory of a C library alive.
    """
    old_holding = earlier_census.holdings.get(path)
    new_holding = later_census.holdings[path]
    if old_holding is None or new_holding.kind not in ITEM_KINDS:
        return None
    # Several containers may lie on the path (`instances`); `length` is that of each.
    item_gain = new_holding.length * new_holding.instances - old_holding.length * old_holding.instances
    length_gain = new_holding.length - old_holding.length
    if item_gain < 1 or length_gain <= 0:
        return None
    newest = newest_items(later_census.containers[path], new_holding.kind, min(length_gain, HANDLES.maximum_items))
    handles = _first_handles(newest)
    if len(handles) < max(1, HANDLES.minimum_share_with_handle * len(newest)):
        return None
    # Libraries register a few callbacks when they are imported.
    if type(handles[0]) is Callback and item_gain < HANDLES.minimum_callbacks:
        return None
    return _Candidate(path, new_items=item_gain, handles=tuple(handles), handles_per_item=len(handles) / len(newest))


def _first_handles(items: Sequence[Any]) -> list[Any]:
    """Return the first handle (object with memory of a C library) that each item leads to, breadth first.

    An item gets none if an earlier item has the same handle.
    """
    handles: list[Any] = []
    seen_ids = set[int]()  # of the objects below all items
    for item in items:
        walk = Walk(
            sampled_items=HANDLES.maximum_items,
            is_user_class=lambda _: False,  # no class is opened
            maximum_objects=HANDLES.maximum_objects_below_item,
        )
        queue = deque([item])
        opened_count = 0
        while queue and opened_count < HANDLES.maximum_objects_below_item:
            obj = queue.popleft()
            if id(obj) in seen_ids or id(type(obj)) in ATOM_TYPE_IDS or type(obj) is Graph:
                continue
            seen_ids.add(id(obj))
            opened_count += 1
            if is_handle_class(type(obj)):
                handles.append(obj)
                break  # one for each item, as the growth is divided over items
            opened_object = open_object(obj, walk)
            if any(_is_address(name, child) for name, child in opened_object.parts):
                handles.append(obj)  # an object of Python that has the address of an object of C
                break
            if opened_object is not OPAQUE and opened_object.kind not in {"array", "graph"}:
                queue.extend(
                    child for name, child in (*opened_object.parts, *opened_object.sampled) if name != ".<class>"
                )
    return handles


def _is_address(name: str, value: Any) -> bool:
    """Return whether an attribute is the address of an object of C, as a function of ctypes or cffi returned it."""
    return type(value) is int and value in _ADDRESSES and value % 8 == 0 and _POINTER_NAME.search(name) is not None


def is_handle_class(kind: type) -> bool:
    """Return whether a class, or one of its base classes, is made in C and may have memory that no census counts.

    A census is a snapshot of the program's objects with their sizes as Python knows them.
    """
    if kind is Callback:  # stands for a function that C code keeps with its arguments, which no census sees
        return True
    has_uncounted_memory = any(made_in_c(owner) and not _is_fully_counted(owner) for owner in mro(kind))
    has_known_size = any(map(_has_known_size, mro(kind)))
    return has_uncounted_memory and not has_known_size


def _is_fully_counted(kind: type) -> bool:
    """Return whether Python knows all memory of a class's objects, so that a census (snapshot of objects) counts it."""
    module, name = full_name(kind)
    if module != "builtins":
        return module in _FULLY_COUNTED_MODULES or module.startswith("numpy.random.")
    # A class of a C library that gives no module says `builtins` too, so its name must be Python's as well.
    is_helper = name.endswith(("iterator", "_keys", "_values", "_items"))
    return is_helper or name in vars(builtins) or id(kind) in _TYPES_CLASSES


def _has_known_size(kind: type) -> bool:
    """Return whether a census knows the size of a class's objects: arrays and tensors."""
    return full_name(kind) in {("torch._C", "TensorBase"), ("numpy", "ndarray")}
