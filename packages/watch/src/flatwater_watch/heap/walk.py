"""The walk of a census: breadth-first from the roots, in slices between which the program goes on.

To open an object is to read its size and its children, the objects that it holds. An object waits from the time at
which the walk has come to it until it is opened. An atom, such as a number or a short text, is only weighed. Of a big
container a sample of the items is opened, and each sampled object has a weight: the number of objects it stands for.

The walk keeps objects as rows of columns, not as nodes: a million nodes would set off collections of the whole heap. A
row is the number of an object, the same in all columns. Rows are opened in ascending order, so that a holder has a
lower row than its children.

A path says how an object is reached from a root, such as `train.AGENTS[*].history`. Objects on like paths share one
record. A linked structure folds: its objects get the path of the first one below the head.

Objects that wait to be opened should not live longer for the walk. Between two slices it holds arrays and tensors
weakly, graphs by their tensors, and containers until the end of a slice finds that nobody else holds them; each slice
checks 8000, in turn. An object that is made between two slices at the address of a freed object may pass for it.
"""

import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any

from flatwater_watch.heap.arrays import Graph
from flatwater_watch.heap.children import ATOM_TYPE_IDS, LONG_TEXT_BYTES, is_short_atom, open_object
from flatwater_watch.heap.item_sample import ItemSample
from flatwater_watch.heap.modules import known_runtime_modules
from flatwater_watch.heap.raw import LIST_REFCOUNT, full_name, mro
from flatwater_watch.heap.roots import Roots, root_groups, user_modules
from flatwater_watch.heap.view import (
    OPAQUE,
    Named,
    OpenedObject,
    OwnWeakref,
    Walk,
    allocated_size,
    strong_object,
)
from flatwater_watch.meters.mappings import descendant_memory
from flatwater_watch.meters.system_calls import thread_seconds

MAXIMUM_DEPTH = 12
"""Hops from the root after which paths get no longer: so deep lies a chain of cells, not a place with a name."""


@dataclass(eq=False, repr=False, slots=True)
class PathRecord:
    """A path, with the containers that were found on it."""

    path: str
    """Readable path, as in `Holding.path`."""
    parent: "PathRecord | None"
    """Record of the holder; None for a root."""
    key: tuple[str, int]
    """Last part of the path, and the id of the class."""
    depth: int
    """Hops from the root."""
    longest_container: Any = None
    """The container with the most items on this path, which stands for all: another one may be empty."""
    greatest_length: int = 0
    """Number of items in it."""
    kind: str = ""
    capacity: int | None = None
    step: int = 0
    """Step at which the first container was opened."""
    length: float = 0.0
    """Sum of the containers' lengths, weighted as below."""
    squared_length: float = 0.0
    """Sum of the squares of their lengths, weighted alike."""
    opened_count: int = 0
    """Number of containers that were opened."""
    weight: float = 0.0
    """Number of containers on this path, each weighted for the unseen containers that it represents."""
    bytes: float = 0.0
    """Bytes below all containers on this path, known when the walk is summed."""
    usual_bytes: float = 0.0
    """Bytes of the items of sampled containers, without the largest."""
    bytes_variance: float = 0.0
    """Variance of `bytes`, as a sample is not all."""
    chained_objects: float = 0.0
    """Number of objects of a linked structure below its first one."""
    children: dict[tuple[str, int], "PathRecord"] = field(default_factory=dict)
    """Records of the children by their keys."""


def add_child_record_(name: str, kind: type, parent: PathRecord) -> PathRecord:
    """Add the record for a child to `parent.children`, and return it: an ancestor's if the path folds, else a new one.

    A linked structure folds into one path: `head.next.next` gets the record of `head.next`. From `MAXIMUM_DEPTH` hops
    on no path gets longer: a child gets the nearest record above it of its class, else its parent's.

    Args:
        name: the child's part of the path: `.next`, or `[*]` for an item.
        kind: the child's class.
        parent: record of the holder.
    """
    key = (name, id(kind))
    record: PathRecord | None = None
    if parent.depth >= MAXIMUM_DEPTH:
        record = next((ancestor for ancestor in _record_and_holders(parent) if ancestor.key[1] == id(kind)), parent)
    elif not name.startswith("["):  # items do not fold: a list within a list is another one
        record = next((ancestor for ancestor in _record_and_holders(parent) if ancestor.key == key), None)
    if record is None:
        record = PathRecord(parent.path + name, parent, key, parent.depth + 1)
    parent.children[key] = record
    return record


def _record_and_holders(record: PathRecord) -> Iterator[PathRecord]:
    """Yield a record and the records of its holders, up to the root."""
    holder: PathRecord | None = record
    while holder is not None:
        yield holder
        holder = holder.parent


CHECKED_PER_SLICE = 8000
"""Waiting objects that the end of a slice checks for other holders: about 2 ms."""
OBJECTS_BETWEEN_CLOCKS = 32
"""Objects opened between two looks at the clock: about 0.3 ms."""


SAMPLED, FOLDED = 1, 2
"""Marks of rows: a sampled item, which stands for others; an object below another object on the same path."""


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
    """Column of marks: `SAMPLED`, `FOLDED`, both or none."""
    weights: "array[float]" = field(default_factory=lambda: array("d"))
    """Column of the number of objects for which each stands, itself included."""
    sizes: "array[float]" = field(default_factory=lambda: array("d"))
    """Column of bytes; only opened objects have one, so the length of this column is the next row to open."""
    samples: dict[int, ItemSample] = field(default_factory=dict)
    """Samples of big containers, by row."""
    late_graphs: list[tuple[Graph, int, PathRecord, int, float]] = field(default_factory=list)
    """Rows of graphs, put off until all else has its owner: object, holder, record, mark, weight (`_append_row_`)."""
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
    is_array_by_class: dict[int, bool] = field(default_factory=dict)
    """Whether objects of a class are arrays or tensors, by the class's id."""


def begin_walk(roots: Roots, *, sampled_items: int, maximum: int) -> HeapWalk:
    """Begin a walk without opening an object.

    Args:
        roots: roots of the walk; their variables are read now, and opened when the walk gets to them.
        sampled_items: number of sampled items of a big container.
        maximum: maximum number of objects to visit.
    """
    # Runs no code of the watched program.
    modules = user_modules(roots)
    user_names = {*modules, *known_runtime_modules()}  # a module that was made at run time is the user's data
    walk = Walk(
        sampled_items=sampled_items,
        is_user_class=lambda cls: full_name(cls)[0] in user_names,
        maximum_objects=maximum,
        must_open_ids=roots.must_open_ids,
    )
    # The object that stands for a child process gets the child's bytes: see `instance_opener`.
    walk.child_bytes.update(descendant_memory().private_by_child)
    return HeapWalk(walk, deque(root_groups(roots, modules)))


def continue_walk_(heap_walk: HeapWalk, deadline: float) -> bool:
    """Go on with a walk until `thread_seconds` reaches the deadline; return whether the walk has ended."""
    # Runs no code of the watched program.
    # One group after the other, so that objects belong to the first group that reaches them; autograd graphs come last.
    while _open_waiting_objects_(heap_walk, deadline):
        if heap_walk.groups and not heap_walk.truncated:
            _append_roots_(heap_walk, heap_walk.groups.popleft())
        elif heap_walk.late_graphs and not heap_walk.truncated:
            for row in heap_walk.late_graphs:
                _append_row_(heap_walk, *row)
            heap_walk.late_graphs.clear()
        else:
            return True
    return False


def _append_roots_(heap_walk: HeapWalk, group: Iterable[Named]) -> None:
    """Append a row for each root of a group that no earlier group has reached, without numbers and short texts."""
    seen_ids = heap_walk.walk.seen_ids
    for path, root in group:
        obj = strong_object(root)
        if obj is not None and not is_short_atom(obj) and id(obj) not in seen_ids:
            seen_ids.add(id(obj))
            record = PathRecord(path, parent=None, key=(path, id(type(obj))), depth=0)
            # Holder -1: none; mark 0: neither sampled nor folded.
            _append_row_(heap_walk, obj, holder=-1, record=record, mark=0, weight=1.0)


def _append_row_(  # noqa: PLR0917  (a row)
    heap_walk: HeapWalk, obj: object, holder: int, record: PathRecord, mark: int, weight: float
) -> None:
    """Append a row to all columns of a walk but `sizes`, as the object has none before it is opened."""
    heap_walk.objects.append(obj)
    heap_walk.holders.append(holder)
    heap_walk.path_records.append(record)
    heap_walk.marks.append(mark)
    heap_walk.weights.append(weight)


def _open_waiting_objects_(heap_walk: HeapWalk, deadline: float) -> bool:
    """Open the waiting objects until `thread_seconds` reaches the deadline, and append rows for their children.

    Return True if no object waits any more, or the walk has opened its maximum number of objects.
    """
    walk, objects, sizes = heap_walk.walk, heap_walk.objects, heap_walk.sizes
    row = len(sizes)  # the first row that waits, as opened objects alone have a size
    # The clock is read by rows, not by the number of waiting objects: of a chain only one object waits at a time.
    clock_row = row + OBJECTS_BETWEEN_CLOCKS
    while row < len(objects):
        if walk.opened_count >= walk.maximum_objects:
            heap_walk.truncated = True
            return True
        obj = objects[row]
        if type(obj) is OwnWeakref:  # held weakly by the walk: None if the program has freed it
            obj = obj()
        opened_object = open_object(obj, walk)
        sizes.append(allocated_size(opened_object.size))
        if opened_object is not OPAQUE:
            walk.opened_count += 1
            _record_on_path_(heap_walk, row, obj, opened_object)
            if opened_object.parts:
                _append_children_(heap_walk, row, opened_object.parts)
            if opened_object.sampled:
                sampled_count = len(opened_object.sampled) // opened_object.children_per_item
                heap_walk.samples[row] = ItemSample(opened_object.length, [0.0] * sampled_count, first_row=len(objects))
                _append_sampled_children_(heap_walk, row, opened_object.sampled, opened_object.children_per_item)
        row += 1
        if row >= clock_row:
            if thread_seconds() >= deadline:
                return row == len(objects)
            clock_row = row + OBJECTS_BETWEEN_CLOCKS
    return True


def _record_on_path_(heap_walk: HeapWalk, row: int, obj: Any, opened_object: OpenedObject) -> None:
    """Add an opened object's length and kind to the record of its path; a folded object only counts as one link."""
    weight, record = heap_walk.weights[row], heap_walk.path_records[row]
    path = record.path
    first_record = heap_walk.records.setdefault(path, record)
    if first_record is not record:  # a child of another class has come to the same path
        record = heap_walk.path_records[row] = first_record
    if heap_walk.marks[row] & FOLDED:
        record.chained_objects += weight
        return
    is_new = record.longest_container is None or strong_object(record.longest_container) is None
    if is_new:  # the first container on this path, or one after all earlier ones were freed
        record.step = heap_walk.step
    if is_new or opened_object.length > record.greatest_length:
        record.longest_container, record.greatest_length = obj, opened_object.length
        heap_walk.changed_records[path] = record
        record.kind, record.capacity = _holding_kind(record, opened_object), opened_object.capacity
    record.length += opened_object.length * weight
    record.squared_length += opened_object.length**2 * weight
    record.weight += weight
    record.opened_count += 1


def _holding_kind(record: PathRecord, opened_object: OpenedObject) -> str:
    """Return the kind that a report gives for a path: the object's kind, or `hooks` or `figures` by the path's name."""
    if opened_object.kind in {"dict", "list"} and record.path.endswith("hooks"):
        return "hooks"
    return "figures" if record.path == "pyplot's figures" else opened_object.kind


def _append_children_(heap_walk: HeapWalk, row: int, parts: Iterable[Named]) -> None:
    """Add the bytes of new atoms among the children to row `row`, and append a row for each other new child.

    The parts are the children that count once each, with their names.
    """
    walk, holder_record, weight = heap_walk.walk, heap_walk.path_records[row], heap_walk.weights[row]
    size = 0
    for name, obj in parts:
        kind = type(obj)
        atom_bytes = _mark_seen_and_weigh_(walk, obj, kind)
        if atom_bytes != TO_BE_OPENED:  # an atom, or an object that was seen before: 0
            size += atom_bytes
            continue
        record = holder_record.children.get((name, id(kind))) or add_child_record_(name, kind, holder_record)
        # The record of an ancestor is no deeper than that of the holder: the path folds.
        mark = FOLDED if record.depth <= holder_record.depth else 0
        if kind is Graph:  # opened after all other objects
            heap_walk.late_graphs.append((obj, row, record, mark, weight))
        else:
            _append_row_(heap_walk, obj, row, record, mark, weight)
    if size:
        heap_walk.sizes[row] += size


def _append_sampled_children_(
    heap_walk: HeapWalk, row: int, sampled_children: Sequence[Named], children_per_item: int
) -> None:
    """Append a row for each sampled child of a big container, weighted for the items that it represents.

    An item may have several children, as an entry of a dict has a key and a value: they come one after the other. The
    bytes of atoms are added to the container's sample at once.
    """
    holder_record, sample = heap_walk.path_records[row], heap_walk.samples[row]
    weight = heap_walk.weights[row] * sample.item_count / sample.sampled_count
    for child_number, (name, obj) in enumerate(sampled_children):
        item_number, kind = child_number // children_per_item, type(obj)
        atom_bytes = _mark_seen_and_weigh_(heap_walk.walk, obj, kind)
        if atom_bytes > 0:
            sample.add(item_number, atom_bytes)
        elif atom_bytes == TO_BE_OPENED:  # else it was counted before
            record = holder_record.children.get((name, id(kind))) or add_child_record_(name, kind, holder_record)
            fold_mark = FOLDED if record.depth <= holder_record.depth else 0  # as in `_append_children_`
            sample.items_by_row.append(item_number)
            _append_row_(heap_walk, obj, row, record, SAMPLED | fold_mark, weight)


TO_BE_OPENED, COUNTED_BEFORE = -1, 0
"""Results of `_mark_seen_and_weigh_` in place of bytes."""


def _mark_seen_and_weigh_(walk: Walk, obj: Any, kind: type) -> int:
    """Mark an object of class `kind` as seen; return `COUNTED_BEFORE`, `TO_BE_OPENED` or, of an atom, its bytes.

    An atom is a number, a short text or another small object without children; it gets no row. None, True and False,
    which exist once, have 0 bytes.
    """
    # Runs for every child of every object, so it does three things at once.
    seen_ids, own_id = walk.seen_ids, id(obj)
    if own_id in seen_ids:
        return COUNTED_BEFORE
    if id(kind) in ATOM_TYPE_IDS:
        if obj is None or obj is True or obj is False:
            return COUNTED_BEFORE
        size: int = obj.__sizeof__()
        if size < LONG_TEXT_BYTES:
            seen_ids.add(own_id)
            return allocated_size(size)
    seen_ids.add(own_id)
    return TO_BE_OPENED


PATH_SAMPLED_ITEMS, MAXIMUM_PATH_OBJECTS = 8, 3000
"""Sampled items of a big container, and maximum objects, of a walk for a path: it takes 30 ms, and is not taken in
slices."""


def find_path(roots: Roots, object_id: int, kind: type) -> str:
    """Return the path of an object that was met in running code, by its id and class.

    It is empty if a short walk from the roots does not reach the object.
    """
    # Runs no code of the watched program.
    roots = roots._replace(must_open_ids=frozenset({object_id}))
    heap_walk = begin_walk(roots, sampled_items=PATH_SAMPLED_ITEMS, maximum=MAXIMUM_PATH_OBJECTS)
    continue_walk_(heap_walk, inf)
    # The class too, as the object may have gone since it was met, and another may have its id.
    rows = zip(heap_walk.objects, heap_walk.path_records, strict=True)
    return next((record.path for obj, record in rows if id(obj) == object_id and type(obj) is kind), "")


# --- between two slices ---


def release_objects_(heap_walk: HeapWalk) -> None:
    """Release objects at the end of a slice, so that the program can free them before the next one.

    Opened objects are dropped, waiting arrays are held weakly, waiting objects that only the walk holds are dropped.
    """
    # Between two slices nothing of the watched program may live longer for the walk.
    objects, opened_rows = heap_walk.objects, len(heap_walk.sizes)
    # Opened objects are not needed any more.
    objects[heap_walk.released_rows : opened_rows] = [None] * (opened_rows - heap_walk.released_rows)
    # Arrays and tensors that came to wait in this slice are held weakly from now on.
    for row in range(max(opened_rows, heap_walk.rows_at_release), len(objects)):
        if _is_array_class(heap_walk, type(objects[row])):
            objects[row] = OwnWeakref(objects[row])
    # Of the waiting objects those whose turn it is are checked: an object that only the walk holds is released.
    turn_goes_on = opened_rows <= heap_walk.next_row_to_check < len(objects)
    turn_begin = heap_walk.next_row_to_check if turn_goes_on else opened_rows  # again from the first row that waits
    turn_end = turn_begin + CHECKED_PER_SLICE
    # The count is read by C code under `map`: a loop variable would be one more reference.
    for row, count in enumerate(map(sys.getrefcount, islice(objects, turn_begin, turn_end)), turn_begin):
        if count <= LIST_REFCOUNT and not _is_made_by_walk(objects[row]):
            objects[row] = None
    heap_walk.released_rows = opened_rows
    heap_walk.rows_at_release = len(objects)
    heap_walk.next_row_to_check = turn_end
    _release_containers_(heap_walk)
    # `root[1]`, not a loop variable, which would be one more reference.
    heap_walk.groups = deque(
        [(root[0], _lighter_reference(heap_walk, root[1])) for root in group] for group in heap_walk.groups
    )
    # Nodes of graphs keep tensors for backward. Their ids may be used again now, which counts 200 bytes twice.
    heap_walk.walk.seen_ids.difference_update(map(id, heap_walk.walk.kept_alive))
    heap_walk.walk.kept_alive.clear()
    heap_walk.walk.contexts = None


def _release_containers_(heap_walk: HeapWalk) -> None:
    """Let go of containers that only the records of paths hold, and hold arrays weakly.

    The records that changed in this slice are checked, and `CHECKED_PER_SLICE` of all: those whose turn it is.
    """
    records = list(heap_walk.records.values())
    turn_begin = heap_walk.next_record_to_check if heap_walk.next_record_to_check < len(records) else 0
    heap_walk.next_record_to_check = turn_end = turn_begin + CHECKED_PER_SLICE
    # Each once, as a changed record may have its turn as well.
    due_records = dict.fromkeys((*heap_walk.changed_records.values(), *records[turn_begin:turn_end]))
    heap_walk.changed_records.clear()
    for record in due_records:
        record.longest_container = _lighter_reference(heap_walk, record.longest_container)


def _is_array_class(heap_walk: HeapWalk, kind: type) -> bool:
    """Return whether objects of a class are arrays or tensors, which a walk holds weakly between slices."""
    is_array = heap_walk.is_array_by_class.get(id(kind))
    if is_array is None:
        is_array = any(full_name(owner) in _ARRAY_CLASSES for owner in mro(kind))
        heap_walk.is_array_by_class[id(kind)] = is_array
    return is_array


def _lighter_reference(heap_walk: HeapWalk, obj: Any) -> Any:
    """Return the walk's reference to an object between slices: None if nobody else holds the object.

    The reference to an array or a tensor is weak, to other objects strong.
    """
    if _is_made_by_walk(obj):
        return obj
    if _count_references(obj) <= _SOLE_NESTED_REFCOUNT:
        return None
    return OwnWeakref(obj) if _is_array_class(heap_walk, type(obj)) else obj


def _count_references(obj: object) -> int:
    """Return the number of references to an object, this call's included: compare it with `_SOLE_NESTED_REFCOUNT`."""
    return sys.getrefcount(obj)


_ARRAY_CLASSES = {("numpy", "ndarray"), ("torch._C", "TensorBase")}


def _is_made_by_walk(obj: object) -> bool:
    """Return whether the walk made the object itself, so that nothing of the program lives longer for it."""
    return type(obj) is OwnWeakref or type(obj) is Graph


def _measure_nested_refcount() -> int:
    """Return what `_count_references` counts in `_lighter_reference` for an object that only a record holds.

    The calls themselves hold the object too, and how many references they add differs between versions of CPython.
    """
    record = PathRecord("", parent=None, key=("", 0), depth=0)
    record.longest_container = object()

    def count_in_call(obj: object) -> int:  # in place of `_lighter_reference`
        return _count_references(obj)

    return count_in_call(record.longest_container)


_SOLE_NESTED_REFCOUNT = _measure_nested_refcount()
