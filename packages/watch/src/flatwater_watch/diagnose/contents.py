"""The contents of a container: the arrays, tensors and texts below its newest items, and a description of both.

Arrays, tensors and long texts are the leaves: objects with many bytes that lead to no others. The base of an array is
the larger array of which it is a view, and which it keeps alive.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal, NamedTuple

from flatwater_watch.diagnose.newest_items import MAXIMUM_OPENED, SINGLE_ITEM_KINDS, fresh_walk
from flatwater_watch.heap.arrays import Graph, array_figures
from flatwater_watch.heap.census import Holding
from flatwater_watch.heap.children import is_short_atom, open_object
from flatwater_watch.heap.functions import cache_name
from flatwater_watch.heap.instances import is_running
from flatwater_watch.heap.raw import callable_name, class_name, is_class, own_size
from flatwater_watch.heap.shared_memory import lies_in_file
from flatwater_watch.heap.view import OPAQUE, Walk
from flatwater_watch.meters.mappings import descendant_memory
from flatwater_watch.meters.proc import thread_count
from flatwater_watch.thresholds import OWNING

ARRAY_PREFERENCE = 1.25
"""Factor of the bytes of arrays in a comparison with those of other classes."""
MAXIMUM_LEAVES = 24
"""Maximum number of leaves of a container."""


Resource = Literal["", "child process", "mapped file", "thread"]
"""What an object keeps open in the system until a call ends it."""


@dataclass(frozen=True, eq=False, repr=False)
class Contents:
    """The contents of a container, judged by its newest items."""

    count: int
    """Number of objects of the main content, in all containers on the path."""
    what: str
    """The main content: "120 × float32[64, 504]"."""
    item: str
    """One item, in a few words: "Tensor with its autograd graph"."""
    has_graph: bool
    """Whether any item carries an autograd graph."""
    has_base: bool
    """Whether the items are views that keep larger bases alive."""
    resource: Resource
    """What the items keep open in the system."""
    leaves: tuple[Any, ...]
    """Up to 24 objects of the main content, those of the newest items last."""
    arrays: tuple[Any, ...]
    """The largest array of each item, oldest first."""


class _Leaf(NamedTuple):
    """An array, tensor or text below an item."""

    obj: Any
    bytes: int
    label: str
    """Type and size, for a description of the main content."""
    has_graph: bool
    base_bytes: int
    """Bytes of a larger base that it keeps alive as a view; 0 if there is none."""


class _MainContent(NamedTuple):
    """The objects that have most bytes of a container; for the fields see `Contents`."""

    number: int
    """Number of the objects, in all containers on the path."""
    label: str
    """One of the objects in words: "float32[64, 504]"."""
    item: str
    objects: tuple[Any, ...]
    """Objects of the newest items, as in `Contents.leaves`."""
    arrays: tuple[Any, ...]


def describe_contents(holding: Holding, newest: Sequence[Any]) -> Contents:
    """Describe a container by its newest items, which stand for all items.

    The main content is the arrays, tensors and texts below the items (leaves), if they have half of the items' bytes,
    carry autograd graphs or are views that keep larger arrays alive; else it is the items themselves.

    Args:
        holding: the container in a census.
        newest: newest items of the container, oldest first; empty if it has none.
    """
    walk = fresh_walk(MAXIMUM_LEAVES)
    walk.child_bytes.update(descendant_memory().private_by_child)
    child_count = len(walk.child_bytes)  # before the items are opened, as that takes their child processes out of it
    leaves_by_item = [_find_leaves(item, walk) for item in newest]
    leaves = [leaf for item_leaves in leaves_by_item for leaf in item_leaves]
    item_count = 1 if holding.kind in SINGLE_ITEM_KINDS else holding.length
    leaf_bytes, base_bytes = sum(leaf.bytes for leaf in leaves), sum(leaf.base_bytes for leaf in leaves)
    has_graph = any(leaf.has_graph for leaf in leaves)
    resource = _held_resource(newest, leaves, walk, child_count, item_count * holding.instances)
    has_base = resource != "mapped file" and base_bytes > 0 and base_bytes >= leaf_bytes / 2  # a file is a base too
    ending = _kept_words(resource, has_graph=has_graph, has_base=has_base)
    # All items are taken to be equally large.
    newest_bytes = holding.bytes / max(item_count * holding.instances, 1) * len(newest)
    # Leaves below a class are what its functions reach, not its content.
    if leaves and not is_class(newest[-1]) and (has_graph or has_base or leaf_bytes >= newest_bytes / 2):
        main = _main_leaves(holding, newest, leaves_by_item, item_count, ending)
    else:
        main = _main_items(holding, newest, item_count, ending)
    return Contents(
        count=main.number,
        what=f"{main.number} × {main.label}",
        item=main.item,
        has_graph=has_graph,
        has_base=has_base,
        resource=resource,
        leaves=main.objects,
        arrays=main.arrays,
    )


def _main_leaves(
    holding: Holding, newest: Sequence[Any], leaves_by_item: Sequence[Sequence[_Leaf]], item_count: int, ending: str
) -> _MainContent:
    """Return the leaves as the main content: arrays, tensors and texts below the newest items.

    Args:
        holding: the container in a census.
        newest: newest items of the container.
        leaves_by_item: leaves below each of these items.
        item_count: number of items of one container.
        ending: words on what an item keeps alive.
    """
    leaves = [leaf for item_leaves in leaves_by_item for leaf in item_leaves]
    label, leaves_per_item = _main_label(leaves, len(newest))
    # One array for each item, in the order of the items, so that neighbours can be compared for redundancy.
    largest = [max(item_leaves, key=lambda leaf: leaf.bytes) for item_leaves in leaves_by_item if item_leaves]
    return _MainContent(
        number=round(leaves_per_item * item_count) * holding.instances,
        label=label,
        item=_describe_item(newest[-1], ending),
        objects=_largest_objects(leaves_by_item),
        arrays=tuple(leaf.obj for leaf in largest),
    )


def _main_items(holding: Holding, newest: Sequence[Any], item_count: int, ending: str) -> _MainContent:
    """Return the items of the class with the most bytes as the main content; for the arguments see `_main_leaves`."""
    main_items, main_share = _heaviest_class(newest)
    item = _describe_item(main_items[-1], ending) if main_items else "nothing yet"
    if holding.kind == "figures":  # users do not know pyplot's managers, which are the items
        item = "Figure"
    number = round(item_count * main_share) * holding.instances
    size_words = f" of {holding.bytes // max(1, number)} bytes" if holding.kind == "bytes" else ""
    objects = tuple(main_items[-MAXIMUM_LEAVES:])
    return _MainContent(number=number, label=f"{item}{size_words}", item=item, objects=objects, arrays=())


def _kept_words(resource: Resource, *, has_graph: bool, has_base: bool) -> str:
    """Return the end of a phrase on an item: the heaviest of what it keeps alive, or empty without any."""
    if has_graph:
        return " with its autograd graph"
    if resource:
        return f" with its {resource}"
    return ", a view of a larger base" if has_base else ""


def _held_resource(
    newest: Sequence[Any], leaves: Sequence[_Leaf], walk: Walk, child_count: int, item_count: int
) -> Resource:
    """Return what each item of a container keeps open in the system; empty for nothing, or if the items share it.

    Args:
        newest: newest items of the container.
        leaves: arrays, tensors and texts below these items.
        walk: record of the objects that were opened below the items; opening the object of a child process has taken
            the child out of `walk.child_bytes`.
        child_count: number of child processes before that.
        item_count: number of items of all containers on the path.
    """
    # The newest item, or its last leaf, stands for all.
    if any(lies_in_file(obj, walk) for obj in (*newest[-1:], *(leaf.obj for leaf in leaves[-1:]))):
        return "mapped file"
    # Half of the newest items, and half of all, must have one of their own; fewer share it.
    minimum_of_newest, minimum_of_all = max(1, len(newest)) / 2, item_count / 2
    children_below_newest = child_count - len(walk.child_bytes)
    if children_below_newest >= minimum_of_newest and child_count >= minimum_of_all:
        return "child process"
    threads_below_newest = sum(map(is_running, walk.kept_alive))
    return "thread" if threads_below_newest >= minimum_of_newest and thread_count() >= minimum_of_all else ""


def _heaviest_class(items: Sequence[Any]) -> tuple[Sequence[Any], float]:
    """Return the items of the class with the most bytes, and their share of the number of items, 0 to 1.

    A container such as a pickler's memo has items of many classes. Arrays count for `ARRAY_PREFERENCE` times their
    bytes, so that the choice does not change with each census when another class has about as many.
    """
    bytes_by_class: dict[int, float] = {}  # by the id of the class
    for item in items:
        figures = array_figures(item)  # None for any other object than an array or a tensor
        # None, True and False take no bytes, as each exists only once.
        own_bytes = 0 if item is None or type(item) is bool else own_size(item)
        size = own_bytes if figures is None else ARRAY_PREFERENCE * max(own_bytes, figures.base_bytes)
        bytes_by_class[id(type(item))] = bytes_by_class.get(id(type(item)), 0.0) + size
    if len(bytes_by_class) <= 1:
        return items, 1.0
    heaviest = max(bytes_by_class, key=lambda class_id: bytes_by_class[class_id])
    chosen_items = [item for item in items if id(type(item)) == heaviest]
    return chosen_items, len(chosen_items) / len(items)


def _main_label(leaves: Sequence[_Leaf], item_count: int) -> tuple[str, float]:
    """Return the label (type and size) whose leaves have the most bytes together, and their number per item."""
    bytes_by_label: dict[str, int] = {}
    for leaf in leaves:
        bytes_by_label[leaf.label] = bytes_by_label.get(leaf.label, 0) + leaf.bytes
    label = max(bytes_by_label, key=lambda label: bytes_by_label[label])
    return label, sum(leaf.label == label for leaf in leaves) / item_count


def _largest_objects(leaves_by_item: Sequence[Sequence[_Leaf]]) -> tuple[Any, ...]:
    """Return the largest leaves, equally many of each item and at most `MAXIMUM_LEAVES` in all, the newest last."""
    leaves_per_item = max(MAXIMUM_LEAVES // max(len(leaves_by_item), 1), 1)
    largest: list[_Leaf] = []
    for item_leaves in leaves_by_item:
        largest += sorted(item_leaves, key=lambda leaf: -leaf.bytes)[:leaves_per_item]
    return tuple(leaf.obj for leaf in largest[-MAXIMUM_LEAVES:])


def _find_leaves(item: Any, walk: Walk) -> list[_Leaf]:
    """Return the arrays, tensors and long texts that an item leads to, breadth first, and mark them as seen in `walk`.

    Objects that the walk has seen before are left out. At most `MAXIMUM_OPENED // MAXIMUM_LEAVES` objects are opened:
    one item's part of the maximum for all items.
    """
    leaves: list[_Leaf] = []
    queue = deque([item])
    limit = walk.opened_count + MAXIMUM_OPENED // MAXIMUM_LEAVES
    while queue and walk.opened_count < limit:
        obj = queue.popleft()
        # A class to which an item refers is no part of the item, and leads to all that the class's functions reach.
        if id(obj) in walk.seen_ids or type(obj) is Graph or (obj is not item and issubclass(type(obj), type)):
            continue
        if is_short_atom(obj):
            continue
        walk.seen_ids.add(id(obj))
        walk.kept_alive.append(obj)  # so that no other object gets its id
        walk.opened_count += 1
        opened_object = open_object(obj, walk)
        if opened_object.kind in {"array", "text"}:
            leaves.append(_make_leaf(obj, opened_object.size))
            if opened_object.kind == "array" and not opened_object.sampled:  # of numbers, which are no objects
                continue
        if opened_object is not OPAQUE:  # which the census does not enter
            queue.extend(_child_objects(opened_object.parts))
            queue.extend(_child_objects(opened_object.sampled))
    return leaves


def _child_objects(children: Iterable[tuple[str, Any]]) -> list[Any]:
    """Return the children of an object without their names, and without its class."""
    return [child for name, child in children if name != ".<class>"]


def _make_leaf(obj: Any, size: int) -> _Leaf:
    """Return an array, tensor or text of `size` bytes as a leaf, with its base if that is much larger than itself."""
    figures = array_figures(obj)
    if figures is None:
        return _Leaf(obj, size, f"{class_name(type(obj))} of {size} bytes", has_graph=False, base_bytes=0)
    is_numpy = figures.has_graph is None  # True or False for a tensor
    own_bytes = figures.bytes if is_numpy else figures.bytes or size  # the figures of a sparse tensor say 0 bytes
    keeps_base = figures.base_bytes > OWNING.minimum_base_ratio * own_bytes
    kept_bytes = figures.base_bytes if keeps_base else 0
    # The storage of a tensor, which `size` includes, may be larger than its elements.
    leaf_bytes = own_bytes if is_numpy else max(own_bytes, size)
    return _Leaf(obj, leaf_bytes, figures.label, has_graph=bool(figures.has_graph), base_bytes=kept_bytes)


def _describe_item(obj: Any, ending: str) -> str:
    """Return an item in a few words: "dict of 3 keys with its autograd graph", "closure of on_step (optimizer)".

    Args:
        obj: the item.
        ending: words on what it keeps alive, such as " with its autograd graph"; may be empty.
    """
    # Never by its `repr`, which runs the program's code and prints whole tensors.
    if type(obj) is FunctionType:
        return f"closure of {callable_name(obj)} ({', '.join(obj.__code__.co_freevars)})"
    description = class_name(type(obj))
    if any(issubclass(type(obj), kind) for kind in (dict, list, tuple, set, frozenset, deque)):
        opened_object = open_object(obj, fresh_walk(MAXIMUM_LEAVES))
        description = f"{description} of {opened_object.length} {'keys' if opened_object.kind == 'dict' else 'items'}"
    return description + ending


def describe_container(obj: Any, holding: Holding) -> str:
    """Return a container in a few words: "list of 120", "deque of 500, at most 1000", "table of 15 hooks"."""
    length, kind = holding.length, class_name(type(obj))
    bound_text = "" if holding.capacity is None else f", at most {holding.capacity}"
    if holding.kind in {"queue", "deque", "list", "tuple", "set", "dict"}:
        return f"{kind} of {length}{bound_text}"
    if holding.kind == "cache":
        return f"cache of {cache_name(obj)}() with {length} results{bound_text or ', unbounded'}"
    if type(obj) is FunctionType:
        return f"closure of {callable_name(obj)}"
    words_by_kind = {
        "hooks": f"table of {length} hooks",
        "figures": f"{length} open figures",
        "graph": f"autograd graph of {length} nodes",
    }
    return words_by_kind.get(holding.kind, kind)  # of any other kind the class alone
