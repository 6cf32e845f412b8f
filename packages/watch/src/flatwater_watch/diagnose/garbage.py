"""The search for cyclic garbage: objects that nobody reaches and that wait for a collection.

No collection is made, as it would run the program's finalizers and free the objects to report. Instead the search does
the collector's own arithmetic in a fork: an object whose references all come from other tracked objects is garbage,
unless an object that is held from outside reaches it. Tracked are objects that may lie on a cycle: the collector lists
them, and leaves out numbers, texts and most arrays (untracked). Young are objects of its youngest generation. A number
or a short text is an atom.
"""

import gc
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from heapq import nlargest
from itertools import accumulate, chain, islice, repeat
from typing import Any, NamedTuple

from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.heap.children import ATOM_TYPE_IDS, open_object
from flatwater_watch.heap.raw import (
    LIST_REFCOUNT,
    class_name,
    count_values,
    full_name,
    is_a,
    module_namespace,
    own_size,
)
from flatwater_watch.heap.roots import Roots, user_modules
from flatwater_watch.heap.view import Walk, allocated_size, evenly_spaced_slice
from flatwater_watch.meters.fork import DetachedFork
from flatwater_watch.thresholds import COLLECTING

MAIN_SHARE, MAXIMUM_RANKED = 0.8, 1000
"""Share of the garbage's bytes whose line is looked up, and the maximum number of objects, the largest first."""


DRAWN_ATOMS = 24
"""Number of referents of an object that are sampled for atoms that the object alone holds."""


class Garbage(NamedTuple):
    """The objects that a collection would free."""

    bytes: int
    objects: int
    """Number of tracked objects."""
    what: str
    """Count and class of the most frequent objects, the user's classes first."""
    made_at: AllocationSite | None
    """The line that made most of its bytes; None if no trace knows it."""
    collector_is_on: bool
    """Whether the collector was on."""
    cycle: tuple[str, ...] = ()
    """One of the cycles: class and attribute of each object of the program on it."""
    young_bytes: int = 0
    """Bytes that the next collection of young objects would free now; 0 if the collector is off."""
    forecast_young_bytes: int = 0
    """Forecast of `young_bytes` when that collection comes, if garbage keeps coming as since the last collection."""
    bytes_since_collection: int = 0
    """Bytes that no collection has seen yet, whether the collector is on or not."""
    bytes_per_object: int = 0
    """Bytes of all garbage per object of the most frequent class."""
    is_frozen: bool = False
    """Whether `gc.freeze` hides most of it from the collector, which never frees it."""

    def is_ordinary_gc_backlog(self, swing: float, largest_fall: float = 0.0) -> bool:
        """Return whether this garbage is harmless: small, or freed by the next collection before it is large.

        Args:
            swing: most minus least unaccounted bytes of the process so far: about the garbage that gathers between two
                collections, if garbage is most of them.
            largest_fall: most bytes by which the process fell between two readings.
        """
        is_mostly_young = 2 * self.young_bytes > self.bytes
        is_freed_soon = is_mostly_young and (
            self._expected_young_bytes(swing, largest_fall) < COLLECTING.reported_young_bytes
        )
        is_small = self.collector_is_on and self.bytes < COLLECTING.harmless_bytes
        return not self.is_frozen and (is_freed_soon or is_small)

    def _expected_young_bytes(self, swing: float, largest_fall: float) -> float:
        """Return a forecast of the bytes of young garbage at the time when the next collection frees it.

        It is at least the bytes now, and at most `COLLECTING.maximum_wave_ratio` times as many.
        """
        # If one collection has already freed half of today's young bytes, the swing is the better forecast. The other
        # one counts new objects, and is too large as the collector's count falls with each object that is freed.
        has_freed_half = 2 * largest_fall >= self.young_bytes
        forecast_bytes = swing if has_freed_half else max(swing, self.forecast_young_bytes)
        return max(self.young_bytes, min(forecast_bytes, COLLECTING.maximum_wave_ratio * self.young_bytes))

    @property
    def is_suspect(self) -> bool:
        """Whether this may be the growth: most of it came since the last collection, or collections never free it."""
        return self.is_frozen or 2 * self.bytes_since_collection > self.bytes

    @property
    def may_be_reported(self) -> bool:
        """Whether this garbage may become large enough to be reported, before a collection frees it."""
        # Without young bytes, no collection of young objects frees any of it.
        return not self.young_bytes or COLLECTING.maximum_wave_ratio * self.bytes >= COLLECTING.reported_young_bytes


class GarbageSearch:
    """A search for cyclic garbage in a fork, while the program goes on."""

    def __init__(self, roots: Roots, tracer: Tracer | None = None, *, unfreezes: bool = False) -> None:
        """Begin the search in a fork, for which the program pauses for 20 to 65 ms with a million objects.

        The search takes 3 CPU seconds per million objects. Pages that either side writes to meanwhile are copied, so
        there must be free memory below the limit.

        Args:
            roots: choice of roots, which decides whose classes are the user's.
            tracer: tracer that runs, whose records give the line of the garbage; None without a trace.
            unfreezes: whether objects that `gc.freeze` hides from the collector are searched as well.

        Raises:
            OSError: there is no memory for a fork.
        """
        self._fork = DetachedFork(partial(_search_garbage, roots, tracer, unfreezes=unfreezes))

    def is_done(self, seconds: float = 0.0) -> bool:
        """Return whether the search has ended; wait for its end until the search has used `seconds` of CPU time."""
        return self._fork.wait_until_done(seconds) if seconds else self._fork.is_done()

    def garbage(self) -> Garbage | None:
        """Return the garbage of the time when the search began; None if there was none, or if the fork failed."""
        try:
            fields = self._fork.result()
        except RuntimeError:
            return None
        if fields is None:
            return None
        site_fields = fields["made_at"]
        # JSON has neither dataclasses nor tuples.
        made_at = None if site_fields is None else AllocationSite(**site_fields)
        return Garbage(**fields | {"made_at": made_at, "cycle": tuple(fields["cycle"])})

    def stop(self) -> None:
        """End the search without a result."""
        self._fork.stop()


def _search_garbage(roots: Roots, tracer: Tracer | None, *, unfreezes: bool) -> dict[str, Any] | None:
    """Search for garbage, and for the line that made its largest objects; return the fields of `Garbage` for JSON.

    None if there is no garbage. For the arguments see `GarbageSearch`.
    """
    # In a fork: nothing here reaches the program, neither the pause of the collector nor the dicts that are made.
    threshold, count = gc.get_threshold()[0], gc.get_count()[0]  # new objects at which a collection begins, and now
    collector_is_on = gc.isenabled() and threshold > 0
    gc.disable()
    if tracer is None:
        tracemalloc.stop()  # a trace of the program's own, which nobody reads in the fork
    else:
        tracer.allocations.pause()  # each id below would be traced as an allocation
    ids_before_unfreeze = set(map(id, gc.get_objects()))
    if unfreezes:
        gc.unfreeze()
    garbage = unreachable_objects()
    if not garbage:
        return None
    user_namespaces = user_modules(roots)
    # Counted before sizes are taken, as opening an instance makes a dict, which would be counted as well.
    class_counts = _count_classes(garbage, user_namespaces)
    sized_objects, bytes_since_collection = _size_garbage(garbage)
    size = sum(object_bytes for object_bytes, _ in sized_objects)
    # With the collector off no collection of young objects comes.
    young_bytes = bytes_since_collection if collector_is_on else 0
    summary = Garbage(
        bytes=size,
        objects=len(garbage),
        what=_describe_classes(class_counts),
        made_at=None,
        collector_is_on=collector_is_on,
        cycle=_find_cycle(garbage, next(iter(class_counts)), user_namespaces),
        young_bytes=young_bytes,
        # The next collection begins at `threshold` new objects, of which `count` have come: in proportion.
        forecast_young_bytes=young_bytes * max(1, threshold) // max(1, min(threshold, count)),
        bytes_since_collection=bytes_since_collection,
        bytes_per_object=size // max(class_counts.values()),  # all bytes, as the main class brings the other objects
        # Most garbage was in no list of the collector before `unfreeze`.
        is_frozen=2 * sum(id(obj) not in ids_before_unfreeze for obj in garbage) > len(garbage),
    )
    site = None if tracer is None else tracer.find_line(_largest_objects(sized_objects, MAIN_SHARE * size))
    return summary._asdict() | {"made_at": None if site is None else asdict(site)}


def _describe_classes(class_counts: Counter[str]) -> str:
    """Return the most frequent class with its count, and the second if it is half as frequent: "9 × Node, 5 × Edge"."""
    commonest = class_counts.most_common(2)
    _, highest_count = commonest[0]
    return ", ".join(f"{count} × {name}" for name, count in commonest if 2 * count >= highest_count)


def _size_garbage(garbage: list[Any]) -> tuple[list[tuple[int, Any]], int]:
    """Return pairs of bytes and object for all garbage and what it alone holds, and the bytes of young objects.

    Young are the objects that the next collection of the youngest generation frees: all but old garbage and what old
    garbage alone holds.
    """
    # Reads all items of a container and opens no class.
    walk = Walk(sampled_items=len(garbage), is_user_class=lambda _: False, maximum_objects=len(garbage))
    walk.seen_ids.update(map(id, garbage))  # so that none is counted again as a child of another
    old_garbage = _old_garbage(garbage)
    old_ids = {id(obj) for obj in (*old_garbage, *_exclusive_closure(old_garbage, walk.seen_ids))}
    all_objects = (*garbage, *_exclusive_closure(garbage, walk.seen_ids))
    sized_objects = [(open_object(obj, walk).size + _exclusive_atom_bytes(obj), obj) for obj in all_objects]
    young_bytes = sum(object_bytes for object_bytes, obj in sized_objects if id(obj) not in old_ids)
    return sized_objects, young_bytes


def _old_garbage(garbage: list[Any]) -> list[Any]:
    """Return the garbage that a collection of the youngest generation leaves: older objects, and what they refer to."""
    young_ids = set(map(id, gc.get_objects(generation=0)))
    garbage_ids = set(map(id, garbage))
    old_objects = [obj for obj in garbage if id(obj) not in young_ids]
    old_ids = set(map(id, old_objects))
    for obj in old_objects:  # the list grows on the way
        for referent in gc.get_referents(obj):
            if id(referent) in garbage_ids and id(referent) not in old_ids:
                old_ids.add(id(referent))
                old_objects.append(referent)
    return old_objects


_PLAIN_CLASSES = frozenset({
    "tuple", "list", "dict", "set", "cell", "frame", "traceback", "function", "method", "builtin_function_or_method",
    "ReferenceType", "partial",
})  # fmt: skip
"""Names of classes that any cycle may have, and that say nothing of its cause."""


def _count_classes(garbage: list[Any], user_namespaces: Mapping[str, Any]) -> Counter[str]:
    """Count the garbage by class name.

    Only the user's classes are counted if there are any; else only the class whose structures (`_objects_by_structure`)
    have the most objects; else, without structures, all classes.
    """
    user_counts = count_values(class_name(type(obj)) for obj in garbage if full_name(type(obj))[0] in user_namespaces)
    if user_counts:
        return user_counts
    all_counts = count_values(class_name(type(obj)) for obj in garbage)
    main_structure = _objects_by_structure(garbage).most_common(1)  # a list of one, or empty
    return Counter({name: all_counts[name] for name, _ in main_structure}) or all_counts


def _objects_by_structure(garbage: list[Any]) -> Counter[str]:
    """Count objects by the class of their structure: a figure of matplotlib with its 500 parts counts 501 of "Figure".

    A structure is a group of objects that references connect. It has the class of its oldest object, leaving out plain
    classes such as list and dict: a whole is made before its parts. Groups of plain objects alone are left out.
    """
    # In a fork. The garbage lies in the order in which it was made. Groups are joined by union-find with path halving:
    # each object is linked with an older object of its group, and the oldest with itself.
    position_of_id = {id(obj): index for index, obj in enumerate(garbage)}
    group_links = list(range(len(garbage)))

    def oldest(index: int) -> int:
        """Return the index of the oldest object in the group of this object, and shorten the way to it."""
        while group_links[index] != index:
            group_links[index] = group_links[group_links[index]]
            index = group_links[index]
        return index

    for index, obj in enumerate(garbage):
        referent_ids = map(id, gc.get_referents(obj))
        for other in {position_of_id[referent_id] for referent_id in referent_ids if referent_id in position_of_id}:
            older, younger = sorted((oldest(index), oldest(other)))
            group_links[younger] = older
    # By the index of the oldest object of a structure: the class of the structure.
    class_names: dict[int, str] = {}
    for index, obj in enumerate(garbage):
        name = class_name(type(obj))
        if name not in _PLAIN_CLASSES:
            class_names.setdefault(oldest(index), name)
    structures = map(oldest, range(len(garbage)))  # of each object
    return count_values(class_names[structure] for structure in structures if structure in class_names)


MAXIMUM_CYCLE_TRIES, MAXIMUM_CYCLE_OBJECTS = 8, 5000
"""Maximum number of objects whose cycle is searched, newest first, and maximum objects of one such search."""


def _find_cycle(garbage: list[Any], name: str, user_namespaces: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hops of a cycle through one of the newest objects of a class; empty if none is found.

    Args:
        garbage: garbage, oldest first.
        name: name of the class.
        user_namespaces: namespaces of the user's modules by name.
    """
    objects = islice((obj for obj in reversed(garbage) if class_name(type(obj)) == name), MAXIMUM_CYCLE_TRIES)
    # Several are tried: an object may hang on a cycle without being a part of it.
    for obj in list(objects):
        cycle = _describe_cycle(obj, user_namespaces)
        if cycle:
            return cycle
    return ()


def _describe_cycle(first: Any, user_namespaces: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the shortest way from an object back to itself, ("Trainer.model", "Model.trainer"); empty without any.

    Args:
        first: object at which the cycle begins and ends.
        user_namespaces: namespaces of the user's modules by name.
    """
    # Breadth first. No class is opened.
    walk = Walk(
        sampled_items=MAXIMUM_CYCLE_OBJECTS, is_user_class=lambda _: False, maximum_objects=MAXIMUM_CYCLE_OBJECTS
    )
    # For each object by id: the object that refers to it, and by which attribute or item.
    holder_hops: dict[int, tuple[Any, str] | None] = {id(first): None}
    queue = deque([first])
    while queue and len(holder_hops) <= MAXIMUM_CYCLE_OBJECTS:
        obj = queue.popleft()
        opened_object = open_object(obj, walk)
        for name, child in (*opened_object.parts, *opened_object.sampled):
            if child is first:
                return _cycle_words(obj, name, holder_hops, user_namespaces)
            # Only tracked objects can be on a cycle; classes are left out, as each object leads to its class.
            if id(child) not in holder_hops and gc.is_tracked(child) and not issubclass(type(child), type):
                holder_hops[id(child)] = obj, name
                queue.append(child)
    return ()


def _cycle_words(
    last: object, name: str, holder_hops: Mapping[int, tuple[Any, str] | None], user_namespaces: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the hops of a cycle in words: ("Trainer.model", "Model.trainer").

    An object of a library gets no words of its own: its hop follows those of the user's object before it, as in
    "Trainer.session.adapters".

    Args:
        last: object that refers to the first object of the cycle.
        name: attribute or item of the last object that is the first object.
        holder_hops: for each object by id, its holder and the attribute of the holder; None for the first object.
        user_namespaces: namespaces of the user's modules.
    """
    hops = [(last, name)]
    # From holder to holder, back to the first object.
    while (holder_hop := holder_hops[id(hops[-1][0])]) is not None:
        hops.append(holder_hop)
    words: list[str] = []
    for obj, hop in reversed(hops):
        if not words or full_name(type(obj))[0] in user_namespaces:  # the first object is named in any case
            words.append(class_name(type(obj)) + hop)
        else:
            words[-1] += hop
    return tuple(words)


def _largest_objects(sized_objects: list[tuple[int, Any]], minimum_bytes: float) -> list[Any]:
    """Return the largest objects that have `minimum_bytes` together, but at most `MAXIMUM_RANKED`, largest first."""
    # Among equal sizes the newest (of the highest position) first, as objects from before the trace have no line.
    sizes_and_positions = ((size, position) for position, (size, _) in enumerate(sized_objects))
    largest: list[Any] = []
    total_bytes = 0
    for size, position in nlargest(MAXIMUM_RANKED, sizes_and_positions):
        if total_bytes >= minimum_bytes:
            break
        _, obj = sized_objects[position]
        largest.append(obj)
        total_bytes += size
    return largest


def unreachable_objects() -> list[Any]:
    """Return the cyclic garbage of the process, the oldest generation first.

    It is found as the collector finds it: an object with more references than tracked objects have to it is held from
    outside, such as by a running function. It and all objects that it reaches are alive; the others are garbage.
    """
    # In a fork, where no other thread runs: counts and references are read one after the other.
    young_count = len(gc.get_objects(generation=0))
    middle_count = len(gc.get_objects(generation=1))
    objects = gc.get_objects()  # young objects first
    counts = list(map(sys.getrefcount, objects))
    index_of_id = {obj_id: index for index, obj_id in enumerate(map(id, objects))}
    # All references in one list: objects[i] refers to objects[j] for each j of
    # targets[first_references[i] : first_references[i + 1]]. Made in C, as there may be millions.
    first_references = list(accumulate(map(len, map(gc.get_referents, objects)), initial=0))
    referent_ids = map(id, chain.from_iterable(map(gc.get_referents, objects)))
    targets = list(map(index_of_id.get, referent_ids, repeat(len(objects))))  # the last for all untracked objects
    internal_counts = [0] * (len(objects) + 1)
    for index in targets:
        internal_counts[index] += 1
    # An object with more references than tracked objects and the list `objects` have is held by something else.
    held_outside = [index for index, count in enumerate(counts) if count - LIST_REFCOUNT > internal_counts[index]]
    is_reached = _mark_reachable(held_outside, first_references, targets)
    # `objects` in three ranges, by generation. At most all, as some may be gone since the generations were counted.
    first_middle, first_old = min(young_count, len(objects)), min(young_count + middle_count, len(objects))
    ranges_oldest_first = ((first_old, len(objects)), (first_middle, first_old), (0, first_middle))
    return [
        objects[index] for begin, end in ranges_oldest_first for index in range(begin, end) if not is_reached[index]
    ]


def _mark_reachable(held_outside: list[int], first_references: list[int], targets: list[int]) -> bytearray:
    """Return a byte for each object: 1 if it is held from outside, or reached by such an object, else 0.

    One more byte, the last, stands for all untracked objects, and is 1.

    Args:
        held_outside: indices of objects that are held from outside themselves; emptied on the way.
        first_references: index in `targets` at which the references of each object begin, and one more for the end.
        targets: indices of the objects that are referred to; the number of all objects for an untracked object.
    """
    is_reached = bytearray(len(first_references))
    unfollowed_indices = held_outside
    for index in (*held_outside, len(first_references) - 1):  # marked, so that untracked objects are not followed
        is_reached[index] = 1
    while unfollowed_indices:
        index = unfollowed_indices.pop()
        for referent in targets[first_references[index] : first_references[index + 1]]:
            if not is_reached[referent]:
                is_reached[referent] = 1
                unfollowed_indices.append(referent)
    return is_reached


def _exclusive_closure(garbage: list[Any], known_ids: set[int]) -> list[Any]:
    """Return the untracked objects, such as arrays, that only the garbage holds, directly or through each other.

    Objects with an id in `known_ids` are left out, and so are numbers and short texts.
    """
    # Level by level: objects that only the garbage holds, those that only these hold, and so on.
    exclusive = list[Any]()
    frontier = garbage
    seen_ids = set(known_ids)
    while frontier:
        frontier = _exclusive_referents(frontier, seen_ids)
        seen_ids.update(map(id, frontier))
        exclusive += frontier
    return exclusive


def _exclusive_atom_bytes(holder: Any) -> int:
    """Return the bytes of numbers and short texts that only the holder refers to, as a list does to its floats.

    They are estimated by a sample of `DRAWN_ATOMS` objects.
    """
    referents = gc.get_referents(holder)
    referent_count = len(referents)
    sample = referents[evenly_spaced_slice(referent_count, DRAWN_ATOMS)]
    referents.clear()  # the list would count as a further reference
    reference_counts = list(map(sys.getrefcount, sample))
    # Without the reference of the list `sample`, one is left: that of the holder.
    sizes = [
        allocated_size(own_size(obj))
        for obj, references in zip(sample, reference_counts, strict=True)
        if references - LIST_REFCOUNT <= 1 and id(type(obj)) in ATOM_TYPE_IDS
    ]
    return sum(sizes) * referent_count // max(1, len(sample))


def _exclusive_referents(holders: list[Any], seen_ids: set[int]) -> list[Any]:
    """Return the untracked objects to which only the holders refer; no numbers, short texts and objects in `seen_ids`.

    Tracked objects are left out: if only garbage refers to them, they are garbage themselves.
    """
    candidates = list[Any]()
    references_of_holders = Counter[int]()  # by the id of the candidate
    for obj in holders:
        for referent in (*gc.get_referents(obj), *_array_base(obj)):
            if id(referent) not in seen_ids and not gc.is_tracked(referent) and id(type(referent)) not in ATOM_TYPE_IDS:
                if id(referent) not in references_of_holders:
                    candidates.append(referent)
                references_of_holders[id(referent)] += 1
    obj = referent = None  # the loop variables would count as references
    reference_counts = list(map(sys.getrefcount, candidates))
    # Without the reference of the list `candidates`, there are none but those of the holders.
    return [
        candidate
        for candidate, count in zip(candidates, reference_counts, strict=True)
        if count - LIST_REFCOUNT <= references_of_holders[id(candidate)]
    ]


def _array_base(obj: object) -> list[Any]:
    """Return the array of which a numpy array is a view, in a list; an empty list for all other objects."""
    # NumPy does not report the base to the collector. Read by NumPy's own descriptor: a subclass may define `base`.
    numpy = module_namespace("numpy")
    if numpy is None or not is_a(obj, numpy["ndarray"]):
        return []
    base = numpy["ndarray"].base.__get__(obj)
    return [] if base is None else [base]
