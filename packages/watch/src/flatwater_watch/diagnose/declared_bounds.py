"""Bounds that are declared beside a container: _MAXCACHE beside _cache, as in regex, or maxsize in the same object.

Many libraries bound a dict or a list by a number in the same namespace, which they check before they add an item. A
container up to such a number is filling, not leaking; if it is longer, the number is not its bound.
"""

import re
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.raw import class_dict, instance_dict, module_namespace, mro, named_entries

_LIMIT_WORD = re.compile("max|limit|capacity|bound")
"""Parts of the name of a number that is a bound, in small letters."""
_LIFETIME_WORD = re.compile("^ttl|ttl$|expire|lifespan|lifetime|perchild")
"""Parts of the name of a parameter after whose time or use something is dropped, in small letters."""
_PLAIN_NAMES = frozenset({
    "max", "maxsize", "maxlen", "maxlength", "maxitems", "maxentries", "maxcount", "limit", "sizelimit", "capacity",
})  # fmt: skip
"""Names, without underscores, of a bound on the whole object that has it as an attribute."""
_MINIMUM_STEM = 3
"""Minimum letters of a container's name, without a plural s, that its bound must contain."""


def declared_bound(census: Census, holding: Holding) -> int | None:
    """Return the number of items at which a container is full, by a number declared beside it; None if there is none.

    Args:
        census: snapshot of the program's containers, with references to them.
        holding: container that is longer than at an earlier time.
    """
    # Runs no code of the watched program.
    if holding.kind not in {"list", "dict", "set", "deque"}:
        return None
    namespace, name, is_attribute = _find_namespace(census, holding)
    # A container of a class derived from a builtin one may have attributes itself. Its name is left empty, so that only
    # bounds of a whole object, such as `maxsize`, count.
    own_attributes = named_entries(instance_dict(census.containers.get(holding.path)))
    own_bound = _smallest_bound(own_attributes, name="", length=holding.length, is_attribute=True)
    return own_bound or _smallest_bound(namespace, name, holding.length, is_attribute=is_attribute)


def _smallest_bound(namespace: Iterable[tuple[str, Any]], name: str, length: int, *, is_attribute: bool) -> int | None:
    """Return the smallest number in a namespace that may bound a container; None if there is none.

    Args:
        namespace: pairs of name and value.
        name: name of the container in the namespace; empty if it has none there.
        length: length of the container; a smaller number is not its bound.
        is_attribute: whether the namespace is that of an object, which may have a bound on the whole object.
    """
    stem = _letters(name).removesuffix("s")  # `items` is bounded by `max_item`, too
    bounds = [
        value
        for other_name, value in namespace
        if type(value) is int
        and value >= length
        and _is_bound_name(_letters(other_name), stem, is_attribute=is_attribute)
    ]
    return min(bounds, default=None)


def find_unset_bounds(constructor: FunctionType, table: str) -> list[str]:
    """Return the parameters of a constructor that would bound a table, by their names, but set no bound by default.

    Args:
        constructor: the `__init__` of a class.
        table: name of the attribute that is the table.
    """
    stem = _letters(table).removesuffix("s")  # `items` is bounded by `max_item`, too
    return [name for name in _unset_parameters(constructor) if _is_bound_name(_letters(name), stem, is_attribute=True)]


def lifetime_parameters(function: FunctionType) -> list[str]:
    """Return the parameters of a function that would make items expire, such as `ttl=None`, but do not by default."""
    return [name for name in _unset_parameters(function) if _LIFETIME_WORD.search(_letters(name))]


def _unset_parameters(function: FunctionType) -> list[str]:
    """Return the parameters of a function whose defaults set no bound: None, or a number below 1."""
    # Runs no code of the watched program.
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    # Paired from the end, as defaults belong to the last parameters; a program may have set more than there are.
    pairs_from_end = list(zip(positional[::-1], defaults[::-1], strict=False))
    default_by_name = dict(reversed(pairs_from_end)) | (function.__kwdefaults__ or {})
    return [name for name, value in default_by_name.items() if value is None or (type(value) is int and value <= 0)]


def _is_bound_name(letters: str, stem: str, *, is_attribute: bool) -> bool:
    """Return whether a number bounds a container, by its name: `maxsize` in the same object, or "max_item" for `items`.

    Args:
        letters: name of the number in small letters without underscores: "maxitem".
        stem: name of the container in small letters without underscores and without a plural s: "item".
        is_attribute: whether the number is an attribute of an object, and not a global.
    """
    bounds_object = is_attribute and letters in _PLAIN_NAMES
    names_container = len(stem) >= _MINIMUM_STEM and stem in letters
    return _LIMIT_WORD.search(letters) is not None and (bounds_object or names_container)


def _find_namespace(census: Census, holding: Holding) -> tuple[Iterable[tuple[str, Any]], str, bool]:
    """Return the names and values beside a container, its own name, and whether it is an attribute.

    Beside a global lie the globals of its module, and beside an attribute those of the same object and its classes. A
    container without a name, such as an item of another container, has nothing beside it.
    """
    if holding.parent is None:  # a global: `module.NAME`
        module, _, name = holding.path.rpartition(".")
        return named_entries(module_namespace(module) or {}), name, False
    hop = holding.path.removeprefix(holding.parent)
    holder = census.containers.get(holding.parent)
    # Only an attribute has a name: not an item (`[key]`), nor a part that only the census names (`.<...>`).
    if not hop.startswith(".") or hop.startswith(".<") or holder is None:
        return (), "", False
    return _iterate_attributes(holder), hop[1:], True


def _iterate_attributes(holder: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, then those of its classes."""
    yield from named_entries(instance_dict(holder))
    for owner in mro(type(holder)):
        yield from named_entries(class_dict(owner))


def _letters(name: str) -> str:
    """Return a name in small letters, without underscores."""
    return name.replace("_", "").lower()
