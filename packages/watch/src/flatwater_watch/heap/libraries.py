"""Containers that became longer where no root of the user's need reach them, by a name of what holds them.

A census of all that libraries hold would open hundreds of thousands of objects. So the collector is asked for the
containers that it knows, and only their lengths are kept. From those that are longer later the way goes up, through
what refers to them, to a global of a module, an attribute of a class, a function, a generator or a coroutine: these
have a name, whichever registry of the interpreter, or of C code, holds them.
"""

import gc
import sys
import types
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from flatwater_watch.heap.arrays import array_figures
from flatwater_watch.heap.children import item_counter
from flatwater_watch.heap.frozen import all_referrers, frozen_objects
from flatwater_watch.heap.functions import Cache, newest_results
from flatwater_watch.heap.locals import function_name
from flatwater_watch.heap.raw import (
    full_name,
    made_in_c,
    named_entries,
    namespace,
    own_size,
    plain_text,
    read_stable,
)
from flatwater_watch.heap.roots import OWN_PACKAGES, Roots, user_modules
from flatwater_watch.heap.view import OwnWeakref, evenly_spaced_slice

MINIMUM_ITEMS, MINIMUM_ITEMS_OF_MANY = 4, 64
"""Items from which on a container counts; the second number if there are very many objects."""
MANY_OBJECTS = 1_000_000
"""Objects of the collector, 200 ms of CPU, from which on only longer containers count."""
OBJECT_SECONDS = 4e-7
"""CPU seconds to look at one object of the collector: 2.5e-7 for tuples, 4e-7 for lists, 7e-7 for dicts."""
FROZEN_COST_RATIO = 3
"""CPU seconds to look at a frozen object, to which the way must be found first, in those of another object."""
READ_INSTANCES, MAXIMUM_OPENED, MAXIMUM_READ = 40, 200, 100_000
"""Instances of each class that are looked into for containers, as registries are few of a kind; items of a container
that is; and number of both together: 50 ms of CPU."""
MAXIMUM_WEIGHED, MAXIMUM_CLIMBED = 300, 24
"""Longer containers that are weighed, and the heaviest of them, whose names are looked for. That takes passes over all
objects, of 80 ms of CPU each with 360,000 objects."""
MAXIMUM_FRONTIER, MAXIMUM_PASSES = 48, 10
"""Objects whose referrers are looked for in one pass, and maximum passes; `moto` stores its objects five hops below
`s3_backends`."""
WEIGHED_ITEMS, WEIGHED_CHILDREN, WEIGHED_OBJECTS = 4, 8, 60
"""Newest items of a container that stand for those that came; children that stand for all of an object; and objects
below the items that are weighed."""
MINIMUM_SHARE = 0.01
"""Minimum share of the growth without an owner that all longer containers may explain, by a rough weight, for their
holders to be looked for: each program has some, and two more censuses delay what else may be found. Unmeasured."""
_OWN = frozenset(OWN_PACKAGES)


class ContainerLengths(NamedTuple):
    """The lengths of containers at one time, without a reference to any of them."""

    ids: "array[int]"
    """Ids of the containers, ascending."""
    lengths: "array[int]"
    """Number of items of each."""

    def length(self, container_id: int) -> int:
        """Number of items that a container had; 0 for a container that was shorter than the minimum, or not there."""
        at = bisect_left(self.ids, container_id)
        return self.lengths[at] if at < len(self.ids) and self.ids[at] == container_id else 0


class GrownHolders(NamedTuple):
    """What holds the containers that became longer."""

    holders: dict[str, Any]
    """By path: the value of a global or of a class's attribute; or a weak reference (`OwnWeakref`) to a function, a
    generator or a coroutine, as nothing of the program may live longer for it."""
    way_ids: frozenset[int]
    """Ids of the objects from the holders down to the containers."""


def expected_seconds() -> float:
    """CPU seconds that `heap_lengths` will take, by the number of objects."""
    return OBJECT_SECONDS * (len(gc.get_objects()) + FROZEN_COST_RATIO * gc.get_freeze_count())


def heap_lengths() -> ContainerLengths:
    """The lengths of all containers, but for short ones."""
    # Runs no code of the watched program, and keeps no object of it.
    lengths = {id(container): count for container, count in _containers_with_counts(frozen_objects())}
    ids = array("Q", sorted(lengths))
    return ContainerLengths(ids, array("Q", map(lengths.__getitem__, ids)))


def grown_holders(
    before: ContainerLengths, roots: Roots, known_ids: Collection[int] = (), missing_bytes: float = 0.0
) -> GrownHolders:
    """What holds the heaviest of the containers that became longer, or are new.

    Args:
        before: lengths at an earlier time.
        roots: choice of roots; globals of the user's modules are left out, as each census begins at them.
        known_ids: ids of containers that a census has reached from other roots.
        missing_bytes: bytes that came since then and have no owner; nothing is returned if the containers are no
            match for them.
    """
    # Runs no code of the watched program.
    # A short container that was not there is mostly a part of a new object: it counts like one item.
    gains: list[tuple[int, Any]] = []
    frozen = frozen_objects()
    spaces = _class_spaces(frozen) | {id(space): name for name, space in reversed(_module_spaces().items())}
    for container, count in _containers_with_counts(frozen):
        length = before.length(id(container))
        if count > length and id(container) not in known_ids and id(container) not in spaces:
            is_part = length == 0 and count < MINIMUM_ITEMS_OF_MANY
            gains.append((1 if is_part else count - length, container))
    gains.sort(key=_gain, reverse=True)
    del gains[MAXIMUM_WEIGHED:]
    gains = [(gain * _item_bytes(container), container) for gain, container in gains]
    gains.sort(key=_gain, reverse=True)
    is_match = sum(map(_gain, gains)) >= MINIMUM_SHARE * missing_bytes
    containers = [container for _, container in gains[:MAXIMUM_CLIMBED]] if is_match else []
    gains.clear()  # it would be a referrer of each
    if not containers:
        return GrownHolders({}, frozenset())
    return _climb(containers, spaces, user_modules(roots), frozen)


def _gain(entry: tuple[int, Any]) -> int:
    return entry[0]


def _containers_with_counts(frozen: list[Any]) -> Iterator[tuple[Any, int]]:
    """Yield each container with its number of items, but for short ones; buffers are containers of numbers."""
    objects = gc.get_objects()
    objects += frozen
    minimum = MINIMUM_ITEMS if len(objects) < MANY_OBJECTS else MINIMUM_ITEMS_OF_MANY
    counters: dict[int, Callable[[Any], int] | None] = {}
    instances_left: dict[int, int] = {}  # by the id of a class whose instances are read
    holders: list[Any] = list(_module_spaces().values())
    most_holders = len(holders) + MAXIMUM_READ
    counter_of = counters.get
    for obj, kind_id in zip(objects, map(id, map(type, objects)), strict=True):  # by C code: this runs for each object
        counter = counter_of(kind_id, _not_met)
        if counter is None:
            continue
        if counter is _not_met:
            kind = type(obj)
            counter = counters[kind_id] = item_counter(kind) or (None if made_in_c(kind) else _no_items)
            instances_left[kind_id] = READ_INSTANCES if counter is _no_items else MAXIMUM_READ
            if counter is None:
                continue
        count = counter(obj)
        if count >= minimum:
            yield obj, count
        if count <= MAXIMUM_OPENED and len(holders) < most_holders and instances_left[kind_id]:
            instances_left[kind_id] -= 1
            holders.append(obj)
    objects.clear()
    # The collector does not know buffers, nor dicts without a container in them: they are found in what holds them.
    seen_ids = set[int]()
    for obj in gc.get_referents(*holders):
        is_unknown = (type(obj) is dict or type(obj) is bytearray) and not gc.is_tracked(obj)
        if is_unknown and len(obj) >= minimum and id(obj) not in seen_ids:
            seen_ids.add(id(obj))
            yield obj, len(obj)


def _not_met(_obj: object) -> int:
    """The mark of a class that was not met before."""
    raise AssertionError


def _no_items(_obj: object) -> int:
    """The number of items of an instance, which is no container."""
    return 0


def _module_spaces() -> dict[str, dict[str, Any]]:
    """The namespace of each loaded module, by its name."""
    modules = list(sys.modules.items())  # a copy: other threads may import meanwhile
    return {
        name: namespace(module)
        for name, module in modules
        if type(name) is str and issubclass(type(module), types.ModuleType)
    }


def _item_bytes(container: Any) -> int:
    """Rough mean bytes of an item of a container with what it refers to, by its newest; 1 for numbers in a buffer.

    Of very many children a few stand for all; what several items share counts once.
    """
    items = read_stable(_newest, container)
    seen_ids, size = set[int](), 0.0
    weighted: list[tuple[Any, float]] = [(item, 1.0) for item in items]
    for obj, weight in weighted:  # the list grows on the way: breadth first
        if id(obj) in seen_ids or issubclass(type(obj), (types.ModuleType, types.FunctionType, types.FrameType)):
            continue
        seen_ids.add(id(obj))
        figures = array_figures(obj)
        size += weight * (own_size(obj) + (0 if figures is None else figures.bytes))
        if len(weighted) < WEIGHED_OBJECTS and not issubclass(type(obj), type):
            children = gc.get_referents(obj)
            drawn = children[evenly_spaced_slice(len(children), WEIGHED_CHILDREN)]
            weighted += [(child, weight * len(children) / len(drawn)) for child in drawn]
    return round(size) // len(items) if items else 1


def _newest(container: Any) -> list[Any]:
    """The newest items of a container, values of dicts; any of a set; empty for a buffer. Called by `read_stable`."""
    kind = type(container)
    if issubclass(kind, list):
        return list.__getitem__(container, slice(-WEIGHED_ITEMS, None))
    if issubclass(kind, deque):
        return list(islice(reversed(container) if kind is deque else (), WEIGHED_ITEMS))
    if issubclass(kind, dict):
        return [part for entry in islice(reversed(dict.items(container)), WEIGHED_ITEMS) for part in entry]
    if issubclass(kind, set):
        return list(islice(set.__iter__(container), WEIGHED_ITEMS))
    return [value for _, value in newest_results(container, WEIGHED_ITEMS)] if kind is Cache else []


def _climb(
    containers: list[Any], spaces: Mapping[int, str], of_user: Collection[str], frozen: list[Any]
) -> GrownHolders:
    """The holders of containers, found hop by hop through what refers to them, until each has a name.

    Args:
        containers: containers without a name, heaviest first.
        spaces: names of modules and classes by the id of their namespaces.
        of_user: names of the user's modules.
        frozen: frozen objects.
    """
    holders: dict[str, Any] = {}
    passed = {id(container): container for container in containers}
    ranks = {id(container): {rank} for rank, container in enumerate(containers)}  # of containers, by objects above them
    unnamed = set(range(len(containers)))
    waiting = containers  # nearest to the containers first
    for _ in range(MAXIMUM_PASSES):
        frontier, waiting = waiting[:MAXIMUM_FRONTIER], waiting[MAXIMUM_FRONTIER:]
        frontier_ids = set(map(id, frontier))
        own_ids = {id(own) for own in (frontier, waiting, containers, passed, frozen)}
        for referrer in all_referrers(frontier, frozen):
            if id(referrer) in own_ids or issubclass(type(referrer), types.FrameType):  # frames are roots of their own
                continue
            below = frontier_ids.intersection(map(id, gc.get_referents(referrer)))
            held = set[int]().union(*(ranks[child] for child in below))
            named = None if id(referrer) in ranks else _name_holder(referrer, spaces, of_user, below)
            if named is not None:
                holders |= named
                unnamed -= held
            elif not held <= ranks.get(id(referrer), set()):  # on the way of a further container, or of its first one
                ranks.setdefault(id(referrer), set()).update(held)
                passed[id(referrer)] = referrer
                waiting.append(referrer)
        waiting = [referrer for referrer in waiting if not unnamed.isdisjoint(ranks[id(referrer)])]
        if not waiting:
            break
    of_program = {path: holder for path, holder in holders.items() if path.partition(".")[0] not in _OWN}
    return GrownHolders(of_program, frozenset(passed))


def _name_holder(
    holder: Any, spaces: Mapping[int, str], of_user: Collection[str], below: Collection[int]
) -> dict[str, Any] | None:
    """What an object with a name holds of the objects below it, by path; None for an object without a name.

    Args:
        holder: object that refers to some of them.
        spaces: names of modules and classes by the id of their namespaces.
        of_user: names of the user's modules, whose globals are left out.
        below: ids of the objects on the way up that it refers to.
    """
    name = spaces.get(id(holder))
    if name is not None:
        return {} if name in of_user else _named_values(name, named_entries(holder), below)
    path = _code_path(holder)
    return None if path is None else {path: OwnWeakref(holder)}


def _class_spaces(frozen: list[Any]) -> dict[int, str]:
    """The names of all classes by the id of their namespaces; `frozen` has the frozen objects."""
    # No `[*gc.get_objects(), ...]`: that list is among the objects, and would hold itself until a collection.
    classes = [obj for objects in (gc.get_objects(), frozen) for obj in objects if issubclass(type(obj), type)]
    return {
        id(space): ".".join(full_name(cls)) for cls in classes for space in gc.get_referents(cls) if type(space) is dict
    }


def _named_values(space: str, entries: list[tuple[str, Any]], wanted_ids: Collection[int]) -> dict[str, Any]:
    """The wanted values of a namespace by path, without special names."""
    return {
        f"{space}.{name}": value for name, value in entries if id(value) in wanted_ids and not name.startswith("__")
    }


def _code_path(holder: Any) -> str | None:
    """The path of a function, a generator or a coroutine: module and qualified name; None for other objects."""
    kind = type(holder)
    if kind is types.FunctionType:
        code, names = holder.__code__, holder.__globals__
    else:
        prefix = _FRAME_PREFIXES.get(id(kind))
        frame = None if prefix is None else getattr(holder, f"{prefix}_frame")
        if frame is None:
            return None
        code, names = frame.f_code, frame.f_globals
    return f"{plain_text(names.get('__name__'), '<module>')}.{function_name(code)}"


_FRAME_PREFIXES = {
    id(types.GeneratorType): "gi",
    id(types.CoroutineType): "cr",
    id(types.AsyncGeneratorType): "ag",
}
"""First letters of the attributes of what waits, by the id of its class."""
