"""The walk behind a census: in breadth from the roots, in slices that may lie steps of the program apart.

Objects are rows of columns, not nodes: a million nodes would set off collections of the whole heap.

Between two slices the program goes on, and objects that wait to be opened should not live longer for it. Arrays and
tensors are held weakly meanwhile, graphs by their tensors. Containers are held until the end of a slice finds that
nobody else holds them; each slice checks 8000, in turn. An object that is made between two slices at the address of a
freed one may pass for that one.
"""

import sys
import weakref
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flatwater_watch.heap.arrays import Graph
from flatwater_watch.heap.children import ATOMS, LONG_TEXT, open_object
from flatwater_watch.heap.raw import full_name, mro
from flatwater_watch.heap.roots import Roots, root_tiers, user_modules
from flatwater_watch.heap.view import OPAQUE, Named, OpenedObject, Walk, allocated_size
from flatwater_watch.meters.system_calls import thread_seconds

DEEP = 12
"""Hops from the root after which paths get no longer: so deep lies a chain of cells, not a place with a name."""


class PathRecord:
    """A path, with the containers that were found on it."""

    __slots__ = ("bytes", "capacity", "chain", "children", "depth", "key", "kind", "length", "longest", "most",
                 "parent", "path", "step", "weight")  # fmt: skip

    def __init__(self, path: str, parent: "PathRecord | None", key: tuple[str, int], depth: int) -> None:
        """Begin without a container.

        Args:
            path: readable path, as in `Holding.path`.
            parent: record of the holder; None for a root.
            key: last part of the path, and the id of the class.
            depth: hops from the root.
        """
        self.path, self.parent, self.key, self.depth = path, parent, key, depth
        self.longest: Any = None
        """The container with the most items on this path, which stands for all: another one may be empty."""
        self.most = 0
        """Number of items in it."""
        self.kind = ""
        self.capacity: int | None = None
        self.step = 0
        """Step at which the first container was opened."""
        self.length = 0.0
        """Sum of the containers' lengths, weighted as below."""
        self.weight = 0.0
        """Number of containers on this path, each weighted for the unseen ones that it represents."""
        self.bytes = 0.0
        """Bytes below all containers on this path, known when the walk is summed."""
        self.chain = 0.0
        """Number of objects of a linked structure below its first one."""
        self.children: dict[tuple[str, int], PathRecord] = {}


class ItemSample:
    """The sampled items of a big container."""

    __slots__ = ("factor", "most", "of", "sum", "taken")

    def __init__(self, taken: int, of: int) -> None:
        """Begin without bytes.

        Args:
            taken: number of sampled items.
            of: number of all items.
        """
        self.taken, self.of = taken, of
        """Numbers of items; an entry of a dict is one item, with its key and its value."""
        self.sum = self.most = 0.0
        """Bytes of all sampled items, and of the largest part that was added."""
        self.factor = 1.0
        """Factor from the bytes of the sample to those of all items."""

    def add(self, size: float) -> None:
        """Add the bytes of an item, or of a part of one."""
        self.sum += size
        self.most = max(self.most, size)

    def estimate_total(self) -> float:
        """Estimated bytes of all items; to be called when the sample is complete."""
        total = estimate(self.sum, self.most, self.taken, self.of)
        self.factor = total / self.sum if self.sum else 1.0
        return total


def estimate(total: float, most: float, taken: int, count: int) -> float:
    """Estimated bytes of `count` items, of which `taken` were measured.

    Args:
        total: bytes of the measured items.
        most: bytes of the largest one.
        taken: number of measured items.
        count: number of all items.
    """
    if taken < 2:  # noqa: PLR2004  one item stands for itself
        return total
    # The largest item counts once: the first of many views is the one that the base they share is counted with.
    other_mean = (total - most) / (taken - 1)
    return total / taken * count if most <= other_mean else most + other_mean * (count - 1)


def find_child_record(name: str, kind: type, parent: PathRecord) -> PathRecord:
    """The record of a child: a new one, or one of those above, as `head.next.next` is on the path `head.next`.

    From `DEEP` hops on no path gets longer: a child goes by the record above that has its class, else by its parent's.
    """
    key = (name, id(kind))
    record: PathRecord | None = parent
    while record is not None:
        is_same = record.key == key and not name.startswith("[") if parent.depth < DEEP else record.key[1] == id(kind)
        if is_same:
            break
        record = record.parent
    if record is None:
        record = parent if parent.depth >= DEEP else PathRecord(parent.path + name, parent, key, parent.depth + 1)
    parent.children[key] = record
    return record


CHECKED = 8000
"""Waiting objects that the end of a slice checks for other holders: about 2 ms."""
BETWEEN_CLOCKS = 32
"""Objects opened between two looks at the clock: about 0.3 ms."""


DRAWN, FOLDED = 1, 2
"""Marks of rows: a sampled item that stands for others; an object below another one on its own path."""


@dataclass(eq=False, repr=False, slots=True)
class HeapWalk:
    """A walk that is under way, or done; its columns have a row for each object, in the order of the walk."""

    walk: Walk
    groups: deque[list[Named]]
    """Groups of roots that the walk has not reached yet."""
    objects: list[Any] = field(default_factory=list)
    """Column of objects; None for one that is not needed any more, or gone."""
    holders: "array[int]" = field(default_factory=lambda: array("l"))
    """Column of the holders' rows; -1 for a root."""
    places: list[PathRecord] = field(default_factory=list)
    """Column of the records of the objects' paths."""
    marks: bytearray = field(default_factory=bytearray)
    """Column of marks: `DRAWN`, `FOLDED`, both or none."""
    weights: "array[float]" = field(default_factory=lambda: array("d"))
    """Column of the number of objects for which each stands, itself included."""
    sizes: "array[float]" = field(default_factory=lambda: array("d"))
    """Column of bytes; only opened objects have one, so the length of this column is the next row to open."""
    samples: dict[int, ItemSample] = field(default_factory=dict)
    """Samples of big containers, by row."""
    late: list[tuple[Graph, int, PathRecord, int, float]] = field(default_factory=list)
    """Rows of graphs, which are put off until everything else has its owner."""
    records: dict[str, PathRecord] = field(default_factory=dict)
    """Records of opened objects, by path."""
    truncated: bool = False
    """Whether the walk stopped at its maximum number of objects."""
    step: int = 0
    """Step of the program now."""
    rested: int = 0
    """Number of rows whose objects were released by the end of the last slice."""
    queued: int = 0
    """Number of rows at the end of the last slice."""
    checked: int = 0
    """The row after the last one that was checked for other holders."""
    entered: dict[str, PathRecord] = field(default_factory=dict)
    """Records with a new container since the end of the last slice, by path."""
    lightened: int = 0
    """The record after the last one that was checked for other holders."""
    data: dict[int, bool] = field(default_factory=dict)
    """Whether objects of a class are held weakly, by the class's id."""


def begin_walk(roots: Roots, *, draw: int, most: int) -> HeapWalk:
    """A walk that has not opened an object yet.

    Args:
        roots: roots of the walk; their variables are read now, whenever the walk gets to them.
        draw: number of sampled items of a big container.
        most: maximum number of objects to visit.
    """
    modules = user_modules(roots)
    walk = Walk(draw, lambda cls: full_name(cls)[0] in modules, most)
    return HeapWalk(walk, deque(root_tiers(roots, modules)))


def continue_walk_(walking: HeapWalk, until: float) -> bool:
    """Go on until a time of `thread_seconds`, or to the end; return whether the walk has ended."""
    while _open_(walking, until):
        if walking.groups and not walking.truncated:
            _begin_group_(walking, walking.groups.popleft())
        elif walking.late and not walking.truncated:
            for row in walking.late:
                _append_(walking, *row)
            walking.late.clear()
        else:
            return True
    return False


def _begin_group_(walking: HeapWalk, group: Iterable[Named]) -> None:
    """Append the roots of a group that no earlier group has reached."""
    seen_ids = walking.walk.seen
    for path, root in group:
        obj = strong_object(root)
        is_atom = obj is None or (id(type(obj)) in ATOMS and obj.__sizeof__() < LONG_TEXT)
        if not is_atom and id(obj) not in seen_ids:
            seen_ids.add(id(obj))
            _append_(walking, obj, -1, PathRecord(path, None, (path, id(type(obj))), 0), 0, 1.0)


def _append_(  # noqa: PLR0917  (a row)
    walking: HeapWalk, obj: object, holder: int, record: PathRecord, mark: int, weight: float
) -> None:
    """Append a row to all columns of a walk but `sizes`.

    Args:
        walking: the walk.
        obj: the object.
        holder: row of its holder; -1 for a root.
        record: record of its path.
        mark: `DRAWN`, `FOLDED`, both or 0.
        weight: number of objects for which it stands, itself included.
    """
    walking.objects.append(obj)
    walking.holders.append(holder)
    walking.places.append(record)
    walking.marks.append(mark)
    walking.weights.append(weight)


def _open_(walking: HeapWalk, until: float) -> bool:
    """Open the objects that wait, until a time of `thread_seconds`; return whether all are open or the walk is full."""
    walk, objects, sizes = walking.walk, walking.objects, walking.sizes
    row = len(sizes)
    clock_row = row + BETWEEN_CLOCKS  # by rows, not by objects that wait: of a chain only one waits at a time
    while row < len(objects):
        if walk.visited >= walk.most:
            walking.truncated = True
            return True
        obj = objects[row]
        if type(obj) is OwnWeakref:
            obj = obj()
        opened = open_object(obj, walk)
        sizes.append(allocated_size(opened.size))
        if opened is not OPAQUE:
            walk.visited += 1
            _enter_(walking, row, obj, opened)
            if opened.parts:
                _offer_(walking, row, opened.parts)
            if opened.drawn:
                walking.samples[row] = ItemSample(len(opened.drawn) // opened.each, opened.of)
                _offer_drawn_(walking, row, opened.drawn)
        row += 1
        if row >= clock_row:
            if thread_seconds() >= until:
                return row == len(objects)
            clock_row = row + BETWEEN_CLOCKS
    return True


def _enter_(walking: HeapWalk, at: int, obj: Any, inside: OpenedObject) -> None:  # noqa: ANN401
    """Record an opened object on its path; below another one on its own path it only lengthens the chain.

    Args:
        walking: the walk.
        at: row of the object.
        obj: the object.
        inside: what opening it gave.
    """
    weight, record = walking.weights[at], walking.places[at]
    path = record.path
    entered = walking.records.setdefault(path, record)
    if entered is not record:  # a child of another class has come to the same path
        record = walking.places[at] = entered
    if walking.marks[at] & FOLDED:
        record.chain += weight
        return
    is_new = record.longest is None or strong_object(record.longest) is None
    if is_new:
        record.step = walking.step
    if is_new or inside.length > record.most:
        record.longest, record.most = obj, inside.length
        walking.entered[path] = record
        record.kind, record.capacity = _kind(record, inside), inside.capacity
    record.length += inside.length * weight
    record.weight += weight


def _kind(record: PathRecord, inside: OpenedObject) -> str:
    """The kind of a holding: that of the object, unless its path says that it keeps hooks or figures."""
    if inside.kind in {"dict", "list"} and record.path.endswith("hooks"):
        return "hooks"
    return "figures" if record.path == "pyplot's figures" else inside.kind


def _offer_(walking: HeapWalk, at: int, parts: Iterable[Named]) -> None:
    """Count the bytes of atoms in the row `at` at once, and append the other children that were not seen yet."""
    walk, above, weight, size = walking.walk, walking.places[at], walking.weights[at], 0
    for name, obj in parts:
        kind = type(obj)
        atom_bytes = _unseen_(walk, obj, kind)
        if atom_bytes >= 0:
            size += atom_bytes
            continue
        record = above.children.get((name, id(kind))) or find_child_record(name, kind, above)
        mark = FOLDED if record.depth <= above.depth else 0
        if kind is Graph:
            walking.late.append((obj, at, record, mark, weight))
        else:
            _append_(walking, obj, at, record, mark, weight)
    if size:
        walking.sizes[at] += size


def _offer_drawn_(walking: HeapWalk, at: int, drawn: Sequence[Named]) -> None:
    """Append the drawn items of the big container in row `at`, each weighted for the items that it represents."""
    above, sample = walking.places[at], walking.samples[at]
    weight = walking.weights[at] * sample.of / sample.taken
    for name, obj in drawn:
        kind = type(obj)
        atom_bytes = _unseen_(walking.walk, obj, kind)
        if atom_bytes > 0:
            sample.add(atom_bytes)
        elif atom_bytes < 0:
            record = above.children.get((name, id(kind))) or find_child_record(name, kind, above)
            _append_(walking, obj, at, record, DRAWN | FOLDED * (record.depth <= above.depth), weight)


def _unseen_(walk: Walk, obj: Any, kind: type) -> int:  # noqa: ANN401
    """Bytes of an atom, 0 for an object that was seen, -1 for one that must be opened."""
    # Runs for every child of every object: the ids of atoms are marked here, without a row of their own.
    seen, own_id = walk.seen, id(obj)
    if own_id in seen:
        return 0
    if id(kind) in ATOMS:
        if obj is None or obj is True or obj is False:
            return 0
        size: int = obj.__sizeof__()
        if size < LONG_TEXT:
            seen.add(own_id)
            return allocated_size(size)
    seen.add(own_id)
    return -1


# --- rest ---


class OwnWeakref(weakref.ref[Any]):
    """A weak reference of the walk, by its type distinct from those that the program holds."""

    __slots__ = ()


def strong_object(place: Any) -> Any:  # noqa: ANN401
    """The object that a walk holds, weakly or not; None if it is gone."""
    return place() if type(place) is OwnWeakref else place


def release_objects_(walking: HeapWalk) -> None:
    """Release objects at the end of a slice, so that the program can free them before the next one."""
    objects, opened_rows = walking.objects, len(walking.sizes)
    objects[walking.rested : opened_rows] = [None] * (opened_rows - walking.rested)
    for row in range(max(opened_rows, walking.queued), len(objects)):
        if _is_data(walking, type(objects[row])):
            objects[row] = OwnWeakref(objects[row])
    # The count is read by C code under `map`: a loop variable would be one more reference.
    begin = walking.checked if opened_rows <= walking.checked < len(objects) else opened_rows
    for row, count in enumerate(map(sys.getrefcount, islice(objects, begin, begin + CHECKED)), begin):
        if count <= _SOLE and not _is_ours(objects[row]):
            objects[row] = None
    walking.rested, walking.queued, walking.checked = opened_rows, len(objects), begin + CHECKED
    _lighten_(walking)
    walking.groups = deque([(root[0], _lighter(walking, root[1])) for root in group] for group in walking.groups)
    # Nodes of graphs keep what backward needs. Their ids may be used again now: that counts 200 bytes twice.
    walking.walk.seen.difference_update(map(id, walking.walk.kept))
    walking.walk.kept.clear()


def _lighten_(walking: HeapWalk) -> None:
    """Hold the longest containers of new paths, and of some older ones in turn, weakly or not at all."""
    records = list(walking.records.values())
    begin = walking.lightened if walking.lightened < len(records) else 0
    walking.lightened = begin + CHECKED
    due_records = dict.fromkeys((*walking.entered.values(), *records[begin : walking.lightened]))
    walking.entered.clear()
    for record in due_records:
        record.longest = _lighter(walking, record.longest)


def _is_data(walking: HeapWalk, kind: type) -> bool:
    """Whether objects of a class are arrays or tensors, which a walk holds weakly between slices."""
    weakly = walking.data.get(id(kind))
    if weakly is None:
        weakly = walking.data[id(kind)] = any(full_name(owner) in _DATA for owner in mro(kind))
    return weakly


def _lighter(walking: HeapWalk, obj: Any) -> Any:  # noqa: ANN401
    """The replacement for an object in a place of the walk: None if nobody else holds it, a weak reference to data."""
    if _is_ours(obj):
        return obj
    if _references(obj) <= _SOLE_GIVEN:
        return None
    return OwnWeakref(obj) if _is_data(walking, type(obj)) else obj


def _references(obj: object) -> int:
    """References to an object, with those of the call itself: compared with `_SOLE_GIVEN`, measured the same way."""
    return sys.getrefcount(obj)


_DATA = {("numpy", "ndarray"), ("torch._C", "TensorBase")}


def _is_ours(obj: object) -> bool:
    """Whether the walk made the object itself, so that nothing of the program lives longer for it."""
    return type(obj) is OwnWeakref or type(obj) is Graph


def _measure_refcount() -> int:
    """The count of `getrefcount`, under `map`, for an object that only a list holds."""
    (count,) = map(sys.getrefcount, [object()])
    return count


def _measure_nested_refcount() -> int:
    """The count of `_references` for an object that only a record holds, passed on through one function."""
    # Measured, not written down: how many references a call adds differs between versions of CPython.
    record = PathRecord("", None, ("", 0), 0)
    record.longest = object()

    def count_given(obj: object) -> int:
        return _references(obj)

    return count_given(record.longest)


_SOLE, _SOLE_GIVEN = _measure_refcount(), _measure_nested_refcount()
