"""Bounds that are declared beside a container: _MAXCACHE beside _cache, as in regex, or maxsize in the same object.

Many libraries bound a dict or a list by a number in the same namespace, and look at it when they add. A container below
such a number is filling, not leaking; at or above it, the number says nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.raw import instance_dict, module_namespace, mro, names_of, plain_text

_LIMIT = re.compile("max|limit|capacity|bound")
"""Words of a number that bounds something, in small letters."""
_PLAIN_NAMES = frozenset({
    "max", "maxsize", "maxlen", "maxlength", "maxitems", "maxentries", "maxcount", "limit", "sizelimit", "capacity",
})  # fmt: skip
"""Names without underscores of a bound that is the whole object's."""
_MINIMUM_STEM = 3
"""Letters of a container's name that its bound has to repeat."""


def declared_bound(census: Census, holding: Holding) -> int | None:
    """The number of items at which a container is full, as a number beside it says; None if there is none.

    Args:
        census: census with references to its containers.
        holding: container that is longer than at an earlier time.
    """
    # Runs no code of the watched program.
    if holding.kind not in {"list", "dict", "set", "deque"}:
        return None
    space, name, is_object = _place(census, holding)
    stem = _letters(name).removesuffix("s")
    bounds = [
        value
        for key, value in space
        if type(value) is int
        and value > holding.length
        and _LIMIT.search(letters := _letters(key))
        and ((is_object and letters in _PLAIN_NAMES) or (len(stem) >= _MINIMUM_STEM and stem in letters))
    ]
    return min(bounds, default=None)


def _place(census: Census, holding: Holding) -> tuple[Iterator[tuple[str, Any]], str, bool]:
    """The namespace in which a container has its name, that name, and whether the namespace is an object's."""
    if holding.parent is None:
        module, _, name = holding.path.rpartition(".")
        return _entries(module_namespace(module) or {}), name, False
    hop = holding.path.removeprefix(holding.parent)
    holder = census.live.get(holding.parent)
    if not hop.startswith(".") or hop.startswith(".<") or holder is None:
        return iter(()), "", False
    return _attributes(holder), hop[1:], True


def _attributes(holder: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, then those of its classes."""
    yield from _entries(instance_dict(holder))
    for owner in mro(type(holder)):
        yield from _entries(names_of(owner))


def _entries(space: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    return ((plain_text(key), value) for key, value in list(space.items()))


def _letters(name: str) -> str:
    """A name in small letters, without underscores."""
    return name.replace("_", "").lower()
