"""Names of the program's objects as its own code writes them, for advice that its author can type."""

import re
from collections.abc import Container
from itertools import zip_longest
from typing import NamedTuple

from flatwater_watch.diagnose.hops import ITEM, chain_of_holdings
from flatwater_watch.heap.census import Census
from flatwater_watch.heap.raw import class_dict, class_name, full_name, module_namespace, mro
from flatwater_watch.heap.roots import is_user_file

USED_AS_CONTAINERS = frozenset({
    "builtins", "collections", "functools", "itertools", "queue", "_queue", "threading", "_thread", "types", "weakref",
    "_weakrefset", "contextlib", "asyncio.queues", "argparse", "numpy", "array",
})  # fmt: skip
"""Modules whose objects are containers that belong to the code that makes them."""
_PUBLIC_HOPS = re.compile(r"([A-Za-z]\w*)?(\.[A-Za-z]\w*|\[\*\])*")
"""A path, or the end of one, of public attributes and items alone. Only one way to match: a long name that does not
match would else be tried in all its parts."""

_FUNCTION_ATTRIBUTE, _THREAD_ATTRIBUTE = re.compile(r"\.<attribute of [^>]*>"), re.compile(r"\.<dict>\[\*\]\['(\w+)'\]")
"""Hops to an attribute of a function, and to one of a `threading.local`, which has a dict for each thread."""


class CodeName(NamedTuple):
    """The name of an object in the code of the program."""

    text: str
    """An expression: `train.HISTORY`, or `item.rows` for an attribute of each item; empty if none is known."""
    container_name: str = ""
    """The container whose items `item` stands for; empty if `item` is not used."""

    @property
    def each_words(self) -> str:
        """Words that follow a call and say what `item` stands for; empty if `item` is not used."""
        return f", for each `item` of `{self.container_name}`" if self.container_name else ""


NO_NAME = CodeName("")


def code_name(path: str) -> CodeName:
    """Return the name of the object on a path: "agent.rows" for "main() in train.py: agent.rows".

    It is empty for what the program has no name for, such as a registry or a local variable of a library's function.
    """
    _, _, name = path.rpartition(": ")  # without the place of a local variable
    # Code writes an attribute of a function or of a `threading.local` without the hops to its dict.
    name = _THREAD_ATTRIBUTE.sub(r".\1", _FUNCTION_ATTRIBUTE.sub("", name))
    # A variable of a closure has its own name in the code: `rows` for `on_step.<closure of on_step>.rows`.
    _, is_in_closure, rest = name.rpartition("<closure of ")
    name = rest.partition(">.")[2] if is_in_closure else name
    first_name = re.split(r"[.\[]", name)[0]
    # `<` is left in hops that the walk names itself, and `[key]` leads to any key of a dict: no code writes these.
    if library_of_frame(path) or not first_name.isidentifier() or "<" in name or "[key]" in name:
        return NO_NAME
    outer, is_item, rest = name.rpartition(ITEM)  # behind the last `[*]`, the code has a variable for each item
    return CodeName(f"item{rest}", container_name=outer) if is_item else CodeName(name)


def holder_names(census: Census, path: str, modules: Container[str]) -> list[CodeName]:
    """Return the name of each object on a path, root first; empty for objects behind a library's private attributes."""
    # Runs no code of the watched program.
    holdings = chain_of_holdings(census, path)
    # The path as the program may write it: within a library, a property replaces a private attribute.
    shown_path = holdings[0].path
    # Path of the outermost object of a library, empty if the root itself is a library's; None until one is met.
    library_path = "" if library_of_root(shown_path) else None
    names = []
    # Each holding with the next one; the last with itself, so that no hop is left.
    for holding, child in zip_longest(holdings, holdings[1:], fillvalue=holdings[-1]):
        holder = census.containers[holding.path]
        kind = holder if issubclass(type(holder), type) else type(holder)  # the holder itself may be a class
        module = full_name(kind)[0]
        if library_path is None and module not in modules and module not in USED_AS_CONTAINERS:
            library_path = shown_path
        is_public = library_path is None or _PUBLIC_HOPS.fullmatch(shown_path.removeprefix(library_path))
        names.append(code_name(shown_path) if is_public else NO_NAME)
        hop = child.path.removeprefix(holding.path)
        shown_path += hop if library_path is None else public_hop(kind, hop)
    return names


def container_name(census: Census, path: str, modules: Container[str]) -> CodeName:
    """Return the name of a container of the user's; `self.rows` if only methods of its holder can name it.

    It is empty if no code of the program can name the container.
    """
    name, parent = code_name(path), census.holdings[path].parent
    if name.text or parent is None:
        return name
    hop = path.removeprefix(parent)
    is_user_object = full_name(type(census.containers[parent]))[0] in modules
    # A private attribute counts as a public one here, as the methods of the holder's class, the user's, may write it.
    return CodeName(f"self{hop}") if is_user_object and _PUBLIC_HOPS.fullmatch(hop.replace("._", ".")) else NO_NAME


def public_hop(kind: type, hop: str) -> str:
    """Return `.rows` for the hop `._rows` to a private attribute, if the class has such a property; else the hop."""
    for owner in mro(kind):
        # Python stores `self.__rows` of a class `Agent` as `_Agent__rows`.
        mangled_prefix = f"._{class_name(owner).lstrip('_')}__"
        name = hop.removeprefix(mangled_prefix).lstrip("._")
        if type(class_dict(owner).get(name)) is property:
            return f".{name}"
    return hop


def library_of_root(path: str) -> str:
    """Return the module of a library whose global, or whose class's attribute, a root is; empty for any other root."""
    if ": " in path:  # a local variable, or a registry
        return ""
    # The module is the longest beginning that is one: `module.NAME`, or `module.Class.NAME`.
    module = path.rpartition(".")[0]
    while module and module_namespace(module) is None:
        module = module.rpartition(".")[0]
    file = (module_namespace(module) or {}).get("__file__") if module else None
    return module if type(file) is str and not is_user_file(file) else ""


def library_of_frame(path: str) -> str:
    """Return the package in a path from a local variable: pymoo for `minimize() in pymoo: result`, else ""."""
    place, _, _ = path.rpartition(": ")
    package = place.rpartition(" in ")[2]
    # A user's function has a file such as `train.py` there, which is no identifier.
    return package if package.isidentifier() else ""
