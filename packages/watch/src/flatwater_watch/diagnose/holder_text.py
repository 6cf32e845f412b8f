"""The holders of a container in words, from the root to the content: `train.py, global HALL`, `list of 120`."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from flatwater_watch.diagnose.contents import Contents, describe_container
from flatwater_watch.diagnose.hops import ITEM, chain_of_holdings
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.raw import class_name, module_namespace, namespace_value
from flatwater_watch.heap.roots import display_module_name, source_file
from flatwater_watch.paths import file_name


def describe_holders(
    census: Census, holding: Holding, contents: Contents, modules: Mapping[str, dict[str, Any]]
) -> tuple[str, ...]:
    """Return the chain of holders in words: ("train.py, global HALL", "list of 120", "Tensor").

    It begins with the root, and ends with the container and its content.

    Args:
        census: census with references to its containers.
        holding: the container.
        contents: what it contains.
        modules: namespaces of the user's modules, by name.
    """
    holdings = chain_of_holdings(census, holding.path)
    root = holdings[0]
    hops = [
        _describe_hop(inner.path.removeprefix(outer.path), census.containers[outer.path], outer)
        for outer, inner in pairwise(holdings)
    ]
    container_words = describe_container(census.containers[holding.path], holding)
    return (
        _describe_root(root.path, root.instances, modules),
        *filter(None, hops),
        container_words,
        *([] if contents.item == container_words else [contents.item]),  # a text that is added to is its own item
    )


def _describe_hop(name: str, holder: Any, holding: Holding) -> str:
    """Return a hop from one object to the next in words: "attribute memory of Agent", "an item of list of 120".

    Args:
        name: hop in a path: `.memory`, `[*]`, `['best']`, `.<closure of on_step>.optimizer`.
        holder: object from which the hop leads.
        holding: entry of this object in the census.

    Returns:
        The words; empty for a hop to an autograd graph.
    """
    if name == ITEM:
        return f"an item of {describe_container(holder, holding)}"
    if name.startswith("['"):
        return f"entry {name[1:-1]} of {describe_container(holder, holding)}"
    if name == ".<graph>":
        return ""
    if name.startswith(".<") and ">." in name:  # `.<closure of on_step>.optimizer`
        scope, _, variable = name[2:].partition(">.")
        return f"{variable}, in the {scope}"
    if name.startswith(".<"):  # `.<callback>`
        return name[2:-1]
    owner_class = holder if holding.kind == "class" else type(holder)
    return f"attribute {name[1:]} of {class_name(owner_class)}"


def _describe_root(path: str, calls: int, modules: Mapping[str, dict[str, Any]]) -> str:
    """Return a root in words: "train.py, global HALL", "train.py, local agent of main()", "pyplot's figures".

    Args:
        path: path of the root: "train.HALL", or "main() in train.py: agent" for a local variable.
        calls: number of calls that wait at the same time, each with the root as a variable.
        modules: namespaces of the user's modules, by name.
    """
    place, separator, name = path.partition(": ")
    if separator:  # a local variable
        function, _, file = place.rpartition(" in ")
        calls_phrase = f"{calls} calls of " if calls > 1 else ""
        return f"{file}, local {name} of {calls_phrase}{function}"
    module, _, name = path.rpartition(".")
    # The program that Python runs is the module `__main__`, but its path has the name of its file: `train.HALL`.
    namespace = module_namespace(module) or next(
        (namespace for key, namespace in modules.items() if display_module_name(key, namespace) == module), None
    )
    if namespace is None:  # a registry, such as pyplot's figures, whose path is its name
        return path
    file = file_name(source_file(namespace) or "the main program")
    kind = "class" if issubclass(type(namespace_value(namespace, name)), type) else "global"
    return f"{file}, {kind} {name}"
