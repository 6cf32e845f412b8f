"""Containers of libraries, such as queues: in which attribute each keeps its items, and how many items it has.

Classes are known by module and name, so no library is imported.
"""

import gc
import sys
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from flatwater_watch.errors import ConfigError
from flatwater_watch.heap.functions import Cache, result_count
from flatwater_watch.heap.instances import attribute_reader
from flatwater_watch.heap.raw import class_dict, full_name, module_namespace, mro


class ContainerSpec(NamedTuple):
    """The attributes in which a container of a library keeps its items and its bound."""

    items: str
    """The attribute with its list, deque, dict or set."""
    bound: str | None = None
    """The attribute with the maximum number of items; None if nothing bounds it."""
    is_queue: bool = False
    """Whether it is a queue, whose items wait to be taken."""


CONTAINERS = {
    ("queue", "Queue"): ContainerSpec("queue", "maxsize", is_queue=True),
    ("asyncio.queues", "Queue"): ContainerSpec("_queue", "_maxsize", is_queue=True),
    ("multiprocessing.queues", "Queue"): ContainerSpec("_buffer", is_queue=True),
    ("weakref", "WeakKeyDictionary"): ContainerSpec("data"),
    ("weakref", "WeakValueDictionary"): ContainerSpec("data"),
    ("_weakrefset", "WeakSet"): ContainerSpec("data"),
}
"""Classes of libraries, by module and name, that keep items in an attribute."""


def register_container(where: str, *, items: str, bound: str | None = None) -> None:
    """Have the watch of this process treat a class as a container, with a bound if it has one.

    Args:
        where: the class, as `package.module:Class`. It need not be imported yet.
        items: the attribute with its list, deque, dict or set.
        bound: the attribute with the maximum number of items; None if nothing bounds it.

    Raises:
        ConfigError: `where` is not the name of a class.
    """
    module, _, name = where.partition(":")
    if not (module and name):
        raise ConfigError(f"where = {where!r}: expected package.module:Class, such as queue:Queue")
    CONTAINERS[module, name] = ContainerSpec(items, bound)


def item_counter(kind: type) -> Callable[[Any], int] | None:
    """Return a function that counts the items of a container or cache without reading them; None for other classes."""
    # Runs no code of the watched program.
    for builtin in (list, dict, set, deque, array):
        if issubclass(kind, builtin):
            return builtin.__len__
    if full_name(kind) == ("_queue", "SimpleQueue") and is_genuine(kind):
        return class_dict(kind)["qsize"]  # type: ignore[no-any-return]
    return result_count if kind is Cache else None  # `Cache`: the class of `lru_cache`


def item_count(value: Any) -> int:
    """Return the number of items of a container or a cache, without reading any; -1 for other objects."""
    counter = item_counter(type(value))
    return -1 if counter is None else counter(value)


def inner_container(container: Any) -> Any:
    """Return the list, deque, dict or set in which a library's container keeps its items; other objects as they are.

    A `queue.SimpleQueue` has none: a new list of its items is returned.
    """
    # Runs no code of the watched program.
    for owner in mro(type(container)):
        spec = CONTAINERS.get(full_name(owner))
        # The program may have another class of this name, which is not the library's.
        if spec is not None and is_genuine(owner):
            attributes = dict(attribute_reader(type(container))(container))  # by name with a dot: `.queue`
            return attributes.get(f".{spec.items}", container)
        if full_name(owner) == ("_queue", "SimpleQueue") and is_genuine(owner):
            return queued_items(container)
    return container


def queued_items(queue: Any) -> list[Any]:
    """Return the items of a `queue.SimpleQueue`, oldest first."""
    # The queue is written in C: only the collector sees its items, behind its attributes and before its class. Up to
    # 3.12 they are in one list, which begins with None for each item that was taken out.
    space = module_namespace("_queue")
    assert space is not None  # noqa: S101  (it is where the class was found)
    count = space["SimpleQueue"].qsize(queue)
    referents = gc.get_referents(queue)
    referents.pop()  # the class
    if sys.version_info < (3, 13):
        referents = list(referents.pop())
    # The last `count` objects are the items. In place, as one more copy would be as long as the queue.
    del referents[: max(0, len(referents) - count)]
    return referents


def is_genuine(kind: type) -> bool:
    """Return whether a class is the one that its module has under its name: not another class that claims this name."""
    module, name = full_name(kind)
    space = module_namespace(module)
    return space is not None and space.get(name) is kind
