"""Containers in globals of libraries' modules, and those of them that became longer.

A census of them all would open tens of thousands of objects. So the items below each global are counted first, which
takes 90 ms of CPU with torch, pandas and Stable-Baselines3. Globals with more items than before are roots of the
coming censuses.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from flatwater_watch.heap.children import ATOM_TYPE_IDS, item_count
from flatwater_watch.heap.functions import Cache
from flatwater_watch.heap.instances import is_opaque_class
from flatwater_watch.heap.raw import namespace, plain_text
from flatwater_watch.heap.roots import OWN_PACKAGES, Roots, user_modules
from flatwater_watch.heap.view import Named

_CODE_TYPES = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)
"""Classes that are not entered: modules, code and frames lead to all the rest."""
_FIXED_TYPE_IDS = ATOM_TYPE_IDS | {*map(id, (*_CODE_TYPES, tuple))}
"""Ids of types whose objects do not become longer."""
MAXIMUM_OPENED = 200
"""Maximum items of a container that is entered: a longer one counts by its own length, as its items are alike."""
DEEP, MOST = 8, 2000
"""Maximum hops from a global, and objects below it; `moto` stores its objects five hops below `s3_backends`."""
ALL, SHALLOW = 30_000, 3
"""Objects below all globals, 100 ms of CPU, after which globals are followed for 3 hops only: these still reach the
containers in attributes."""
_SKIPPED_MODULES = frozenset({*OWN_PACKAGES, "sys", "builtins"})
"""Packages that do not count as libraries."""


def global_lengths(roots: Roots) -> dict[str, int]:
    """Number of items of all containers below each global, by path."""
    # In somebody's heap: no code of the program is called, and no object of it is kept.
    return {path: items for path, _, items in _globals_with_counts(roots)}


def grown_globals(roots: Roots, before: Mapping[str, int]) -> dict[str, Any]:
    """Globals with more items below them than before, or that are new, by path."""
    # In somebody's heap: no code of the program is called.
    return {path: value for path, value, items in _globals_with_counts(roots) if items > before.get(path, 0)}


def _globals_with_counts(roots: Roots) -> Iterator[tuple[str, Any, int]]:
    """Each global with the number of items below it; shared objects count for the first global, in order of modules."""
    visited = set[int]()
    enters_class = dict[int, bool]()
    for path, value in _library_globals(roots):
        yield path, value, _count_items(value, visited, enters_class)


def _count_items(value: Any, seen_ids: set[int], entered_ids: dict[int, bool]) -> int:
    """Number of items of all containers that an object reaches; no code of the program runs.

    Args:
        value: the object.
        seen_ids: ids of objects that were counted; those that are counted now are added.
        entered_ids: whether objects of a class are entered, by the class's id; classes met now are added.
    """
    # In somebody's heap: no code of the program is called.
    total = object_count = 0
    level = [value]
    for hop in range(DEEP):
        parents = []
        for obj in level:
            items = item_count(obj)
            total += max(0, items)
            if items <= MAXIMUM_OPENED and type(obj) is not Cache:
                parents.append(obj)
        object_count += len(level)
        level = []
        goes_on = object_count <= MOST and (hop < SHALLOW - 1 or len(seen_ids) < ALL)
        for obj in gc.get_referents(*parents) if goes_on else ():
            kind = type(obj)
            enters = entered_ids.get(id(kind))
            if enters is None:
                enters = entered_ids[id(kind)] = not (
                    id(kind) in ATOM_TYPE_IDS or issubclass(kind, _CODE_TYPES) or is_opaque_class(kind)
                )
            if enters and id(obj) not in seen_ids:
                seen_ids.add(id(obj))
                level.append(obj)
        if not level:
            break
    return total


def _library_globals(roots: Roots) -> Iterator[Named]:
    """Yield each global of an imported library once, as (`module.name`, value), but for code, atoms and tuples."""
    visited_namespaces = {id(names) for names in user_modules(roots).values()}
    visited = set[int]()
    for name, module in list(sys.modules.items()):  # a copy: other threads may import meanwhile
        if (
            type(name) is not str
            or name.partition(".")[0] in _SKIPPED_MODULES
            or not issubclass(type(module), ModuleType)
        ):
            continue
        names = namespace(module)
        if id(names) in visited_namespaces:
            continue
        visited_namespaces.add(id(names))
        for key, value in list(dict.items(names)):
            kind = type(value)
            if id(kind) in _FIXED_TYPE_IDS or id(value) in visited or issubclass(kind, (*_CODE_TYPES, tuple)):
                continue
            visited.add(id(value))
            attribute = plain_text(key, "[*]")
            if not attribute.startswith("__"):
                yield f"{name}.{attribute}", value
