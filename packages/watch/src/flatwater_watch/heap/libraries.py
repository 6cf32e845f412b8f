"""What libraries keep in globals of their modules, and what of it became longer.

A census of all of it would open tens of thousands of objects. So the items below each global are counted first, which
takes 90 ms of CPU beside torch, pandas and Stable-Baselines3; globals that have more are roots of the censuses that
follow.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from flatwater_watch.heap.children import ATOMS, item_count
from flatwater_watch.heap.functions import Cache
from flatwater_watch.heap.instances import is_opaque_class
from flatwater_watch.heap.raw import namespace, plain_text
from flatwater_watch.heap.roots import OURS, Roots, user_modules
from flatwater_watch.heap.view import Named

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)
"""What modules are made of, and what runs in them: it leads to all the rest."""
_FIXED_TYPES = ATOMS | {*map(id, (*_CODE, tuple))}
"""Globals of these do not become longer."""
OPENED = 200
"""Items of a container that is looked into, at most: of a longer one they are alike, and it counts by itself."""
DEEP, MOST = 8, 2000
"""Hops from a global, and objects below it. `moto` has what it stores five hops below `s3_backends`."""
ALL, SHALLOW = 30_000, 3
"""Objects below all globals, 100 ms of CPU, after which the rest are counted for so many hops: with the containers in
attributes."""
_FIXED = frozenset({*OURS, "sys", "builtins"})
"""Modules that are not a library's, by name of the package."""


def global_lengths(roots: Roots) -> dict[str, int]:
    """Items of all containers below each global, by path."""
    return {path: items for path, _, items in _globals_with_counts(roots)}


def grown_globals(roots: Roots, before: Mapping[str, int]) -> dict[str, Any]:
    """The globals below which there are more items than before, or that were not there, by path."""
    return {path: value for path, value, items in _globals_with_counts(roots) if items > before.get(path, 0)}


def _globals_with_counts(roots: Roots) -> Iterator[tuple[str, Any, int]]:
    """Each global with the items below it. What several reach counts for the first, in the order of the modules."""
    seen, entered = set[int](), dict[int, bool]()
    for path, value in _globals(roots):
        yield path, value, _items_below(value, seen, entered)


def _items_below(value: Any, seen: set[int], entered: dict[int, bool]) -> int:  # noqa: ANN401
    """Items of what an object reaches, in breadth; nothing of the program runs.

    Args:
        value: where it begins.
        seen: ids of what was counted; more is added.
        entered: by id of a class, whether its objects are looked into; more is added.
    """
    total, visited, level = 0, 0, [value]
    for hop in range(DEEP):
        opened = []
        for each in level:
            items = item_count(each)
            total += max(0, items)
            if items <= OPENED and type(each) is not Cache:
                opened.append(each)
        visited += len(level)
        level = []
        goes_on = visited <= MOST and (hop < SHALLOW - 1 or len(seen) < ALL)
        for each in gc.get_referents(*opened) if goes_on else ():
            kind = type(each)
            enters = entered.get(id(kind))
            if enters is None:
                enters = entered[id(kind)] = not (id(kind) in ATOMS or issubclass(kind, _CODE) or is_opaque_class(kind))
            if enters and id(each) not in seen:
                seen.add(id(each))
                level.append(each)
        if not level:
            break
    return total


def _globals(roots: Roots) -> Iterator[Named]:
    """Each global of a library's module once, with its path."""
    known = {id(names) for names in user_modules(roots).values()}
    seen = set[int]()
    for name, module in list(sys.modules.items()):
        if type(name) is not str or name.partition(".")[0] in _FIXED or not issubclass(type(module), ModuleType):
            continue
        names = namespace(module)
        if id(names) in known:
            continue
        known.add(id(names))
        for key, value in list(dict.items(names)):
            kind = type(value)
            if id(kind) in _FIXED_TYPES or id(value) in seen or issubclass(kind, (*_CODE, tuple)):
                continue
            seen.add(id(value))
            said = plain_text(key, "[*]")
            if not said.startswith("__"):
                yield f"{name}.{said}", value
