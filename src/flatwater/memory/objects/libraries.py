"""What libraries keep in globals of their modules, and what of it became longer.

A census of all of it would open tens of thousands of objects. So containers are measured first, which takes 50
to 75 ms of CPU beside torch and Stable-Baselines3; those that became longer are roots of the censuses that follow.
"""

import gc
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from flatwater.memory.objects.children import ATOMS
from flatwater.memory.objects.functions import results
from flatwater.memory.objects.raw import full_name, namespace, plain
from flatwater.memory.objects.roots import OURS, Roots, user_modules
from flatwater.memory.objects.view import Named

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, tuple)
"""What a module is made of: it does not become longer."""
_FIXED_TYPES = ATOMS | {*map(id, _CODE)}
_CONTAINERS = (list, dict, set, deque)
ATTRIBUTES = 200
"""Entries of a dict that may be an instance's attributes, at most: a larger one is a table."""
_FIXED = frozenset({OURS, "sys", "builtins"})
"""Modules that are not a library's, by name of the package."""


def lengths(roots: Roots) -> dict[str, int]:
    """Items of each container, by path: of an instance, those of all containers in its attributes."""
    return {path: _length(value) for path, value in _globals(roots)}


def longer(roots: Roots, before: Mapping[str, int]) -> dict[str, Any]:
    """The globals that hold more items than before, or were not there, by path."""
    return {path: value for path, value in _globals(roots) if _length(value) > before.get(path, 0)}


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
            if id(kind) in _FIXED_TYPES or id(value) in seen or issubclass(kind, _CODE):
                continue
            seen.add(id(value))
            said = plain(key, "[*]")
            if not said.startswith("__"):
                yield f"{name}.{said}", value


def _length(value: Any) -> int:  # noqa: ANN401
    """Items, by the methods of builtin types: nothing of the program runs."""
    own = _items(value)
    if own >= 0:
        return own
    held = gc.get_referents(value)
    named = [found for found in held if type(found) is dict and dict.__len__(found) <= ATTRIBUTES]
    attributes = [each for found in named for each in dict.values(found)]
    return sum(max(0, _items(each)) for each in (*held, *attributes))


def _items(value: Any) -> int:  # noqa: ANN401
    """Items of a container or a cache; -1 of other objects."""
    kind = type(value)
    for builtin in _CONTAINERS:
        if issubclass(kind, builtin):
            return builtin.__len__(value)
    return results(value) if full_name(kind) == ("functools", "_lru_cache_wrapper") else -1
