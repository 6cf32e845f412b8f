"""The classes and objects of a library that hold a table, which is a container that the library keeps.

They lie on the path from a root, such as a global of the library or a variable of the user's, to the table.
"""

import re
import sys
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_names import NO_NAME, USED_AS_CONTAINERS, CodeName, holder_names, public_hop
from flatwater_watch.diagnose.code_use import SELF, plain_function
from flatwater_watch.diagnose.hops import chain_of_holdings
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.raw import class_dict, full_name, instance_dict, module_namespace, mro, named_entries

_NAME = re.compile(r"\w+")


class LibraryHolder(NamedTuple):
    """A class of a library, or an object of such a class, that holds a table."""

    kind: type
    names: frozenset[str]
    """The names on the way from there to the table: `history` and `rows` for `.history[*].rows`."""
    code_name: CodeName = NO_NAME
    """The name of the object in the user's code; empty for a class."""


def find_library_holders(
    census: Census, path: str, modules: Container[str]
) -> tuple[list[LibraryHolder], frozenset[str], bool]:
    """Find the objects of a library that hold a container (table), from the table up to the first object of the user's.

    Args:
        census: snapshot of the program's containers, with references to them.
        path: path of the table.
        modules: names of the user's modules.

    Returns:
        The objects, innermost first, with the table itself if its attributes grow; all names on the way from them to
        the table; and whether an object of the user's holds them.
    """
    holders: list[LibraryHolder] = []
    names = frozenset[str]()
    hops_of_child = ""  # the way from the holder before, which lies further in, to the table
    named_holdings = zip(chain_of_holdings(census, path), holder_names(census, path, modules), strict=True)
    for holding, name in reversed(list(named_holdings)):
        # `hops` is the way from this object to the table: `.history[*].rows`; empty for the table itself.
        holder, hops = census.containers[holding.path], path.removeprefix(holding.path)
        # The table itself is no holder, unless its attributes grow, or bytes inside of it.
        if not hops and holding.kind != "object" and not _is_object_of_c(holding, type(holder)):
            continue
        is_class = issubclass(type(holder), type)
        kind = holder if is_class else type(holder)
        # A property may stand for the private attribute that leads from this holder to the next.
        first_hop = hops.removesuffix(hops_of_child)
        names |= names_in_path(hops) | names_in_path(public_hop(kind, first_hop))
        hops_of_child = hops
        if full_name(kind)[0] in modules and not _is_set_by_library(kind, hops, modules):
            return holders, names, True
        # A list or a dict on the way has no method of the library.
        if full_name(kind)[0] not in USED_AS_CONTAINERS:
            table_names = names
            if not hops:  # the table itself: a method may release any attribute, or all by `delattr(self, name)`
                table_names = frozenset({SELF, *(attribute for attribute, _ in named_entries(instance_dict(holder)))})
            holders.append(LibraryHolder(kind, table_names, code_name=NO_NAME if is_class else name))
    return holders, names, False


def _is_object_of_c(holding: Holding, kind: type) -> bool:
    """Return whether a holding is an object of a library's class of C that itself says how many bytes it has."""
    return holding.kind == "bytes" and full_name(kind)[0] not in sys.stdlib_module_names


def _is_set_by_library(kind: type, hops: str, modules: Container[str]) -> bool:
    """Return whether an attribute of a user's object belongs to a library.

    It does if the first class that uses it, from the object's own class through its base classes, is a library's.

    Args:
        kind: class of the object.
        hops: the way from the object, which begins with the attribute: `._handlers['change']`.
        modules: names of the user's modules.
    """
    attribute = first_name_in_path(hops.removeprefix("."))
    for owner in mro(kind):  # the class itself first, then its base classes
        functions = filter(None, map(plain_function, list(class_dict(owner).values())))
        if any(attribute in function.__code__.co_names for function in functions):
            return full_name(owner)[0] not in modules
    return False


def library_of_class(kind: type, modules: Container[str]) -> str:
    """Return the library of a class: its package, or that of its nearest base class that is not the user's."""
    owner = next((owner for owner in mro(kind) if full_name(owner)[0] not in modules), kind)
    return full_name(owner)[0].partition(".")[0]


def class_of_root(module: str, root: str) -> type | None:
    """Return the class whose attribute a root is: `Register` for "luigi.task.Register.cache"; None for a global.

    Args:
        module: module at the beginning of the path: "luigi.task".
        root: path of the root.
    """
    namespace: Mapping[str, Any] = module_namespace(module) or {}
    kind: type | None = None
    for name in root.removeprefix(f"{module}.").split(".")[:-1]:
        found: Any = namespace.get(name)
        if not issubclass(type(found), type):  # not `isinstance`: it may run the object's own `__class__`
            return None
        kind, namespace = found, class_dict(found)
    return kind


def names_in_path(path: str) -> frozenset[str]:
    """Return the names in a part of a path: `history` and `rows` in `.history[*].rows`."""
    return frozenset(_NAME.findall(path))


def first_name_in_path(path: str) -> str:
    """Return the name with which a part of a path begins: `rows` of `rows[*]`; empty if it begins with none."""
    match = _NAME.match(path)
    return "" if match is None else match[0]
