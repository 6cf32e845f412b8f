"""Public calls of a library that release objects in one of its private tables, for the advice on a table that grows.

A user who deletes from a private table may break the library. So where no rule of `rules.py` is known, calls are found
by their names, such as `clear`: functions beside the table, and methods of the objects that hold it. A function in
Python must also use one of the names that lead to the table.
"""

import opcode
import re
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from flatwater_watch.heap.census import Census
from flatwater_watch.heap.raw import class_name, full_name, module_namespace, mro, named_entries, names_of
from flatwater_watch.heap.roots import Roots, is_user_file, user_modules

RELEASING = (
    "clear", "reset", "purge", "remove", "release", "unregister", "unsubscribe", "disconnect", "unobserve", "evict",
    "expire", "forget", "discard", "flush", "sync", "dispose", "detach", "cleanup", "close", "shutdown",
)  # fmt: skip
"""First words of the names of functions that release objects, the surest first."""
_FIRST_WORD, _NAME = re.compile("[a-z]*"), re.compile(r"\w+")
MAXIMUM_CALLS = 2
"""Maximum number of calls that the advice names."""
_REMOVING_CALLS = frozenset({"clear", "pop", "popitem", "popleft", "remove", "discard"})
"""Methods of builtin containers that remove items."""
_REMOVING_CODES = frozenset(
    opcode.opmap[name] for name in ("DELETE_ATTR", "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_ATTR", "STORE_GLOBAL")
)
"""Instructions that let go of an object: an attribute or a global gets another one."""
_CALL_DEPTH = 2
"""Depth to which the functions that a call calls are searched for a use of the table."""
_USED_AS_CONTAINERS = frozenset({
    "builtins", "collections", "functools", "itertools", "queue", "_queue", "threading", "types", "weakref",
    "_weakrefset", "contextlib", "asyncio.queues", "argparse", "numpy", "array",
})  # fmt: skip
"""Modules whose objects are containers that belong to the code that makes them."""


class LibraryTable(NamedTuple):
    """A container that belongs to a library."""

    library: str
    """Name of the package."""
    calls: tuple[str, ...]
    """Its calls that release objects, by their names: "regex.purge()", "Markdown.reset()"; empty if it has none."""

    @property
    def advice(self) -> str:
        """A sentence or two for the user: the library that keeps the objects, and the calls that release them."""
        if self.calls:
            return f"{self.library} keeps it. By its name, {' or '.join(self.calls)} lets go of it."
        return f"{self.library} keeps it, in a table of its own: add to it less often, or make anew what holds it."


def library_table(census: Census, path: str) -> LibraryTable | None:
    """The library whose table a container is, with the calls that release its objects; None for a table of the user's.

    A table belongs to the library whose object holds it, or whose global is its root, if no object of the user's lies
    between.

    Args:
        census: census with references to its containers.
        path: path of the container.
    """
    # Runs no code of the watched program.
    modules = user_modules(Roots())
    holding = census.holdings[path]
    # Classes of library objects that hold the container, innermost first, with the names that lead from there to it.
    holders: list[tuple[type, frozenset[str]]] = []
    is_user_owned = False
    while holding.parent is not None and not is_user_owned:
        holding = census.holdings[holding.parent]
        holder_class = type(census.live[holding.path])
        module = full_name(holder_class)[0]
        is_user_owned = module in modules
        if not is_user_owned and module not in _USED_AS_CONTAINERS:
            holders.append((holder_class, _names_in_path(path.removeprefix(holding.path))))
    root_module = "" if is_user_owned else _library_of_root(holding.path)
    if root_module and root_module not in modules:
        package, names = root_module.partition(".")[0], _names_in_path(path.removeprefix(root_module))
        return LibraryTable(package, _module_calls((package, root_module), names))
    if not holders:
        return None
    # From the outermost object, as the program has a name for it.
    calls_by_holder = (_method_calls(holder_class, names) for holder_class, names in reversed(holders))
    innermost_class, _ = holders[0]
    return LibraryTable(full_name(innermost_class)[0].partition(".")[0], next(filter(None, calls_by_holder), ()))


def _names_in_path(path: str) -> frozenset[str]:
    """The names in a part of a path: `history` and `rows` in `.history[*].rows`."""
    return frozenset(_NAME.findall(path))


def _library_of_root(path: str) -> str:
    """The module of a library to which a global, or an attribute of a class, belongs; empty for any other root."""
    if ": " in path:  # a local variable, or a registry
        return ""
    module = path.rpartition(".")[0]
    while module and module_namespace(module) is None:
        module = module.rpartition(".")[0]
    file = (module_namespace(module) or {}).get("__file__") if module else None
    return module if type(file) is str and not is_user_file(file) else ""


def _module_calls(modules: Iterable[str], names: frozenset[str]) -> tuple[str, ...]:
    """The releasing functions, such as "regex.purge()", of the first module that has any, for a table by its names."""
    for module in modules:
        functions = _releasing_functions(module_namespace(module) or {}, names)
        if functions:
            return tuple(f"{module}.{function}()" for function in functions)
    return ()


def _method_calls(kind: type, names: frozenset[str]) -> tuple[str, ...]:
    """The releasing methods of a class, such as "Markdown.reset()", for a table that these names lead to."""
    namespace = {name: value for owner in reversed(mro(kind)) for name, value in named_entries(names_of(owner))}
    return tuple(f"{class_name(kind)}.{method}()" for method in _releasing_functions(namespace, names))


def _releasing_functions(namespace: Mapping[str, Any], table_names: frozenset[str]) -> list[str]:
    """Names of functions in a namespace that release objects, the surest first, at most `MAXIMUM_CALLS`.

    Args:
        namespace: names of a module or a class.
        table_names: names that lead from there to the table; a function in Python must use one of them.
    """
    ranked = [
        (RELEASING.index(word), name)
        for name, value in list(namespace.items())
        if (word := _FIRST_WORD.findall(name)[0]) in RELEASING
        and (_is_method_of_c(value) or not table_names.isdisjoint(_released_names(value, namespace)))
    ]
    return [name for _, name in sorted(ranked)[:MAXIMUM_CALLS]]


def _released_names(function: Any, namespace: Mapping[str, Any], depth: int = _CALL_DEPTH) -> set[str]:
    """Names that a Python function uses, with the functions beside it that it calls, if any of them releases objects.

    A function that only reads a table has neither a deletion nor an assignment nor a call such as `pop` in its code.
    """
    names, releases = _names_in_code(function, namespace, depth)
    return names if releases else set()


def _names_in_code(function: Any, namespace: Mapping[str, Any], depth: int) -> tuple[set[str], bool]:
    """Names in the code of a function and of those beside it that it calls, and whether that code releases objects."""
    if type(function) is not FunctionType:
        return set(), False
    code = function.__code__
    names = set(code.co_names)
    releases = not _REMOVING_CALLS.isdisjoint(names) or not _REMOVING_CODES.isdisjoint(code.co_code[::2])
    for callee in [namespace[name] for name in code.co_names if name in namespace] if depth else []:
        callee_names, callee_releases = _names_in_code(callee, namespace, depth - 1)
        names |= callee_names
        releases = releases or callee_releases
    return names, releases


def _is_method_of_c(value: Any) -> bool:
    """Whether a value is a function or method of C, whose code cannot be searched for names."""
    return full_name(type(value)) in {("builtins", "method_descriptor"), ("builtins", "builtin_function_or_method")}
