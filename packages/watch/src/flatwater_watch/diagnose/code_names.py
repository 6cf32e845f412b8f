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
    """Return how the program's code writes the object on a path: "agent.rows" for "main() in train.py: agent.rows".

    Items of a container become `item`: "item.rows" for "train.AGENTS[*].rows". The name is empty for what the program
    cannot write, such as a registry or a local variable of a library's function.
    """
    _, _, name = path.rpartition(": ")  # without the place of a local variable, `main() in train.py`
    # Code writes an attribute of a function or of a `threading.local` without the hops to its dict.
    name = _THREAD_ATTRIBUTE.sub(r".\1", _FUNCTION_ATTRIBUTE.sub("", name))
    # A variable of a closure has its own name in the code: `rows` for `on_step.<closure of on_step>.rows`.
    _, is_in_closure, rest = name.rpartition("<closure of ")
    name = rest.partition(">.")[2] if is_in_closure else name
    first_name = re.split(r"[.\[]", name)[0]
    # No code writes what is left in `<...>`, a part that only the census names, nor `[key]`, any key of a dict.
    if library_of_frame(path) or not first_name.isidentifier() or "<" in name or "[key]" in name:
        return NO_NAME
    outer, is_item, rest = name.rpartition(ITEM)  # behind the last `[*]`, the code has a variable for each item
    return CodeName(f"item{rest}", container_name=outer) if is_item else CodeName(name)


def holder_names(census: Census, path: str, modules: Container[str]) -> list[CodeName]:
    """Return how the program's code writes each object on a path, root first: "agent", "agent.memory".

    A name is empty if only private attributes of a library lead to the object.

    Args:
        census: snapshot of the program's containers, with references to them.
        path: path of a container, whose own name comes last.
        modules: names of the user's modules; all others are libraries.
    """
    # Runs no code of the watched program.
    holdings = chain_of_holdings(census, path)
    # The path as the program may write it: within a library, a property replaces a private attribute.
    shown_path = holdings[0].path
    # Path of the outermost library object so far: None as long as there is none, "" if the root is a library's.
    library_path = "" if library_of_root(shown_path) else None
    names = []
    # Each holding with the next one; the last is paired with itself, which gives an empty hop.
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
    """Return how the program's code writes a container: "train.ROWS", or "self.rows" within a method of its holder.

    Empty if no code of the program can write it.
    """
    name, parent = code_name(path), census.holdings[path].parent
    if name.text or parent is None:
        return name
    hop = path.removeprefix(parent)
    is_user_object = full_name(type(census.containers[parent]))[0] in modules
    # Private attributes too: methods of the holder, whose class is the user's, may write these.
    is_plain_hop = _PUBLIC_HOPS.fullmatch(hop.replace("._", ".")) is not None
    return CodeName(f"self{hop}") if is_user_object and is_plain_hop else NO_NAME


def public_hop(kind: type, hop: str) -> str:
    """Return the property of a class that shows a private attribute: `.rows` for `._rows`; the hop itself without one.

    Args:
        kind: class of the object that has the attribute.
        hop: attribute with a dot, `._rows`, or any other hop of a path.
    """
    for owner in mro(kind):
        # Python stores `self.__rows` of a class `Agent` as `_Agent__rows`.
        mangled_prefix = f"._{class_name(owner).lstrip('_')}__"
        name = hop.removeprefix(mangled_prefix).lstrip("._")
        if type(class_dict(owner).get(name)) is property:
            return f".{name}"
    return hop


def library_of_root(path: str) -> str:
    """Return the library's module that a root belongs to: "regex._main" for the global "regex._main._cache".

    Empty for a root of the user's, and for roots that are no globals.
    """
    if ": " in path:  # a local variable, or a registry
        return ""
    # The path is `module.NAME` or `module.Class.NAME`: its longest beginning that is a module.
    module = path.rpartition(".")[0]
    while module and module_namespace(module) is None:
        module = module.rpartition(".")[0]
    file = (module_namespace(module) or {}).get("__file__") if module else None
    return module if type(file) is str and not is_user_file(file) else ""


def library_of_frame(path: str) -> str:
    """Return the library whose function has a local variable: "pymoo" for the path "minimize() in pymoo: result".

    Empty for variables of the user's functions, and for other paths.
    """
    place, _, _ = path.rpartition(": ")
    package = place.rpartition(" in ")[2]
    # A user's function has a file such as `train.py` there, which is no identifier.
    return package if package.isidentifier() else ""
