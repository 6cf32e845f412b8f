"""Calls of a library whose names say that they let go of what it keeps: the table itself is the library's own.

A person who is told to delete from a private table of a library breaks it. So where no rule of `rules.py` is known, the
public functions beside the table, and the public methods of the objects that hold it, are asked for by their names, and
those in Python for whether they use what the way to the table is called.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from flatwater_watch.heap.census import Census
from flatwater_watch.heap.raw import class_name, full_name, module_namespace, mro, named_entries, names_of
from flatwater_watch.heap.roots import Roots, is_user_file, user_modules

RELEASING = (
    "clear", "reset", "purge", "remove", "release", "unregister", "unsubscribe", "disconnect", "unobserve", "evict",
    "expire", "forget", "discard", "flush", "dispose", "detach", "cleanup", "close", "shutdown",
)  # fmt: skip
"""First words of the names of functions that let go, the surest first."""
_FIRST_WORD, _NAME = re.compile("[a-z]*"), re.compile(r"\w+")
MAXIMUM_CALLS = 2
_DEPTH = 2
"""Functions that a call is followed through, to those that use the table."""
_USED_AS_CONTAINERS = frozenset({
    "builtins", "collections", "functools", "itertools", "queue", "_queue", "threading", "types", "weakref",
    "_weakrefset", "contextlib", "asyncio.queues", "argparse", "numpy", "array",
})  # fmt: skip
"""Modules whose objects are containers of whoever makes them."""


class LibraryTable(NamedTuple):
    """A container that belongs to a library."""

    library: str
    """Name of the package."""
    calls: tuple[str, ...]
    """Its calls that let go, by their names: "regex.purge()", "Markdown.reset()"; empty without one."""

    @property
    def advice(self) -> str:
        """A sentence on what keeps it, and what lets go."""
        if self.calls:
            return f"{self.library} keeps it. By its name, {' or '.join(self.calls)} lets go of it."
        return f"{self.library} keeps it, in a table of its own: add to it less often, or make anew what holds it."


def library_table(census: Census, path: str) -> LibraryTable | None:
    """The library whose table a container is, with the calls that let go of it; None for the user's own.

    Of several objects of libraries the outermost is asked first, as the program has a name for it.

    Args:
        census: census with references to its containers.
        path: path of the container.
    """
    # Runs no code of the watched program.
    modules = user_modules(Roots())
    holding = census.holdings[path]
    kinds: list[tuple[type, frozenset[str]]] = []  # with the names on the way from an object to the container
    while holding.parent is not None:
        holding = census.holdings[holding.parent]
        kind = type(census.live[holding.path])
        module = full_name(kind)[0]
        if module in modules:
            break  # what it holds is the user's own, but for the library's objects on the way down
        if module not in _USED_AS_CONTAINERS:
            kinds.append((kind, _names_on_way(path.removeprefix(holding.path))))
    else:
        module = _library_of_root(holding.path)
        if module and module not in modules:
            package, way = module.partition(".")[0], _names_on_way(path.removeprefix(module))
            return LibraryTable(package, tuple(_calls_beside((package, module), way)))
    if not kinds:
        return None
    calls = next((calls for kind, way in reversed(kinds) if (calls := _methods(kind, way))), ())
    return LibraryTable(full_name(kinds[0][0])[0].partition(".")[0], calls)


def _names_on_way(way: str) -> frozenset[str]:
    """The names in the part of a path that leads to a container."""
    return frozenset(_NAME.findall(way))


def _library_of_root(path: str) -> str:
    """The module of a library to which a global, or an attribute of a class, belongs; empty for any other root."""
    module = path.rpartition(".")[0]
    while module and ": " not in path and module_namespace(module) is None:
        module = module.rpartition(".")[0]
    file = (module_namespace(module) or {}).get("__file__") if module and ": " not in path else None
    return module if type(file) is str and not is_user_file(file) else ""


def _calls_beside(modules: Iterable[str], way: frozenset[str]) -> Iterator[str]:
    """Yield the calls of the first of some modules that has any."""
    for module in dict.fromkeys(modules):
        names = _releasing_names(module_namespace(module) or {}, way)
        if names:
            yield from (f"{module}.{name}()" for name in names)
            return


def _methods(kind: type, way: frozenset[str]) -> tuple[str, ...]:
    """The public methods of a class that let go, with the name of the class."""
    space = {name: value for owner in reversed(mro(kind)) for name, value in named_entries(names_of(owner))}
    return tuple(f"{class_name(kind)}.{name}()" for name in _releasing_names(space, way))


def _releasing_names(space: Mapping[str, Any], way: frozenset[str]) -> list[str]:
    """Names of functions in a namespace that let go, the surest first, at most `MAXIMUM_CALLS`.

    Args:
        space: namespace of a module or a class.
        way: names that lead from there to the container, one of which a function in Python uses.
    """
    found = [
        (RELEASING.index(word), name)
        for name, value in list(space.items())
        if (word := _FIRST_WORD.findall(name)[0]) in RELEASING
        and (_is_method_of_c(value) or not way.isdisjoint(_used_names(value, space)))
    ]
    return [name for _, name in sorted(found)[:MAXIMUM_CALLS]]


def _used_names(function: Any, space: Mapping[str, Any], depth: int = _DEPTH) -> set[str]:
    """Names that a function's code uses, and that of functions beside it which it calls; empty for other objects."""
    if type(function) is not FunctionType:
        return set()
    names = set(function.__code__.co_names)
    called = [space[name] for name in names if name in space] if depth else []
    return names.union(*(_used_names(each, space, depth - 1) for each in called))


def _is_method_of_c(value: Any) -> bool:
    return full_name(type(value)) in {("builtins", "method_descriptor"), ("builtins", "builtin_function_or_method")}
