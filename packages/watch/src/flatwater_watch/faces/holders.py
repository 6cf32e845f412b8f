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
NO_PYTHON_HOLDER = "native code, as no Python object does: a C extension, or a tensor's C++ part"


@dataclass(slots=True)
class _ReachedObject:
    obj: Any
    name: str
    """Its part of the path from the object above."""
    holder: "_ReachedObject | None"
    """The object that holds it; None for a root."""


def find_holder_chain(target: object, extra_roots: Sequence[tuple[str, object]] = ()) -> tuple[str, ...]:
    """The chain from a root to the object: root first, then each reference on the way, in a few words.

    The user's own names are tried first: globals, local variables of running functions, known registries. Then
    everything that any loaded module reaches.

    Args:
        target: the object. Variables of running functions that hold it are found too.
        extra_roots: further roots.
    """
    roots = Roots()
    modules = user_modules(roots)
    reached = _search_chain([*extra_roots, *named_roots(roots)], target, lambda cls: full_name(cls)[0] in modules)
    if reached is None:
        reached = _search_chain(_module_globals(), target, lambda _: True)
    return _referrer_chain(target) if reached is None else tuple(_chain_words(reached))


def _module_globals() -> Iterator[tuple[str, Any]]:
    """The globals of all loaded modules, of libraries too."""
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), ModuleType):
            yield from ((f"{name}.{key}", value) for key, value in named_entries(namespace(module)))


def _search_chain(
    roots: Iterable[tuple[str, Any]], target: object, may_open: Callable[[type], bool]
) -> _ReachedObject | None:
    """The target with its chain to a root; None if no root reaches it."""
    # Breadth-first, so the chain found is the shortest.
    walk = Walk(sys.maxsize, may_open, MAXIMUM_OBJECTS)
    queue: deque[_ReachedObject] = deque()
    opened: list[_ReachedObject] = []  # opened objects stay alive, so that no id is used again
    for name, obj in roots:
        reached = _ReachedObject(obj, name, None)
        if obj is target:
            return reached
        _enqueue_new_(walk, queue, reached)
    while queue and len(opened) < MAXIMUM_OBJECTS:
        holder = queue.popleft()
        opened.append(holder)
        if type(holder.obj) is Graph and _graph_saves(holder, target):
            return _ReachedObject(target, ".<saved>", holder)
        contents = open_object(holder.obj, walk)
        for name, obj in (*contents.parts, *contents.sampled):
            reached = _ReachedObject(obj, name, holder)
            if obj is target:
                return reached
            _enqueue_new_(walk, queue, reached)
    return None


def _graph_saves(place: _ReachedObject, target: object) -> bool:
    """Whether the graph of the tensor above saves the target for backward, which no Python reference shows."""
    return place.holder is not None and any(saved is target for saved in saved_tensors(place.holder.obj))


def _enqueue_new_(walk: Walk, queue: deque[_ReachedObject], place: _ReachedObject) -> None:
    """Put an object into the queue of objects to open, unless the walk has seen it."""
    if id(type(place.obj)) not in ATOM_TYPE_IDS and id(place.obj) not in walk.seen_ids:
        walk.seen_ids.add(id(place.obj))
        queue.append(place)


def _chain_words(place: _ReachedObject) -> list[str]:
    """A line for each reference, root first."""
    hops: list[str] = []
    node = place
    while node.holder is not None:
        hops.append(f"{_hop_words(node.name, node.holder.obj, node.obj)}: {_describe_object(node.obj)}")
        node = node.holder
    return [f"{_root_words(node.name)}: {_describe_object(node.obj)}", *reversed(hops)]


def _root_words(name: str) -> str:
    """A root in words: `test_env.CACHE` as `test_env.py, global CACHE`; other roots have names in words already."""
    module, _, variable = name.rpartition(".")
    file = (module_namespace(module) or {}).get("__file__")
    return name if type(file) is not str or " " in name else f"{Path(file).name}, global {variable}"


def _hop_words(name: str, holder: Any, obj: object) -> str:
    """A hop in words: `[*]` with the number or key, `.<closure of step>.env` as `env, in the closure of step`."""
    if name == "[*]":
        return f"[{_item_key(holder, obj)}]"
    if name.startswith(".<") and ">." in name:
        scope, _, variable = name[2:].partition(">.")
        return f"{variable}, in the {scope}"
    return name[2:-1] if name.startswith(".<") else name


def _item_key(holder: Any, obj: object) -> str:
    """The number or the key under which a container holds an object; `*` if it is not found."""
    if issubclass(type(holder), dict):
        pairs: list[tuple[Any, Any]] = read_stable(list, dict.items(holder))
        return next((_key_words(key) for key, value in pairs if value is obj), "*")
    for kind in (list, tuple, deque):
        if issubclass(type(holder), kind):
            return next(
                (str(index) for index, value in enumerate(read_stable(_container_pairs, kind, holder)) if value is obj),
                "*",
            )
    return "*"


def _container_pairs(kind: Any, holder: Any) -> list[Any]:
    return list(kind.__iter__(holder))


def _key_words(key: object) -> str:
    """A key in words: a number or a text as it is, other keys by their class."""
    # The `repr` of other keys is the program's code.
    return (
        repr(key)[:40]
        if any(type(key) is kind for kind in (int, str, float, bool, bytes))
        else f"a {class_name(type(key))}"
    )


def _describe_object(obj: object) -> str:
    """The class of an object, with the number of items of a builtin container."""
    if type(obj) is Graph:
        return "what backward needs"
    class_words = class_name(type(obj))
    for kind in (list, tuple, dict, set, frozenset, deque):
        if issubclass(type(obj), kind):
            return f"{class_words} of {kind.__len__(obj)}"  # type: ignore[arg-type]
    return class_words


def _referrer_chain(target: object) -> tuple[str, ...]:
    """The nearest holders that the collector knows, outermost first."""
    chain: list[Any] = [target]
    for _ in range(MAXIMUM_CHAIN_HOPS):
        above = [holder for holder in gc.get_referrers(chain[-1]) if _belongs_to_program(holder, chain)]
        if not above:
            break
        chain.append(above[0])
        del above  # the list would be a referrer itself at the next hop
    words = [f"{_describe_object(holder)}, to which no name leads" for holder in chain[:0:-1]]
    return tuple(words) if words else (NO_PYTHON_HOLDER,)


def _belongs_to_program(holder: object, chain: list[Any]) -> bool:
    """Whether a holder is the program's: neither a frame, as of this search, nor a list of the search itself."""
    return holder is not chain and not is_a(holder, FrameType, ModuleType) and all(holder is not c for c in chain)
