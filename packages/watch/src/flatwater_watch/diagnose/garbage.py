"""Cyclic garbage: objects that nobody reaches and that wait for a collection.

It is found without a collection, which would run the program's finalizers and free the objects to report.

The search does the collector's own arithmetic, in a fork: an object whose references all come from other tracked
objects is garbage, unless an object that is held from outside reaches it.
"""

import ctypes
import gc
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from heapq import nlargest
from itertools import accumulate, chain, islice, repeat
from typing import Any

from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.heap.children import ATOMS, look_object
from flatwater_watch.heap.raw import class_name, count_values, full_name, is_a, module_namespace
from flatwater_watch.heap.roots import Roots, user_modules
from flatwater_watch.heap.view import Walk
from flatwater_watch.meters.fork import DetachedFork, run_in_fork
from flatwater_watch.thresholds import SHIPPED

WAITING = SHIPPED.collecting

Where = Callable[[list[Any]], AllocationSite | None]
"""A function that finds the line that made most of the given objects."""

MOSTLY, MOST = 0.8, 1000
"""Share of the bytes whose line is looked up, the largest objects first, and the maximum number of these objects."""


@dataclass(frozen=True)
class Garbage:
    """The objects that a collection would free."""

    bytes: int
    objects: int
    """Number of tracked objects."""
    what: str
    """Count and class of the most frequent objects, the user's classes first."""
    made_at: AllocationSite | None
    collecting: bool
    """Whether the collector was on."""
    cycle: tuple[str, ...] = ()
    """One of the cycles: class and attribute of each object of the program on it."""
    young: int = 0
    """Bytes that the next collection of young objects frees; 0 if the collector is off."""
    comes: int = 0
    """Forecast of `young` at that collection, if garbage goes on to come as it has since the last one."""
    fresh: int = 0
    """Bytes that no collection has seen yet, whether the collector is on or not."""
    each: int = 0
    """Bytes of all garbage per object of the most frequent class."""

    def is_ordinary_gc_backlog(self, swing: float, fall: float = 0.0) -> bool:
        """Whether this is an ordinary backlog of the collector: small, or freed soon and before it is large.

        Args:
            swing: difference of the most and the least bytes of the process, which is the garbage between two
                collections if garbage is much of it.
            fall: most bytes that were freed at once. If a collection has freed as much before, the swing is the better
                forecast: the collector's count falls with each object that is freed, so that it forecasts too much.
        """
        comes = max(swing, 0 if 2 * fall >= self.young else self.comes)
        comes = max(self.young, min(comes, WAITING.wave * self.young))
        soon = 2 * self.young > self.bytes and comes < WAITING.felt
        return soon or (self.collecting and self.bytes < WAITING.little)

    @property
    def is_suspect(self) -> bool:
        """Whether most of it came since the last collection, so that it can be the growth rather than a remainder."""
        return 2 * self.fresh > self.bytes

    @property
    def may_be_felt(self) -> bool:
        """Whether it is large enough to be reported if it comes again and again."""
        return not self.young or WAITING.wave * self.bytes >= WAITING.felt


class GarbageSearch:
    """A search for cyclic garbage in a fork, while the program goes on."""

    def __init__(self, roots: Roots, where: Where | None = None) -> None:
        """Begin; the program pauses for the fork only, 20 to 65 ms with a million objects.

        The search takes 3 CPU seconds per million objects. Pages that either side writes to meanwhile are copied, and
        need room below the limit.

        Args:
            roots: choice of roots, which decides whose classes are the user's.
            where: finds the line of objects, if allocations are traced; the fork keeps the traces.

        Raises:
            OSError: there is no memory for a fork.
        """
        self._fork = DetachedFork(lambda: _search_garbage(roots) if where is None else _with_line(roots, where))

    def is_done(self, seconds: float = 0.0) -> bool:
        """Whether the search has ended, after a wait until it has had so many CPU seconds."""
        return self._fork.is_done_within_cpu(seconds) if seconds else self._fork.is_done()

    def garbage(self) -> Garbage | None:
        """The garbage at the time when the search began; None if there was none, or the fork failed."""
        try:
            found = self._fork.answer()
        except RuntimeError:
            return None
        if found is None:
            return None
        found.pop("largest", None)
        made = found["made_at"]
        return Garbage(
            **found | {"made_at": None if made is None else AllocationSite(**made), "cycle": tuple(found["cycle"])}
        )

    def stop(self) -> None:
        """End the search without a result."""
        self._fork.stop()


def _with_line(roots: Roots, where: Where) -> dict[str, Any] | None:
    """Search in a second fork that does not trace, and look up the lines in this one, which keeps the traces."""
    # Runs in a fork. With tracing on, a search of a million references took half a minute: each id is an allocation.
    found: dict[str, Any] | None = run_in_fork(lambda: _search_garbage(roots))
    if found is None:
        return None
    largest = found.pop("largest")
    # Addresses are the same in the second fork, so they name objects of this one.
    made = where([ctypes.cast(address, ctypes.py_object).value for address in largest])
    return found | {"made_at": None if made is None else asdict(made)}


def _search_garbage(roots: Roots) -> dict[str, Any] | None:
    """Search for garbage and return it for JSON; None if there is none."""
    # Runs in a fork: nothing here reaches the program, neither the pause of the collector nor the dicts that are made.
    due, count = gc.get_threshold()[0], gc.get_count()[0]
    collecting = gc.isenabled() and due > 0
    gc.disable()
    tracemalloc.stop()
    garbage = unreachable_objects()
    if not garbage:
        return None
    users = user_modules(roots)
    kinds = _kinds(
        garbage, users
    )  # before the sizes: opening an instance makes a dict, which would be a group of its own
    walk = Walk(len(garbage), lambda _: False, len(garbage))
    walk.seen.update(map(id, garbage))  # each is sized by itself below, and none as a child of another
    lasting = _old_garbage(garbage)
    kept = {id(obj) for obj in (*lasting, *_exclusive_objects(lasting, walk.seen))}
    sized = [(look_object(obj, walk).size, obj) for obj in (*garbage, *_exclusive_objects(garbage, walk.seen))]
    size = sum(own for own, _ in sized)
    fresh = sum(own for own, obj in sized if id(obj) not in kept)
    young = fresh if collecting else 0
    what = ", ".join(f"{count} × {name}" for name, count in kinds.most_common(2) if 2 * count >= max(kinds.values()))
    foremost = next(iter(kinds))
    cycle = next((way for way in map(_cycle, _newest_of_class(garbage, foremost), repeat(users)) if way), ())
    comes = young * max(1, due) // max(1, min(due, count))
    each = size // max(kinds.values())
    found = Garbage(size, len(garbage), what, None, collecting, cycle, young, comes, fresh, each)
    return asdict(found) | {"largest": [id(obj) for obj in _largest_objects(sized, MOSTLY * size)]}


def _old_garbage(garbage: list[Any]) -> list[Any]:
    """Garbage that a collection of young objects leaves: older objects, and all objects that they reach."""
    young = set(map(id, gc.get_objects(generation=0)))
    among = {id(obj): obj for obj in garbage}
    waiting = [obj for obj in garbage if id(obj) not in young]
    left = set(map(id, waiting))
    for obj in waiting:  # the list grows on the way
        for each in gc.get_referents(obj):
            if id(each) in among and id(each) not in left:
                left.add(id(each))
                waiting.append(each)
    return waiting


_PLAIN = frozenset(
    {
        "tuple",
        "list",
        "dict",
        "set",
        "cell",
        "frame",
        "traceback",
        "function",
        "method",
        "builtin_function_or_method",
        "ReferenceType",
        "partial",
    }
)
"""Names of classes that any cycle may have, and that say nothing of its cause."""


def _kinds(garbage: list[Any], users: Mapping[str, Any]) -> Counter[str]:
    """Number of objects by class: of the program's classes, else of the most telling class, else of all."""
    theirs = count_values(class_name(type(obj)) for obj in garbage if full_name(type(obj))[0] in users)
    every = Counter[str]() if theirs else count_values(class_name(type(obj)) for obj in garbage)
    whole = Counter[str]() if theirs else _structure_counts(garbage)
    return theirs or Counter({name: every[name] for name, _ in whole.most_common(1)}) or every


def _structure_counts(garbage: list[Any]) -> Counter[str]:
    """Number of objects by the class of the oldest object in their connected group: a closed figure is a figure."""
    # The oldest, as a whole is made before its parts. Groups are joined by union-find with path halving.
    number = {id(obj): n for n, obj in enumerate(garbage)}
    first = list(range(len(garbage)))
    """Index of an older object in the same group, or of the object itself."""

    def oldest(n: int) -> int:
        while first[n] != n:
            first[n] = n = first[first[n]]
        return n

    for n, obj in enumerate(garbage):
        for at in {number[id(each)] for each in gc.get_referents(obj) if id(each) in number}:
            older, younger = sorted((oldest(n), oldest(at)))
            first[younger] = older
    names: dict[int, str] = {}
    for n, obj in enumerate(garbage):
        name = class_name(type(obj))
        if name not in _PLAIN:
            names.setdefault(oldest(n), name)
    return count_values(names[whole] for whole in map(oldest, range(len(garbage))) if whole in names)


TRIED, LONGEST = 8, 5000
"""Number of objects whose cycle is searched, newest first, and maximum objects of one search."""


def _newest_of_class(garbage: list[Any], name: str) -> list[Any]:
    """A few objects of a class, newest first."""
    return list(islice((obj for obj in reversed(garbage) if class_name(type(obj)) == name), TRIED))


def _cycle(first: Any, users: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ANN401
    """The shortest way from an object back to itself, in words; empty if there is none."""
    walk = Walk(LONGEST, lambda _: False, LONGEST)
    came: dict[int, tuple[Any, str] | None] = {id(first): None}
    waiting = deque([first])
    while waiting and len(came) <= LONGEST:
        obj = waiting.popleft()
        inside = look_object(obj, walk)
        for name, child in (*inside.parts, *inside.drawn):
            if child is first:
                return _words(obj, name, came, users)
            if id(child) not in came and gc.is_tracked(child) and not issubclass(type(child), type):
                came[id(child)] = obj, name
                waiting.append(child)
    return ()


def _words(
    last: object, name: str, came: Mapping[int, tuple[Any, str] | None], users: Mapping[str, Any]
) -> tuple[str, ...]:
    """The way in words, such as `Trainer.model`, `Model.trainer`; containers between two objects become one hop."""
    hops = [(last, name)]
    while (before := came[id(hops[-1][0])]) is not None:
        hops.append(before)
    words: list[str] = []
    for obj, step in reversed(hops):
        if not words or full_name(type(obj))[0] in users:
            words.append(class_name(type(obj)) + step)
        else:
            words[-1] += step
    return tuple(words)


def _largest_objects(sized: list[tuple[int, Any]], enough: float) -> list[Any]:
    """The largest objects, until they have `enough` bytes together."""
    # Among equal sizes the newest first: older objects were made before the trace and have no line.
    taken: list[Any] = []
    total = 0
    for _, (own, obj) in nlargest(MOST, enumerate(sized), key=lambda each: (each[1][0], each[0])):
        if total >= enough:
            break
        taken.append(obj)
        total += own
    return taken


def unreachable_objects() -> list[Any]:
    """Tracked objects that no object outside of them reaches, oldest first."""
    # Other threads must stand still, as they do in a fork: the counts and the references are read one after the other.
    young, middle = (len(gc.get_objects(generation=age)) for age in (0, 1))
    objects = gc.get_objects()  # young ones first
    counts = list(map(sys.getrefcount, objects))
    number = {at: n for n, at in enumerate(map(id, objects))}
    first = list(accumulate(map(len, map(gc.get_referents, objects)), initial=0))
    held = map(id, chain.from_iterable(map(gc.get_referents, objects)))  # no Python code runs for each of them
    target = list(map(number.get, held, repeat(len(objects))))  # one number for all untracked objects
    among = [0] * (len(objects) + 1)
    for at in target:
        among[at] += 1
    outside = [n for n, count in enumerate(counts) if count - _OF_THE_LIST > among[n]]
    reached = _mark_reachable(outside, first, target)
    # Objects that were counted first may be gone: in a program that never collects, all objects are young.
    first_middle, first_old = min(young, len(objects)), min(young + middle, len(objects))
    ages = ((first_old, len(objects)), (first_middle, first_old), (0, first_middle))
    return [objects[n] for begin, end in ages for n in range(begin, end) if not reached[n]]


def _mark_reachable(outside: list[int], first: list[int], target: list[int]) -> bytearray:
    """A byte for each object, 1 if an object that is held from outside reaches it.

    Args:
        outside: numbers of objects that are held from outside themselves.
        first: index in `target` at which the references of each object begin, and one more for the end.
        target: numbers of the objects that are referred to; one number beyond them for all untracked objects.
    """
    reached = bytearray(len(first))
    waiting = outside
    for at in (*outside, len(first) - 1):  # untracked objects are not followed
        reached[at] = 1
    while waiting:
        at = waiting.pop()
        for to in target[first[at] : first[at + 1]]:
            if not reached[to]:
                reached[to] = 1
                waiting.append(to)
    return reached


def _measure_refcount() -> int:
    """The count of `getrefcount`, under `map`, for an object that only a list holds."""
    (count,) = map(sys.getrefcount, [object()])
    return count


_OF_THE_LIST = _measure_refcount()


def _exclusive_objects(garbage: list[Any], known: set[int]) -> list[Any]:
    """Untracked objects, such as arrays and dicts of arrays, that only the garbage holds."""
    theirs, level, seen = list[Any](), garbage, set(known)
    while level:
        level = _referenced_objects(level, seen)
        seen.update(map(id, level))
        theirs += level
    return theirs


def _referenced_objects(holders: list[Any], seen: set[int]) -> list[Any]:
    held, references = list[Any](), Counter[int]()
    for obj in holders:
        for each in (*gc.get_referents(obj), *_bases(obj)):
            if id(each) not in seen and not gc.is_tracked(each) and id(type(each)) not in ATOMS:
                if id(each) not in references:
                    held.append(each)
                references[id(each)] += 1
    obj = each = None  # the loop variables would count as references
    counts = list(map(sys.getrefcount, held))
    return [one for one, count in zip(held, counts, strict=True) if count - _OF_THE_LIST <= references[id(one)]]


def _bases(obj: object) -> list[Any]:
    """The base that a view of a numpy array keeps alive."""
    # By hand, as NumPy does not report it to the collector.
    numpy = module_namespace("numpy")
    if numpy is None or not is_a(obj, numpy["ndarray"]):
        return []
    base = numpy["ndarray"].base.__get__(obj)
    return [] if base is None else [base]
