"""The search in the whole heap, libraries included, for containers that became longer, and for their named holders.

A census of all that libraries hold would open hundreds of thousands of objects. So the garbage collector is asked for
the containers that it knows, and only their lengths are kept. Later the search climbs from longer containers, through
the objects that refer to them, to an object with a name: a global of a module, an attribute of a class, a function, a
generator or a coroutine. These have a name, whichever registry of the interpreter, or of C code, holds them.

Two kinds of objects are missing in `gc.get_objects`: frozen ones, which `gc.freeze` has set aside, and untracked ones,
such as dicts of numbers, which cannot be part of a cycle. Both are found in the objects that refer to them. A namespace
(or space) is the dict of a module's globals or of a class's attributes.
"""

import gc
import sys
import types
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, NamedTuple

from flatwater_watch.heap.arrays import array_figures
from flatwater_watch.heap.containers import item_counter
from flatwater_watch.heap.functions import Cache, newest_results
from flatwater_watch.heap.locals import function_name
from flatwater_watch.heap.raw import (
    full_name,
    loaded_modules,
    made_in_c,
    named_entries,
    namespace,
    namespace_value,
    own_size,
    plain_text,
    read_stable,
)
from flatwater_watch.heap.roots import OWN_PACKAGES, Roots, user_modules
from flatwater_watch.heap.view import OwnWeakref, evenly_spaced_slice
from flatwater_watch.meters.system_calls import monotonic
from flatwater_watch.thresholds import OWNING

MINIMUM_ITEMS, MINIMUM_ITEMS_OF_MANY = 4, 64
"""Items from which on a container counts; the second number if there are very many objects."""
MANY_OBJECTS = 1_000_000
"""Objects of the collector, 200 ms of CPU, from which on only longer containers count."""
OBJECT_SECONDS = 4e-7
"""CPU seconds to look at one object of the collector: 2.5e-7 for tuples, 4e-7 for lists, 7e-7 for dicts."""
COUNT_BLOCK_SECONDS = 4e-8
"""CPU seconds to list and count the objects of the collector, for each block of Python's allocator, of which an object
has one or more: 600,000 nested lists have 1.5 million blocks, and are counted in 15 to 35 ms."""
FROZEN_COST_RATIO = 3
"""CPU seconds to look at a frozen object, to which the way must be found first, in those of another object."""
CLIMB_RATIO = 2.5
"""CPU seconds to find the holders of longer containers, in those of `heap_lengths`: 0.33 beside 0.13."""
READ_INSTANCES, MAXIMUM_OPENED, MAXIMUM_READ = 40, 200, 100_000
"""Limits of the search for untracked containers: instances of a class (registries have few), items of a container that
is read, and instances and containers together, which take 50 ms of CPU."""
MAXIMUM_WEIGHED, MAXIMUM_CLIMBED = 300, 24
"""Maximum longer containers that are weighed, and the heaviest of them, whose holders are looked for."""
MAXIMUM_FRONTIER, MAXIMUM_PASSES = 48, 10
"""Maximum objects whose referrers are looked for in one pass over all objects, and maximum passes: one takes 80 ms of
CPU with 360,000 objects. `moto` stores its objects five hops below `s3_backends`."""
MAXIMUM_CLIMB_SECONDS = 1.0
"""Seconds after which no further pass begins: beside 480 threads, which take the interpreter in turn, one climb of few
CPU seconds lasted 6.7 s."""
WEIGHED_ITEMS, WEIGHED_CHILDREN, WEIGHED_OBJECTS = 4, 8, 60
"""Newest items that stand for all new items of a container; children that stand for all of an object; and objects
below the items that are weighed."""
MINIMUM_SHARE = 0.01
"""Minimum share of the growth without an owner that all longer containers may explain, by a rough weight, for their
holders to be looked for: each program has some, and two more censuses delay other findings. Unmeasured."""
_OWN = frozenset(OWN_PACKAGES)


_SKIPPED_TYPE_IDS = frozenset(map(id, (
    types.BuiltinFunctionType, types.CellType, types.CodeType, types.FrameType, types.FunctionType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType, types.MethodType,
    types.ModuleType, types.WrapperDescriptorType, classmethod, property, staticmethod,
)))  # fmt: skip
"""Ids of classes that are not searched for frozen objects: most objects are of these, and hardly any container that
grows is held by them."""


class ContainerLengths(NamedTuple):
    """The lengths of containers at one time, without a reference to any of them."""

    ids: "array[int]"
    """Ids of the containers, ascending."""
    lengths: "array[int]"
    """Number of items of each."""

    def length(self, container_id: int) -> int:
        """Return the number of items that a container had; 0 if it was shorter than the minimum, or not there."""
        index = bisect_left(self.ids, container_id)
        is_known = index < len(self.ids) and self.ids[index] == container_id
        return self.lengths[index] if is_known else 0


class GrownHolders(NamedTuple):
    """The named holders of the containers that became longer."""

    holders: dict[str, Any]
    """Holders by path: the value of a global or of a class's attribute; or a weak reference (`OwnWeakref`) to a
    function, a generator or a coroutine, as nothing of the program may live longer for it."""
    must_open_ids: frozenset[int]
    """Ids of the objects on the way from the holders down to the containers, both included."""


class HeapPrice:
    """The CPU seconds that `heap_lengths` takes, by the number of objects, which is counted seldom: it takes long."""

    def __init__(self) -> None:
        self._needed_seconds = 0.0
        """CPU seconds that it takes by the last count; 0 before the first."""

    def update_and_check_(self, seconds: float) -> bool:
        """Return whether `heap_lengths` takes at most `seconds` of CPU time.

        Counting takes long itself: the objects are counted anew only if the seconds suffice for that, and by the last
        count also for `heap_lengths`.
        """
        # The allocator knows its number of blocks without counting.
        if seconds >= max(self._needed_seconds, COUNT_BLOCK_SECONDS * sys.getallocatedblocks()):
            self._needed_seconds = OBJECT_SECONDS * (len(gc.get_objects()) + FROZEN_COST_RATIO * gc.get_freeze_count())
            return self._needed_seconds <= seconds
        return False


def heap_lengths() -> ContainerLengths:
    """Return the lengths of all containers with `MINIMUM_ITEMS` or more (in a large heap `MINIMUM_ITEMS_OF_MANY`)."""
    # Runs no code of the watched program, and keeps no object of it.
    lengths = {id(container): count for container, count in _containers_with_counts(frozen_objects())}
    ids = array("Q", sorted(lengths))  # "Q": unsigned, 64 bits
    return ContainerLengths(ids, array("Q", map(lengths.__getitem__, ids)))


def frozen_objects() -> list[Any]:
    """Return the objects that `gc.freeze`, which servers call before a fork, has taken from `gc.get_objects`.

    Only those are found that modules reach without passing through functions; none if nothing is frozen.
    """
    # Runs no code of the watched program.
    if not gc.get_freeze_count():
        return []
    # Breadth-first from the modules. Objects of the skipped types, such as functions, rarely hold growing containers.
    seen_ids = set(map(id, gc.get_objects()))
    level: list[Any] = [sys.modules, *sys.modules.values()]
    frozen: list[Any] = []
    while level:  # without a limit, so that two searches find the same objects
        children_by_id = {id(obj): obj for obj in gc.get_referents(*level) if id(type(obj)) not in _SKIPPED_TYPE_IDS}
        level = [obj for obj_id, obj in children_by_id.items() if obj_id not in seen_ids and gc.is_tracked(obj)]
        seen_ids.update(map(id, level))
        frozen += level
    # Objects that were made meanwhile, by this search or another thread, are not frozen: the collector lists them.
    known_ids = set(map(id, gc.get_objects()))
    return [obj for obj in frozen if id(obj) not in known_ids]


def all_referrers(objects: list[Any], frozen: list[Any]) -> list[Any]:
    """Return the objects that refer to any of `objects`: those that the collector lists, and those of `frozen`."""
    # Runs no code of the watched program.
    ids = set(map(id, objects))
    return gc.get_referrers(*objects) + [obj for obj in frozen if not ids.isdisjoint(map(id, gc.get_referents(obj)))]


def grown_holders(
    earlier_lengths: ContainerLengths, roots: Roots, known_ids: Collection[int] = (), missing_bytes: float = 0.0
) -> GrownHolders:
    """Find the named holders of the heaviest containers that became longer, or are new.

    Args:
        earlier_lengths: lengths at an earlier time.
        roots: choice of roots; globals of the user's modules are left out, as each census begins at them.
        known_ids: ids of containers that a census has reached from other roots.
        missing_bytes: bytes without an owner that came after `earlier_lengths` was taken. If the containers gained less
            than `MINIMUM_SHARE` of them, no holder is returned.
    """
    # Runs no code of the watched program.
    frozen = frozen_objects()
    # Names of namespaces by id. Modules come reversed, so that a module with two names gets the first.
    namespace_names = _class_spaces(frozen) | {id(space): name for name, space in reversed(_module_spaces().items())}
    item_gains = _largest_gains(earlier_lengths, frozen, known_ids, namespace_names)
    byte_gains = [(gain * _mean_item_bytes(container), container) for gain, container in item_gains]
    byte_gains.sort(key=_gain, reverse=True)
    is_enough = sum(map(_gain, byte_gains)) >= MINIMUM_SHARE * missing_bytes
    containers = [container for _, container in byte_gains[:MAXIMUM_CLIMBED]] if is_enough else []
    gained_bytes = list(map(_gain, byte_gains[:MAXIMUM_CLIMBED]))
    # Findings explain growth from this share on: the holders of the rest need not be found.
    spare_bytes = (1 - OWNING.explained_share) * min(sum(gained_bytes), missing_bytes)
    # These lists would be among the objects that refer to the containers.
    item_gains.clear()
    byte_gains.clear()
    if not containers:
        return GrownHolders({}, frozenset())
    named_holders = _find_named_holders(
        containers, gained_bytes, namespace_names, user_modules(roots), frozen, spare_bytes=spare_bytes
    )
    program_holders = {  # without those in Flatwater's own packages
        path: holder for path, holder in named_holders.holders.items() if path.partition(".")[0] not in _OWN
    }
    return named_holders._replace(holders=program_holders)


def _largest_gains(
    earlier_lengths: ContainerLengths, frozen: list[Any], known_ids: Collection[int], namespace_ids: Collection[int]
) -> list[tuple[int, Any]]:
    """Return the `MAXIMUM_WEIGHED` containers that gained most items, as pairs of gain and container, largest first.

    Containers that a census knows and namespaces, both given by their ids, are left out.
    """
    gains: list[tuple[int, Any]] = []
    for container, count in _containers_with_counts(frozen):
        earlier_count = earlier_lengths.length(id(container))
        if count > earlier_count and id(container) not in known_ids and id(container) not in namespace_ids:
            # A short container that was not there is mostly a part of a new object: it counts like one item.
            is_new_and_short = earlier_count == 0 and count < MINIMUM_ITEMS_OF_MANY
            gains.append((1 if is_new_and_short else count - earlier_count, container))
    gains.sort(key=_gain, reverse=True)
    del gains[MAXIMUM_WEIGHED:]
    return gains


def _gain(gain_and_container: tuple[int, Any]) -> int:
    return gain_and_container[0]


def _containers_with_counts(frozen: list[Any]) -> Iterator[tuple[Any, int]]:
    """Yield each container or buffer of the heap that is not short, with its number of items.

    The containers among `frozen`, and those that hold no other object and so are not listed by the collector, are
    included. Each class is looked at once, as this runs over all objects of the program.
    """
    objects = gc.get_objects()
    objects += frozen
    minimum = MINIMUM_ITEMS if len(objects) < MANY_OBJECTS else MINIMUM_ITEMS_OF_MANY
    # A function for each class, by the id of the class, that counts the items of an instance: None for a class to be
    # skipped, `_no_items` for a class written in Python, whose instances are read for the containers that they hold.
    counters: dict[int, Callable[[Any], int] | None] = {}
    reads_left: dict[int, int] = {}  # instances of a class that may still be read, by its id
    holders: list[Any] = list(_module_spaces().values())  # objects to be read for untracked containers
    maximum_holders = len(holders) + MAXIMUM_READ
    find_counter = counters.get
    for obj, kind_id in zip(objects, map(id, map(type, objects)), strict=True):  # by C code: this runs for each object
        counter = find_counter(kind_id, _new_class)
        if counter is None:
            continue
        if counter is _new_class:  # the first object of its class: choose the class's counter
            kind = type(obj)
            counter = counters[kind_id] = item_counter(kind) or (None if made_in_c(kind) else _no_items)
            reads_left[kind_id] = READ_INSTANCES if counter is _no_items else MAXIMUM_READ
            if counter is None:
                continue
        count = counter(obj)
        if count >= minimum:
            yield obj, count
        # Short containers and instances may hold untracked ones.
        if count <= MAXIMUM_OPENED and len(holders) < maximum_holders and reads_left[kind_id]:
            reads_left[kind_id] -= 1
            holders.append(obj)
    objects.clear()  # it holds all objects of the program
    yield from _untracked_containers(holders, minimum)


def _untracked_containers(holders: list[Any], minimum: int) -> Iterator[tuple[Any, int]]:
    """Yield the dicts and buffers with `minimum` items or more that the collector does not list, each with its length.

    Buffers, and dicts without a container in them, are found only in the objects that hold them.
    """
    seen_ids = set[int]()
    for obj in gc.get_referents(*holders):
        is_untracked = (type(obj) is dict or type(obj) is bytearray) and not gc.is_tracked(obj)
        if is_untracked and len(obj) >= minimum and id(obj) not in seen_ids:
            seen_ids.add(id(obj))
            yield obj, len(obj)


def _new_class(_obj: object) -> int:
    """Mark, in place of a counter, a class that was not met before; this is never called."""
    raise AssertionError


def _no_items(_obj: object) -> int:
    """Return 0, the number of items of an instance that is no container."""
    return 0


def _module_spaces() -> dict[str, dict[str, Any]]:
    """Return the namespace of each loaded module by the module's name."""
    return {name: namespace(module) for name, module in loaded_modules().items()}


def _mean_item_bytes(container: Any) -> int:
    """Estimate the mean bytes of a container's item, with the objects below it, from its newest items.

    A few children stand for all of a large object; an object that several items share counts once. A container without
    objects as items, such as a buffer, has 1 byte for each.
    """
    items = read_stable(_newest_items, container)
    seen_ids, size = set[int](), 0.0
    # Each object with the number of objects that it stands for.
    weighted_objects: list[tuple[Any, float]] = [(item, 1.0) for item in items]
    for obj, weight in weighted_objects:  # the list grows inside the loop: breadth-first
        # Modules, functions and frames are no part of an item: they lead to most of the program.
        if id(obj) in seen_ids or issubclass(type(obj), (types.ModuleType, types.FunctionType, types.FrameType)):
            continue
        seen_ids.add(id(obj))
        figures = array_figures(obj)
        size += weight * (own_size(obj) + (0 if figures is None else figures.bytes))
        # What a class refers to belongs to no single item.
        if len(weighted_objects) < WEIGHED_OBJECTS and not issubclass(type(obj), type):
            children = gc.get_referents(obj)
            sample = children[evenly_spaced_slice(len(children), WEIGHED_CHILDREN)]
            weighted_objects += [(child, weight * len(children) / len(sample)) for child in sample]
    return round(size) // len(items) if items else 1


def _newest_items(container: Any) -> list[Any]:
    """Return the newest items of a container, keys and values of a dict, any items of a set, nothing of a buffer."""
    # Called by `read_stable`: C code alone, as another thread may change the container.
    kind = type(container)
    if issubclass(kind, list):
        return list.__getitem__(container, slice(-WEIGHED_ITEMS, None))
    if issubclass(kind, deque):  # a subclass may have a `__reversed__` of its own, which is not called
        return list(islice(reversed(container) if kind is deque else (), WEIGHED_ITEMS))
    if issubclass(kind, dict):
        return [part for entry in islice(reversed(dict.items(container)), WEIGHED_ITEMS) for part in entry]
    if issubclass(kind, set):
        return list(islice(set.__iter__(container), WEIGHED_ITEMS))
    if kind is Cache:
        return [result for _, result in newest_results(container, WEIGHED_ITEMS)]
    return []  # of a buffer


def _find_named_holders(
    containers: list[Any],
    gained_bytes: Sequence[int],
    namespace_names: Mapping[int, str],
    user_names: Collection[str],
    frozen: list[Any],
    *,
    spare_bytes: float,
) -> GrownHolders:
    """Climb from containers, heaviest first, through the objects that refer to them, until most have a named holder.

    Each pass looks for the objects that refer to those of the frontier. A referrer with a name is a holder of the
    containers below it; any other referrer waits for a pass of its own. The climb ends when the containers without a
    holder have at most `spare_bytes`. Containers are given by indexes into `containers` and `gained_bytes`.
    """
    holders, unnamed_indexes = dict[str, Any](), set(range(len(containers)))
    passed_by_id = {id(container): container for container in containers}
    # The containers that lie below each object passed, by the object's id.
    lower_indexes = {id(container): {index} for index, container in enumerate(containers)}
    waiting_objects = containers  # in order of the heaviest container, without a holder yet, that lies below each
    for _ in _climbing_passes():
        frontier, waiting_objects = waiting_objects[:MAXIMUM_FRONTIER], waiting_objects[MAXIMUM_FRONTIER:]
        frontier_ids = set(map(id, frontier))
        # The lists and dicts of this search refer to the objects too.
        own_ids = {id(own) for own in (frontier, waiting_objects, containers, passed_by_id, frozen)}
        for referrer in all_referrers(frontier, frozen):
            if id(referrer) in own_ids or issubclass(type(referrer), types.FrameType):  # frames are roots of their own
                continue
            child_ids = frontier_ids.intersection(map(id, gc.get_referents(referrer)))
            indexes = set[int]().union(*(lower_indexes[child_id] for child_id in child_ids))
            is_new = id(referrer) not in lower_indexes
            found_holders = _find_holder_paths(referrer, namespace_names, user_names, child_ids) if is_new else None
            if found_holders is not None:  # the referrer has a name: the climb ends here
                holders |= found_holders
                unnamed_indexes -= indexes
            elif not indexes <= lower_indexes.get(id(referrer), set()):  # else passed before, from these containers
                lower_indexes.setdefault(id(referrer), set()).update(indexes)
                passed_by_id[id(referrer)] = referrer
                waiting_objects.append(referrer)
        waiting_objects = [obj for obj in waiting_objects if not unnamed_indexes.isdisjoint(lower_indexes[id(obj)])]
        waiting_objects.sort(key=lambda obj: min(lower_indexes[id(obj)] & unnamed_indexes))
        unnamed_bytes = sum(gained_bytes[index] for index in unnamed_indexes)
        if not waiting_objects or unnamed_bytes <= spare_bytes:
            break
    return GrownHolders(holders, frozenset(passed_by_id))


def _climbing_passes() -> Iterator[int]:
    """Yield the numbers of the passes, until they are `MAXIMUM_PASSES` or have taken `MAXIMUM_CLIMB_SECONDS`."""
    deadline = monotonic() + MAXIMUM_CLIMB_SECONDS
    return takewhile(lambda _: monotonic() < deadline, range(MAXIMUM_PASSES))


def _find_holder_paths(
    holder: Any, namespace_names: Mapping[int, str], user_names: Collection[str], child_ids: Collection[int]
) -> dict[str, Any] | None:
    """Return named holders by path: the values of a namespace, or a function or generator; None for other objects.

    Of a namespace those values are returned that are among `child_ids`, and of a user's module none, as the census
    begins at it anyway. A function or generator is held by a weak reference. After None the climb goes on.
    """
    name = namespace_names.get(id(holder))
    if name in user_names:
        return {}
    if name is not None:
        return _named_values(name, named_entries(holder), child_ids)
    path = _code_path(holder)
    return None if path is None else {path: OwnWeakref(holder)}


def _class_spaces(frozen: list[Any]) -> dict[int, str]:
    """Return the full name of each class, those of `frozen` included, by the id of its namespace."""
    # No `[*gc.get_objects(), ...]`: that list is among the objects, and would hold itself until a collection.
    classes = [obj for objects in (gc.get_objects(), frozen) for obj in objects if issubclass(type(obj), type)]
    names = dict[int, str]()
    for cls in classes:
        spaces = [referent for referent in gc.get_referents(cls) if type(referent) is dict]
        names.update((id(space), ".".join(full_name(cls))) for space in spaces)
    return names


def _named_values(prefix: str, entries: list[tuple[str, Any]], wanted_ids: Collection[int]) -> dict[str, Any]:
    """Return the values of a namespace that have wanted ids, by path (`prefix.name`), without special names."""
    return {
        f"{prefix}.{name}": value for name, value in entries if id(value) in wanted_ids and not name.startswith("__")
    }


def _code_path(holder: Any) -> str | None:
    """Return the path of a function, a generator or a coroutine, such as `module.Class.method`; None for other objects.

    A generator or coroutine that has ended has none.
    """
    kind = type(holder)
    if kind is types.FunctionType:
        code, module_globals = holder.__code__, holder.__globals__
    else:
        prefix = _FRAME_PREFIXES.get(id(kind))
        frame = None if prefix is None else getattr(holder, f"{prefix}_frame")
        if frame is None:
            return None
        code, module_globals = frame.f_code, frame.f_globals
    return f"{plain_text(namespace_value(module_globals, '__name__'), '<module>')}.{function_name(code)}"


_FRAME_PREFIXES = {
    id(types.GeneratorType): "gi",
    id(types.CoroutineType): "cr",
    id(types.AsyncGeneratorType): "ag",
}
"""Prefixes of attributes such as `gi_frame`, by the id of the class."""
