"""Cyclic garbage: objects that nobody reaches and that wait for a collection.

It is found without collecting, which would run the program's finalizers and free what is to be told.

The collector's own arithmetic, in a fork: an object whose references all come from other tracked objects is held by
none but them, unless one that is held from outside reaches it.
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
"""The line that made objects."""

MOSTLY, MOST = 0.8, 1000
"""Part of the bytes whose line is looked up, the largest objects first, and objects for that at most."""


@dataclass(frozen=True)
class Garbage:
    """What a collection would free."""

    bytes: int
    objects: int
    """Tracked objects in it."""
    what: str
    """Count and class of the most frequent objects, the user's classes first."""
    made_at: AllocationSite | None
    collecting: bool
    """Whether the collector was on."""
    cycle: tuple[str, ...] = ()
    """One of the cycles: an object and the way from it, for each object of the program on it."""
    young: int = 0
    """Bytes of it that the next collection of young objects frees; none where the collector is off."""
    comes: int = 0
    """Bytes that those come to until then, if they go on as they came since the last one."""
    fresh: int = 0
    """Bytes that no collection has seen yet, whether the collector is on or not."""
    each: int = 0
    """Bytes for each object of the most frequent class, with what hangs together with it."""

    def is_ordinary_gc_backlog(self, swing: float, fall: float = 0.0) -> bool:
        """Whether this is an ordinary backlog of the collector: small, or freed soon and before it is large.

        Args:
            swing: bytes between the most and the least that the process had: what comes between two collections, if
                garbage is much of it.
            fall: most bytes that were freed at once. Where a collection has freed as much before, the swing says what
                comes until then; the collector's count falls with each object that is freed, and says too much.
        """
        comes = max(swing, 0 if 2 * fall >= self.young else self.comes)
        comes = max(self.young, min(comes, WAITING.wave * self.young))
        soon = 2 * self.young > self.bytes and comes < WAITING.felt
        return soon or (self.collecting and self.bytes < WAITING.little)

    @property
    def is_suspect(self) -> bool:
        """Whether most of it came since the last collection, so that it can be what grows, and not what lies there."""
        return 2 * self.fresh > self.bytes

    @property
    def may_be_felt(self) -> bool:
        """Whether it may be told if it comes again and again."""
        return not self.young or WAITING.wave * self.bytes >= WAITING.felt


class GarbageSearch:
    """A look for what waits for a collection, in a fork, while the program goes on."""

    def __init__(self, roots: Roots, where: Where | None = None) -> None:
        """Begin. The program pauses for the fork only: 20 to 65 ms with a million objects, more with more in use.

        The look itself takes 3 CPU seconds per million objects. It counts references, which are not copied when the
        process forks: pages that either side writes to meanwhile are, and need room below the limit.

        Args:
            roots: whose classes are the user's.
            where: names the line of objects, if allocations are traced; the fork keeps the traces.

        Raises:
            OSError: there is no memory for a fork.
        """
        self._fork = DetachedFork(lambda: _search_garbage(roots) if where is None else _with_line(roots, where))

    def is_done(self, seconds: float = 0.0) -> bool:
        """Whether it is known, waiting until the search has had so many CPU seconds."""
        return self._fork.is_done_within_cpu(seconds) if seconds else self._fork.is_done()

    def garbage(self) -> Garbage | None:
        """What waited for a collection when the search began; None if nothing did, or the fork failed."""
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
        """Leave it."""
        self._fork.stop()


def _with_line(roots: Roots, where: Where) -> dict[str, Any] | None:
    """Search in a second fork that does not trace, and look up the lines in this one, which keeps the traces.

    Traced, the look at a million references took half a minute: each address is an allocation.
    """
    found: dict[str, Any] | None = run_in_fork(lambda: _search_garbage(roots))
    if found is None:
        return None
    largest = found.pop("largest")
    made = where([ctypes.cast(address, ctypes.py_object).value for address in largest])
    return found | {"made_at": None if made is None else asdict(made)}


def _search_garbage(roots: Roots) -> dict[str, Any] | None:
    """In a fork."""
    due, count = gc.get_threshold()[0], gc.get_count()[0]
    collecting = gc.isenabled() and due > 0
    gc.disable()
    tracemalloc.stop()
    garbage = unreachable_objects()
    if not garbage:
        return None
    users = user_modules(roots)
    kinds = _kinds(garbage, users)  # a look makes a dict for each instance, which hangs together with nothing here
    walk = Walk(len(garbage), lambda _: False, len(garbage))
    walk.seen.update(map(id, garbage))
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
    """What a collection of young objects leaves: older ones, and all that they reach."""
    young = set(map(id, gc.get_objects(generation=0)))
    among = {id(obj): obj for obj in garbage}
    waiting = [obj for obj in garbage if id(obj) not in young]
    left = set(map(id, waiting))
    for obj in waiting:  # it becomes longer meanwhile
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
"""What any cycle is made of, by name of the class."""


def _kinds(garbage: list[Any], users: Mapping[str, Any]) -> Counter[str]:
    """How many there are of each class: of the program's, else of the one that says what it is, else of all."""
    theirs = count_values(class_name(type(obj)) for obj in garbage if full_name(type(obj))[0] in users)
    every = Counter[str]() if theirs else count_values(class_name(type(obj)) for obj in garbage)
    whole = Counter[str]() if theirs else _structure_counts(garbage)
    return theirs or Counter({name: every[name] for name, _ in whole.most_common(1)}) or every


def _structure_counts(garbage: list[Any]) -> Counter[str]:
    """Objects by the class of the oldest one that they hang together with: a whole is made before its parts.

    A closed figure is a figure, and not its thousand callbacks.
    """
    number = {id(obj): n for n, obj in enumerate(garbage)}
    first = list(range(len(garbage)))
    """For each, an older one that it hangs together with, or itself."""

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
"""Objects whose cycle is looked for, newest first, and objects on the way at most."""


def _newest_of_class(garbage: list[Any], name: str) -> list[Any]:
    """A few objects of a class, newest first."""
    return list(islice((obj for obj in reversed(garbage) if class_name(type(obj)) == name), TRIED))


def _cycle(first: Any, users: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ANN401
    """The shortest way from an object back to itself, in words; empty where there is none."""
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
    """`Trainer.model`, `Model.trainer`: containers between two objects of the program stand in the way's names."""
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
    """The largest objects that have so many bytes together; of equal ones the newest, as the older have no line."""
    taken: list[Any] = []
    total = 0
    for _, (own, obj) in nlargest(MOST, enumerate(sized), key=lambda each: (each[1][0], each[0])):
        if total >= enough:
            break
        taken.append(obj)
        total += own
    return taken


def unreachable_objects() -> list[Any]:
    """The tracked objects that only objects like them refer to, older ones first. Other threads must stand still."""
    young, middle = (len(gc.get_objects(generation=age)) for age in (0, 1))
    objects = gc.get_objects()  # young ones first
    counts = list(map(sys.getrefcount, objects))
    number = {at: n for n, at in enumerate(map(id, objects))}
    first = list(accumulate(map(len, map(gc.get_referents, objects)), initial=0))
    held = map(id, chain.from_iterable(map(gc.get_referents, objects)))  # no Python code runs for each of them
    target = list(map(number.get, held, repeat(len(objects))))  # one number for all that is not tracked
    among = [0] * (len(objects) + 1)
    for at in target:
        among[at] += 1
    outside = [n for n, count in enumerate(counts) if count - _OF_THE_LIST > among[n]]
    reached = _mark_reachable(outside, first, target)
    # What was counted first may be gone: in a program that never collects, all objects are young.
    first_middle, first_old = min(young, len(objects)), min(young + middle, len(objects))
    ages = ((first_old, len(objects)), (first_middle, first_old), (0, first_middle))
    return [objects[n] for begin, end in ages for n in range(begin, end) if not reached[n]]


def _mark_reachable(outside: list[int], first: list[int], target: list[int]) -> bytearray:
    """A byte for each object: whether one that is held from outside reaches it.

    Args:
        outside: those that are held from outside themselves.
        first: where the references of each begin in `target`, and one more for the end.
        target: the objects that are referred to; one number beyond them for all others.
    """
    reached = bytearray(len(first))
    waiting = outside
    for at in (*outside, len(first) - 1):  # what is not tracked is not followed
        reached[at] = 1
    while waiting:
        at = waiting.pop()
        for to in target[first[at] : first[at + 1]]:
            if not reached[to]:
                reached[to] = 1
                waiting.append(to)
    return reached


def _measure_refcount() -> int:
    """What `getrefcount` counts for an object that only a list holds, under `map`."""
    (count,) = map(sys.getrefcount, [object()])
    return count


_OF_THE_LIST = _measure_refcount()


def _exclusive_objects(garbage: list[Any], known: set[int]) -> list[Any]:
    """Objects that the collector does not track, such as arrays and dicts of them, and that only the garbage holds."""
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
    obj = each = None  # no references of this function's own
    counts = list(map(sys.getrefcount, held))
    return [one for one, count in zip(held, counts, strict=True) if count - _OF_THE_LIST <= references[id(one)]]


def _bases(obj: object) -> list[Any]:
    """What a view of an array keeps: NumPy does not tell the collector."""
    numpy = module_namespace("numpy")
    if numpy is None or not is_a(obj, numpy["ndarray"]):
        return []
    base = numpy["ndarray"].base.__get__(obj)
    return [] if base is None else [base]
