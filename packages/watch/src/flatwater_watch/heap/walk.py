"""The walk behind a census: in breadth from the roots, in slices that may lie steps of the program apart.

Objects are rows of columns, not nodes: a million nodes would set off collections of the whole heap.

Between two slices the program goes on, and objects that wait to be opened should not live longer for it. Arrays and
tensors are held weakly meanwhile, graphs by their tensors. Containers are held until the end of a slice finds that
nobody else holds them; each slice checks 8000, in turn. An object that is made between two slices at the address of a
freed object may pass for it.
"""

import sys
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flatwater_watch.heap.arrays import Graph
from flatwater_watch.heap.children import ATOM_TYPE_IDS, LONG_TEXT_BYTES, open_object
from flatwater_watch.heap.raw import full_name, mro
from flatwater_watch.heap.roots import Roots, root_tiers, user_modules
from flatwater_watch.heap.view import (
    OPAQUE,
    Named,
    OpenedObject,
    OwnWeakref,
    Walk,
    allocated_size,
    strong_object,
)
from flatwater_watch.meters.system_calls import thread_seconds

MAXIMUM_DEPTH = 12
"""Hops from the root after which paths get no longer: so deep lies a chain of cells, not a place with a name."""


class PathRecord:
    """A path, with the containers that were found on it."""

    __slots__ = (
        "bytes",
        "capacity",
        "chained_objects",
        "children",
        "depth",
        "greatest_length",
        "key",
        "kind",
        "length",
        "longest_container",
        "parent",
        "path",
        "step",
        "weight",
    )  # fmt: skip

    def __init__(self, path: str, parent: "PathRecord | None", key: tuple[str, int], depth: int) -> None:
        """Begin without a container.

        Args:
            path: readable path, as in `Holding.path`.
            parent: record of the holder; None for a root.
            key: last part of the path, and the id of the class.
            depth: hops from the root.
        """
        self.path, self.parent, self.key, self.depth = path, parent, key, depth
        self.longest_container: Any = None
        """The container with the most items on this path, which stands for all: another one may be empty."""
        self.greatest_length = 0
        """Number of items in it."""
        self.kind = ""
        self.capacity: int | None = None
        self.step = 0
        """Step at which the first container was opened."""
        self.length = 0.0
        """Sum of the containers' lengths, weighted as below."""
        self.weight = 0.0
        """Number of containers on this path, each weighted for the unseen containers that it represents."""
        self.bytes = 0.0
        """Bytes below all containers on this path, known when the walk is summed."""
        self.chained_objects = 0.0
        """Number of objects of a linked structure below its first one."""
        self.children: dict[tuple[str, int], PathRecord] = {}


class ItemSample:
    """The sampled items of a big container."""

    __slots__ = ("item_count", "largest_part", "sampled_bytes", "sampled_count", "scale")

    def __init__(self, sampled_count: int, item_count: int) -> None:
        """Begin without bytes.

        Args:
            sampled_count: number of sampled items.
            item_count: number of all items.
        """
        self.sampled_count, self.item_count = sampled_count, item_count
        """Numbers of items; an entry of a dict is one item, with its key and its value."""
        self.sampled_bytes = self.largest_part = 0.0
        """Bytes of all sampled items, and of the largest part that was added."""
        self.scale = 1.0
        """Factor from the bytes of the sample to those of all items."""

    def add(self, size: float) -> None:
        """Add the bytes of an item, or of a part of one."""
        self.sampled_bytes += size
        self.largest_part = max(self.largest_part, size)

    def estimate_total(self) -> float:
        """Estimated bytes of all items; to be called when the sample is complete."""
        total = estimate_bytes(self.sampled_bytes, self.largest_part, self.sampled_count, self.item_count)
        self.scale = total / self.sampled_bytes if self.sampled_bytes else 1.0
        return total


def estimate_bytes(total: float, maximum: float, measured: int, count: int) -> float:
    """Estimated bytes of `count` items, of which `measured` were measured.

    Args:
        total: bytes of the measured items.
        maximum: bytes of the largest one.
        measured: number of measured items.
        count: number of all items.
    """
    if measured < 2:  # noqa: PLR2004  one item stands for itself
        return total
    # The largest item counts once: the base that many views share is counted with the first of them.
    other_mean = (total - maximum) / (measured - 1)
    return total / measured * count if maximum <= other_mean else maximum + other_mean * (count - 1)


def find_child_record(name: str, kind: type, parent: PathRecord) -> PathRecord:
    """The record of a child: a new one, or a record above, as `head.next.next` is on the path `head.next`.

    From `MAXIMUM_DEPTH` hops on no path gets longer: a child gets the nearest record above of its class, else its
    parent's.
    """
    key = (name, id(kind))
    record: PathRecord | None = parent
    while record is not None:
        is_same = (
            record.key == key and not name.startswith("[")
            if parent.depth < MAXIMUM_DEPTH
            else record.key[1] == id(kind)
        )
        if is_same:
            break
        record = record.parent
    if record is None:
        record = (
            parent if parent.depth >= MAXIMUM_DEPTH else PathRecord(parent.path + name, parent, key, parent.depth + 1)
        )
    parent.children[key] = record
    return record


CHECKED_PER_SLICE = 8000
"""Waiting objects that the end of a slice checks for other holders: about 2 ms."""
OBJECTS_BETWEEN_CLOCKS = 32
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
    """Column of objects; None for an object that is not needed any more, or gone."""
    holders: "array[int]" = field(default_factory=lambda: array("l"))
    """Column of the holders' rows; -1 for a root."""
    path_records: list[PathRecord] = field(default_factory=list)
    """Column of the records of the objects' paths."""
    marks: bytearray = field(default_factory=bytearray)
    """Column of marks: `DRAWN`, `FOLDED`, both or none."""
    weights: "array[float]" = field(default_factory=lambda: array("d"))
    """Column of the number of objects for which each stands, itself included."""
    sizes: "array[float]" = field(default_factory=lambda: array("d"))
    """Column of bytes; only opened objects have one, so the length of this column is the next row to open."""
    samples: dict[int, ItemSample] = field(default_factory=dict)
    """Samples of big containers, by row."""
    late_graphs: list[tuple[Graph, int, PathRecord, int, float]] = field(default_factory=list)
    """Rows of graphs, which are put off until everything else has its owner."""
    records: dict[str, PathRecord] = field(default_factory=dict)
    """Records of opened objects, by path."""
    truncated: bool = False
    """Whether the walk stopped at its maximum number of objects."""
    step: int = 0
    """Step of the program now."""
    released_rows: int = 0
    """Number of rows whose objects were released by the end of the last slice."""
    rows_at_release: int = 0
    """Number of rows at the end of the last slice."""
    next_row_to_check: int = 0
    """The row after the last row that was checked for other holders."""
    changed_records: dict[str, PathRecord] = field(default_factory=dict)
    """Records with a new container since the end of the last slice, by path."""
    next_record_to_check: int = 0
    """The record after the last record that was checked for other holders."""
    is_data_by_class: dict[int, bool] = field(default_factory=dict)
    """Whether objects of a class are held weakly, by the class's id."""


def begin_walk(roots: Roots, *, draw: int, maximum: int) -> HeapWalk:
    """A walk that has not opened an object yet.

    Args:
        roots: roots of the walk; their variables are read now, whenever the walk gets to them.
        draw: number of sampled items of a big container.
        maximum: maximum number of objects to visit.
    """
    # Runs no code of the watched program.
    modules = user_modules(roots)
    walk = Walk(draw, lambda cls: full_name(cls)[0] in modules, maximum, roots.way_ids)
    return HeapWalk(walk, deque(root_tiers(roots, modules)))


def continue_walk_(walking: HeapWalk, deadline: float) -> bool:
    """Go on until a time of `thread_seconds`, or to the end; return whether the walk has ended."""
    # Runs no code of the watched program.
    while _open_waiting_(walking, deadline):
        if walking.groups and not walking.truncated:
            _begin_group_(walking, walking.groups.popleft())
        elif walking.late_graphs and not walking.truncated:
            for row in walking.late_graphs:
                _append_row_(walking, *row)
            walking.late_graphs.clear()
        else:
            return True
    return False


def _begin_group_(walking: HeapWalk, group: Iterable[Named]) -> None:
    """Append the roots of a group that no earlier group has reached."""
    seen_ids = walking.walk.seen_ids
    for path, root in group:
        obj = strong_object(root)
        is_atom = obj is None or (id(type(obj)) in ATOM_TYPE_IDS and obj.__sizeof__() < LONG_TEXT_BYTES)
        if not is_atom and id(obj) not in seen_ids:
            seen_ids.add(id(obj))
            _append_row_(walking, obj, -1, PathRecord(path, None, (path, id(type(obj))), 0), 0, 1.0)


def _append_row_(  # noqa: PLR0917  (a row)
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
    walking.path_records.append(record)
    walking.marks.append(mark)
    walking.weights.append(weight)


def _open_waiting_(walking: HeapWalk, deadline: float) -> bool:
    """Open the objects that wait, until a time of `thread_seconds`; return whether all are open or the walk is full."""
    walk, objects, sizes = walking.walk, walking.objects, walking.sizes
    row = len(sizes)
    clock_row = row + OBJECTS_BETWEEN_CLOCKS  # by rows, not by objects that wait: of a chain only one waits at a time
    while row < len(objects):
        if walk.opened_count >= walk.maximum_objects:
            walking.truncated = True
            return True
        obj = objects[row]
        if type(obj) is OwnWeakref:
            obj = obj()
        opened = open_object(obj, walk)
        sizes.append(allocated_size(opened.size))
        if opened is not OPAQUE:
            walk.opened_count += 1
            _record_on_path_(walking, row, obj, opened)
            if opened.parts:
                _offer_children_(walking, row, opened.parts)
            if opened.sampled:
                walking.samples[row] = ItemSample(len(opened.sampled) // opened.children_per_item, opened.sampled_of)
                _offer_sampled_(walking, row, opened.sampled)
        row += 1
        if row >= clock_row:
            if thread_seconds() >= deadline:
                return row == len(objects)
            clock_row = row + OBJECTS_BETWEEN_CLOCKS
    return True


def _record_on_path_(walking: HeapWalk, row: int, obj: Any, opened: OpenedObject) -> None:
    """Record an opened object on its path; below another one on its own path it only lengthens the chain.

    Args:
        walking: the walk.
        row: row of the object.
        obj: the object.
        opened: the object, opened.
    """
    weight, record = walking.weights[row], walking.path_records[row]
    path = record.path
    entered = walking.records.setdefault(path, record)
    if entered is not record:  # a child of another class has come to the same path
        record = walking.path_records[row] = entered
    if walking.marks[row] & FOLDED:
        record.chained_objects += weight
        return
    is_new = record.longest_container is None or strong_object(record.longest_container) is None
    if is_new:
        record.step = walking.step
    if is_new or opened.length > record.greatest_length:
        record.longest_container, record.greatest_length = obj, opened.length
        walking.changed_records[path] = record
        record.kind, record.capacity = _holding_kind(record, opened), opened.capacity
    record.length += opened.length * weight
    record.weight += weight


def _holding_kind(record: PathRecord, opened: OpenedObject) -> str:
    """The kind of a holding: that of the object, unless its path says that it keeps hooks or figures."""
    if opened.kind in {"dict", "list"} and record.path.endswith("hooks"):
        return "hooks"
    return "figures" if record.path == "pyplot's figures" else opened.kind


def _offer_children_(walking: HeapWalk, row: int, parts: Iterable[Named]) -> None:
    """Count the bytes of atoms in the row `row` at once, and append the other children that were not seen yet."""
    walk, above, weight, size = walking.walk, walking.path_records[row], walking.weights[row], 0
    for name, obj in parts:
        kind = type(obj)
        atom_bytes = _atom_bytes_(walk, obj, kind)
        if atom_bytes >= 0:
            size += atom_bytes
            continue
        record = above.children.get((name, id(kind))) or find_child_record(name, kind, above)
        mark = FOLDED if record.depth <= above.depth else 0
        if kind is Graph:
            walking.late_graphs.append((obj, row, record, mark, weight))
        else:
            _append_row_(walking, obj, row, record, mark, weight)
    if size:
        walking.sizes[row] += size


def _offer_sampled_(walking: HeapWalk, row: int, sampled: Sequence[Named]) -> None:
    """Append the drawn items of the big container in row `row`, each weighted for the items that it represents."""
    above, sample = walking.path_records[row], walking.samples[row]
    weight = walking.weights[row] * sample.item_count / sample.sampled_count
    for name, obj in sampled:
        kind = type(obj)
        atom_bytes = _atom_bytes_(walking.walk, obj, kind)
        if atom_bytes > 0:
            sample.add(atom_bytes)
        elif atom_bytes < 0:
            record = above.children.get((name, id(kind))) or find_child_record(name, kind, above)
            _append_row_(walking, obj, row, record, DRAWN | FOLDED * (record.depth <= above.depth), weight)


def _atom_bytes_(walk: Walk, obj: Any, kind: type) -> int:
    """Bytes of an atom, 0 for an object that was seen, -1 for an object to be opened."""
    # Runs for every child of every object: the ids of atoms are marked here, without a row of their own.
    seen_ids, own_id = walk.seen_ids, id(obj)
    if own_id in seen_ids:
        return 0
    if id(kind) in ATOM_TYPE_IDS:
        if obj is None or obj is True or obj is False:
            return 0
        size: int = obj.__sizeof__()
        if size < LONG_TEXT_BYTES:
            seen_ids.add(own_id)
            return allocated_size(size)
    seen_ids.add(own_id)
    return -1


# --- rest ---


def release_objects_(walking: HeapWalk) -> None:
    """Release objects at the end of a slice, so that the program can free them before the next one."""
    # Between two slices nothing of the watched program may live longer for the walk.
    objects, opened_rows = walking.objects, len(walking.sizes)
    objects[walking.released_rows : opened_rows] = [None] * (opened_rows - walking.released_rows)
    for row in range(max(opened_rows, walking.rows_at_release), len(objects)):
        if _is_data(walking, type(objects[row])):
            objects[row] = OwnWeakref(objects[row])
    # The count is read by C code under `map`: a loop variable would be one more reference.
    begin = walking.next_row_to_check if opened_rows <= walking.next_row_to_check < len(objects) else opened_rows
    for row, count in enumerate(map(sys.getrefcount, islice(objects, begin, begin + CHECKED_PER_SLICE)), begin):
        if count <= _SOLE and not _is_made_by_walk(objects[row]):
            objects[row] = None
    walking.released_rows, walking.rows_at_release, walking.next_row_to_check = (
        opened_rows,
        len(objects),
        begin + CHECKED_PER_SLICE,
    )
    _release_containers_(walking)
    walking.groups = deque(
        [(root[0], _lighter_reference(walking, root[1])) for root in group] for group in walking.groups
    )
    # Nodes of graphs keep tensors for backward. Their ids may be used again now, which counts 200 bytes twice.
    walking.walk.seen_ids.difference_update(map(id, walking.walk.kept_alive))
    walking.walk.kept_alive.clear()


def _release_containers_(walking: HeapWalk) -> None:
    """Hold the longest containers of new paths weakly or not at all, and check some older containers in turn."""
    records = list(walking.records.values())
    begin = walking.next_record_to_check if walking.next_record_to_check < len(records) else 0
    walking.next_record_to_check = begin + CHECKED_PER_SLICE
    due_records = dict.fromkeys((*walking.changed_records.values(), *records[begin : walking.next_record_to_check]))
    walking.changed_records.clear()
    for record in due_records:
        record.longest_container = _lighter_reference(walking, record.longest_container)


def _is_data(walking: HeapWalk, kind: type) -> bool:
    """Whether objects of a class are arrays or tensors, which a walk holds weakly between slices."""
    weakly = walking.is_data_by_class.get(id(kind))
    if weakly is None:
        weakly = walking.is_data_by_class[id(kind)] = any(full_name(owner) in _DATA_CLASSES for owner in mro(kind))
    return weakly


def _lighter_reference(walking: HeapWalk, obj: Any) -> Any:
    """The replacement for an object in a place of the walk: None if nobody else holds it, a weak reference to data."""
    if _is_made_by_walk(obj):
        return obj
    if _count_references(obj) <= _SOLE_GIVEN:
        return None
    return OwnWeakref(obj) if _is_data(walking, type(obj)) else obj


def _count_references(obj: object) -> int:
    """Number of references to an object, including those of this call; comparable with `_SOLE_GIVEN`."""
    return sys.getrefcount(obj)


_DATA_CLASSES = {("numpy", "ndarray"), ("torch._C", "TensorBase")}


def _is_made_by_walk(obj: object) -> bool:
    """Whether the walk made the object itself, so that nothing of the program lives longer for it."""
    return type(obj) is OwnWeakref or type(obj) is Graph


def _measure_refcount() -> int:
    """The count of `getrefcount`, under `map`, for an object that only a list holds."""
    (count,) = map(sys.getrefcount, [object()])
    return count


def _measure_nested_refcount() -> int:
    """The count of `_count_references` for an object that only a record holds, passed on through one function."""
    # Measured, not written down: how many references a call adds differs between versions of CPython.
    record = PathRecord("", None, ("", 0), 0)
    record.longest_container = object()

    def count_given(obj: object) -> int:
        return _count_references(obj)

    return count_given(record.longest_container)


_SOLE, _SOLE_GIVEN = _measure_refcount(), _measure_nested_refcount()
