"""The holders of an object: the shortest chain of references from a name of the program to it, in words.

The search goes forwards, from named roots, and not backwards by `gc.get_referrers`: the collector does not track
arrays nor dicts of arrays, and sees no reference out of an autograd graph. It goes backwards only if no name leads to
the object.
"""

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from flatwater_watch.heap.arrays import Graph, saved_tensors
from flatwater_watch.heap.children import ATOM_TYPE_IDS, open_object
from flatwater_watch.heap.raw import (
    class_name,
    full_name,
    is_a,
    loaded_modules,
    module_namespace,
    named_entries,
    namespace,
    read_stable,
)
from flatwater_watch.heap.roots import Roots, named_roots, user_modules
from flatwater_watch.heap.view import Walk

MAXIMUM_OBJECTS = 2_000_000
"""Maximum number of objects that are opened."""
MAXIMUM_CHAIN_HOPS = 4
"""Maximum hops of a chain if no name leads to the object."""
MAXIMUM_KEY_LETTERS = 40
NO_PYTHON_HOLDER = "native code, as no Python object does: a C extension, or a tensor's C++ part"


@dataclass(slots=True)
class _ReachedObject:
    """An object that the search has reached, with the object through which it was reached."""

    obj: Any
    name: str
    """Its part of the path from the object above."""
    holder: "_ReachedObject | None"
    """The object that holds it; None for a root."""


def find_holder_chain(target: object, extra_roots: Sequence[tuple[str, object]] = ()) -> tuple[str, ...]:
    """Find the shortest chain of references to an object: words for its root, then for each reference on the way.

    The search begins at the user's own names: globals, local variables of running functions, known registries. If none
    leads to the object, it begins at the globals of all loaded modules, and then at the objects that refer to it.
    """
    roots = Roots()
    modules = user_modules(roots)
    # First only through builtin containers and instances of classes of the user's modules.
    reached_object = _search_chain(
        [*extra_roots, *named_roots(roots)], target, may_open=lambda cls: full_name(cls)[0] in modules
    )
    if reached_object is None:
        reached_object = _search_chain(_module_globals(), target, may_open=lambda _: True)
    return _referrer_chain(target) if reached_object is None else tuple(_describe_chain(reached_object))


def _module_globals() -> Iterator[tuple[str, Any]]:
    """Yield the globals of all loaded modules, with names such as `queue.Queue`."""
    for name, module in loaded_modules().items():
        yield from ((f"{name}.{key}", value) for key, value in named_entries(namespace(module)))


def _search_chain(
    roots: Iterable[tuple[str, Any]], target: object, may_open: Callable[[type], bool]
) -> _ReachedObject | None:
    """Search the target from the roots; return it with its chain to a root, None if no root reaches it.

    Args:
        roots: objects with their names, from which the search begins.
        target: object that is searched.
        may_open: whether the attributes of a class's instances are followed.
    """
    # Breadth-first, so the chain found is the shortest. All items of a container are opened, not a sample.
    walk = Walk(sampled_items=sys.maxsize, is_user_class=may_open, maximum_objects=MAXIMUM_OBJECTS)
    queue: deque[_ReachedObject] = deque()
    opened_objects: list[_ReachedObject] = []  # opened objects stay alive, so that no id is used again
    for name, obj in roots:
        reached_object = _ReachedObject(obj, name, holder=None)
        if obj is target:
            return reached_object
        _enqueue_new_(walk, queue, reached_object)
    while queue and len(opened_objects) < MAXIMUM_OBJECTS:
        holder = queue.popleft()
        opened_objects.append(holder)
        # A tensor that a graph saves is not among its contents below.
        if type(holder.obj) is Graph and _graph_saves(holder, target):
            return _ReachedObject(target, ".<saved>", holder)
        contents = open_object(holder.obj, walk)
        for name, obj in (*contents.parts, *contents.sampled):
            reached_object = _ReachedObject(obj, name, holder)
            if obj is target:
                return reached_object
            _enqueue_new_(walk, queue, reached_object)
    return None


def _graph_saves(graph: _ReachedObject, target: object) -> bool:
    """Return whether an autograd graph, whose holder is its tensor, saves the target for the backward pass.

    No Python reference shows that.
    """
    return graph.holder is not None and any(tensor is target for tensor in saved_tensors(graph.holder.obj))


def _enqueue_new_(walk: Walk, queue: deque[_ReachedObject], reached_object: _ReachedObject) -> None:
    """Put an object into the queue of objects to open, unless it is an atom, such as a number, or was seen before."""
    if id(type(reached_object.obj)) not in ATOM_TYPE_IDS and id(reached_object.obj) not in walk.seen_ids:
        walk.seen_ids.add(id(reached_object.obj))
        queue.append(reached_object)


def _describe_chain(reached_object: _ReachedObject) -> list[str]:
    """Describe the way to an object: a line for the root, and one for each reference from there to the object."""
    hops: list[str] = []  # from the object up to the root
    node = reached_object
    while node.holder is not None:
        hops.append(f"{_describe_hop(node.name, node.holder.obj, node.obj)}: {_describe_object(node.obj)}")
        node = node.holder
    return [f"{_describe_root(node.name)}: {_describe_object(node.obj)}", *reversed(hops)]


def _describe_root(name: str) -> str:
    """Describe a root: `test_env.CACHE` as `test_env.py, global CACHE`; other roots have names in words already."""
    module, _, variable = name.rpartition(".")
    file = (module_namespace(module) or {}).get("__file__")
    # Roots that are no variable of a module may have blanks in their names, such as `fixture env`.
    if type(file) is not str or " " in name:
        return name
    return f"{Path(file).name}, global {variable}"


def _describe_hop(name: str, holder: Any, obj: object) -> str:
    """Describe a reference from a holder to an object.

    The name `[*]` stands for an item, which is described by its number or key; `.<closure of step>.env` is described as
    `env, in the closure of step`.
    """
    if name == "[*]":
        return f"[{_item_key(holder, obj)}]"
    # `.<` begins a name that the walk gives to a part which is no attribute.
    if name.startswith(".<") and ">." in name:
        scope, _, variable = name[2:].partition(">.")
        return f"{variable}, in the {scope}"
    return name[2:-1] if name.startswith(".<") else name  # `.<saved>` becomes `saved`


def _item_key(holder: Any, obj: object) -> str:
    """Return the number or the key under which a container holds an object; `*` if it is not found."""
    # By methods of the builtin types: a subclass in the program may define its own.
    if issubclass(type(holder), dict):
        pairs: list[tuple[Any, Any]] = read_stable(list, dict.items(holder))
        return next((_describe_key(key) for key, value in pairs if value is obj), "*")
    for kind in (list, tuple, deque):
        if issubclass(type(holder), kind):
            items = read_stable(_container_items, kind, holder)
            return next((str(index) for index, value in enumerate(items) if value is obj), "*")
    return "*"


def _container_items(kind: Any, holder: Any) -> list[Any]:
    return list(kind.__iter__(holder))


def _describe_key(key: object) -> str:
    """Describe a key of a dict: a number or a text by itself, another key by its class."""
    if any(type(key) is kind for kind in (int, str, float, bool, bytes)):
        return repr(key)[:MAXIMUM_KEY_LETTERS]
    return f"a {class_name(type(key))}"  # its `repr` may be the program's code


def _describe_object(obj: object) -> str:
    """Describe an object by its class, with the number of items of a builtin container."""
    if type(obj) is Graph:
        return "what backward needs"
    class_words = class_name(type(obj))
    for kind in (list, tuple, dict, set, frozenset, deque):
        if issubclass(type(obj), kind):
            return f"{class_words} of {kind.__len__(obj)}"  # type: ignore[arg-type]
    return class_words


def _referrer_chain(target: object) -> tuple[str, ...]:
    """Describe a chain of holders that the collector knows, outermost first, for an object to which no name leads."""
    chain: list[Any] = [target]
    for _ in range(MAXIMUM_CHAIN_HOPS):
        holders = [holder for holder in gc.get_referrers(chain[-1]) if _belongs_to_program(holder, chain)]
        if not holders:
            break
        chain.append(holders[0])
        del holders  # the list would be a referrer itself at the next hop
    holders_outermost_first = chain[:0:-1]  # reversed, without the target
    lines = [f"{_describe_object(holder)}, to which no name leads" for holder in holders_outermost_first]
    return tuple(lines) if lines else (NO_PYTHON_HOLDER,)


def _belongs_to_program(holder: object, chain: list[Any]) -> bool:
    """Return whether a holder is new and the program's: not a frame or module, and neither `chain` nor in it."""
    is_new = holder is not chain and all(holder is not member for member in chain)
    return is_new and not is_a(holder, FrameType, ModuleType)
