"""What is in a container: its newest items, the arrays below them, and words for both."""

import sys
import tracemalloc
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, repeat
from types import FunctionType
from typing import Any

from flatwater_watch.heap.arrays import Graph, array_figures
from flatwater_watch.heap.census import Holding
from flatwater_watch.heap.children import ATOMS, LONG_TEXT, inner_container, look_object
from flatwater_watch.heap.functions import cache_name, newest_results
from flatwater_watch.heap.raw import callable_name, class_name, is_a, own_size, read_stable
from flatwater_watch.heap.view import OPAQUE, Walk
from flatwater_watch.meters.allocations import allocation_frames
from flatwater_watch.thresholds import SHIPPED

OWNING = SHIPPED.owning

SAMPLED, FAR = 4096, 1_000_000
"""Items of a set that are asked whether they were made while allocations are traced, as a set has no order; among the
first so many, which takes 10 to 30 ms."""

LEAVES = 24
"""Objects handed on at most."""

MOST = 3000
"""Objects that are looked at below one item at most."""


@dataclass(frozen=True)
class Contents:
    """A container's content, judged by its newest items."""

    count: int
    what: str
    item: str
    """One item, in a few words: "Tensor with its autograd graph"."""
    graph: bool
    base: bool
    leaves: tuple[Any, ...]
    arrays: tuple[Any, ...]
    """The largest array of each item, oldest first."""


@dataclass(frozen=True)
class _Leaf:
    """An array, tensor or text below an item."""

    obj: Any
    bytes: int
    label: str
    graph: bool
    kept: int
    """Bytes of a larger base that it keeps alive as a view; 0 where there is none."""


def newest_items(container: Any, kind: str, count: int) -> list[Any]:  # noqa: ANN401
    """The `count` items that were added last, oldest first; for what has no order, any."""
    if kind in {"array", "graph", "text", "bytes"}:
        return [container]
    if kind == "cache":
        return [_heavier(*each) for each in newest_results(container, count)]
    kept = inner_container(container)
    builtin = next((each for each in _CONTAINERS if issubclass(type(kept), each)), None)
    if builtin is not None:
        newest = read_stable(_last_of, builtin, kept, count)
        return [_entry(*each) for each in newest] if builtin is dict else newest
    inside = look_object(container, _fresh_walk(sys.maxsize))
    held = [part for name, part in inside.parts if name == "[*]"] or [part for _, part in inside.parts]
    return held[-count:]


_CONTAINERS: tuple[Any, ...] = (list, tuple, deque, dict, set, frozenset)


def _last_of(builtin: Any, container: Any, count: int) -> list[Any]:  # noqa: ANN401
    """The newest items of a container of Python's own, entries of a dict; of a set, those that were made as traced."""
    length = builtin.__len__(container)
    if builtin is deque:
        return list(map(deque.__getitem__, repeat(container), range(max(0, length - count), length)))
    if builtin is dict:
        return list(islice(reversed(dict.items(container)), count))[::-1]
    if builtin is list or builtin is tuple:
        return list(builtin.__getitem__(container, slice(-count, None)))
    if not tracemalloc.is_tracing():
        return list(islice(builtin.__iter__(container), count))
    some = list(islice(builtin.__iter__(container), 0, FAR, max(1, min(length, FAR) // SAMPLED)))
    return ([item for item in some if allocation_frames(item)] or some)[-count:]


def _entry(key: Any, value: Any) -> Any:  # noqa: ANN401
    """The value, or the key where the value is a number, a flag or a text and smaller: of texts that are remembered."""
    return value if id(type(value)) not in ATOMS or own_size(key) <= own_size(value) else key


def _heavier(key: Any, result: Any) -> Any:  # noqa: ANN401
    """The result of a call that is kept, or the argument where the result is smaller: `self`, of a method."""
    single = issubclass(type(key), list) and list.__len__(key) == 1
    return _entry(list.__getitem__(key, 0) if single else key, result)


def _fresh_walk(draw: int) -> Walk:
    """A walk of its own: what it sees, it has not seen before."""
    return Walk(draw, lambda _: False, MOST)


def describe_contents(holding: Holding, newest: Sequence[Any]) -> Contents:
    """Describe what the newest items of a container are and hold."""
    walk = _fresh_walk(LEAVES)
    leaves = [_leaves(item, walk) for item in newest]
    below = [leaf for found in leaves for leaf in found]
    single = holding.kind in {"array", "graph", "text", "bytes"}
    items = 1 if single else holding.length
    heavy = sum(leaf.bytes for leaf in below)
    kept = sum(leaf.kept for leaf in below)
    graph, base = any(leaf.graph for leaf in below), 0 < kept >= heavy / 2
    item = _item(newest[-1], graph=graph, base=base) if newest else "nothing yet"
    largest = [max(found, key=lambda leaf: leaf.bytes) for found in leaves if found]
    mean = holding.bytes / max(items * holding.instances, 1) * len(newest)
    if below and (graph or base or heavy >= mean / 2):
        label, share = _main(below, len(newest))
        count = round(share * items) * holding.instances
        return Contents(count, f"{count} × {label}", item, graph, base, _objects(leaves), tuple(x.obj for x in largest))
    count = items * holding.instances
    item = "Figure" if holding.kind == "figures" else item  # pyplot keeps its managers
    what = f"{count} × {item}" + (f" of {holding.bytes // max(1, count)} bytes" if holding.kind == "bytes" else "")
    return Contents(count, what, item, graph, base, tuple(newest[-LEAVES:]), ())


def _main(leaves: Sequence[_Leaf], items: int) -> tuple[str, float]:
    """The label with the most bytes, and how many such leaves there are for each item."""
    sums: dict[str, tuple[int, int]] = {}
    for leaf in leaves:
        size, count = sums.get(leaf.label, (0, 0))
        sums[leaf.label] = (size + leaf.bytes, count + 1)
    label = max(sums, key=lambda label: sums[label][0])
    return label, sums[label][1] / items


def _objects(leaves: Sequence[Sequence[_Leaf]]) -> tuple[Any, ...]:
    """The largest leaves, spread over the items."""
    each = max(LEAVES // max(len(leaves), 1), 1)
    chosen = [leaf for found in leaves for leaf in sorted(found, key=lambda leaf: -leaf.bytes)[:each]]
    return tuple(leaf.obj for leaf in chosen[-LEAVES:])


def _leaves(item: Any, walk: Walk) -> list[_Leaf]:  # noqa: ANN401
    """Arrays, tensors and long texts below an item, each once."""
    found: list[_Leaf] = []
    queue = deque([item])
    limit = walk.visited + MOST // LEAVES
    while queue and walk.visited < limit:
        obj = queue.popleft()
        if id(obj) in walk.seen or type(obj) is Graph:
            continue
        if id(type(obj)) in ATOMS and obj.__sizeof__() < LONG_TEXT:
            continue
        walk.seen.add(id(obj))
        walk.kept.append(obj)
        walk.visited += 1
        inside = look_object(obj, walk)
        if inside.kind in {"array", "text"}:
            found.append(_leaf(obj, inside.size))
            if inside.kind == "array" and not inside.drawn:
                continue
        if inside is not OPAQUE:
            queue.extend(_below(inside.parts))
            queue.extend(_below(inside.drawn))
    return found


def _below(named: Iterable[tuple[str, Any]]) -> list[Any]:
    return [child for name, child in named if name != ".<class>"]


def _leaf(obj: Any, size: int) -> _Leaf:  # noqa: ANN401
    seen = array_figures(obj)
    if seen is None:
        return _Leaf(obj, size, f"{class_name(type(obj))} of {size} bytes", graph=False, kept=0)
    own = seen.bytes if seen.graphed is None else seen.bytes or size
    kept = seen.kept if seen.kept > OWNING.base * own else 0
    return _Leaf(obj, own if seen.graphed is None else max(own, size), seen.label, bool(seen.graphed), kept)


def _item(obj: Any, *, graph: bool, base: bool) -> str:  # noqa: ANN401
    """An item in a few words; never its `repr`, which prints whole tensors."""
    if type(obj) is FunctionType:
        return f"closure of {callable_name(obj)} ({', '.join(obj.__code__.co_freevars)})"
    words = class_name(type(obj))
    if any(issubclass(type(obj), kind) for kind in (dict, list, tuple, set, frozenset, deque)):
        inside = look_object(obj, _fresh_walk(LEAVES))
        words = f"{words} of {inside.length} {'keys' if inside.kind == 'dict' else 'items'}"
    if graph:
        return f"{words} with its autograd graph"
    return f"{words}, a view of a larger base" if base else words


def describe_container(obj: Any, holding: Holding) -> str:  # noqa: ANN401
    """A container in a few words: "list of 120", "deque of 500, at most 1000", "table of 15 hooks"."""
    length, kind = holding.length, class_name(type(obj))
    bound = "" if holding.capacity is None else f", at most {holding.capacity}"
    if holding.kind in {"queue", "deque", "list", "tuple", "set", "dict"}:
        return f"{kind} of {length}{bound}"
    if holding.kind == "cache":
        return f"cache of {cache_name(obj)}() with {length} results{bound or ', unbounded'}"
    if type(obj) is FunctionType:
        return f"closure of {callable_name(obj)}"
    plain = {"hooks": f"table of {length} hooks", "figures": f"{length} open figures"}
    return plain.get(holding.kind, f"autograd graph of {length} nodes" if holding.kind == "graph" else kind)


LARGEST_SHIFT = 4
"""Rows by which consecutive windows may be apart."""

MOST_ELEMENTS = 1 << 20
"""Arrays above are not read: the question is asked while the program waits."""


def describe_redundancy(arrays: Sequence[Any]) -> str | None:
    """A sentence on what arrays that were stored one after the other have in common; None if nothing was found.

    Args:
        arrays: numpy arrays or torch tensors, as they were stored; those of other devices are left out.
    """
    numpy: Any = sys.modules.get("numpy")
    readable = (
        [] if numpy is None else [a for a in map(_as_array, arrays) if a is not None and 0 < a.size <= MOST_ELEMENTS]
    )
    pairs = [(a, b) for a, b in pairwise(readable) if a.shape == b.shape and a.dtype == b.dtype]
    if pairs and len(pairs) == len(readable) - 1 and readable[0].size > 1:
        if all(numpy.array_equal(a, b) for a, b in pairs):
            return "all arrays are equal: store one"
        overlap = _overlap(pairs)
        if overlap is not None:
            return overlap
    if readable and all(a.dtype == numpy.float64 and _fits_float32(numpy, a) for a in readable):
        return "float64 whose values fit float32: half of the bytes would do"
    return None


def _as_array(obj: Any) -> Any:  # noqa: ANN401
    """The object as a plain numpy array on the same memory, or None. A class of the program's compares as it likes."""
    numpy: Any = sys.modules["numpy"]
    torch: Any = sys.modules.get("torch")
    if is_a(obj, numpy.ndarray):
        array = numpy.ndarray.view(obj, numpy.ndarray)
        return None if array.dtype.hasobject else array
    if torch is None or (type(obj) is not torch.Tensor and type(obj) is not torch.nn.Parameter):
        return None
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # noqa: SLF001
        plain = obj.device.type == "cpu" and obj.layout == torch.strided and obj.dtype != torch.bfloat16
        return obj.detach().numpy() if plain else None


def _overlap(pairs: Sequence[tuple[Any, Any]]) -> str | None:
    """Whether each array is the one before, moved on by a few rows along one axis."""
    numpy: Any = sys.modules["numpy"]
    shape = pairs[0][0].shape
    for axis, rows in enumerate(shape):
        for shift in range(1, min(LARGEST_SHIFT, rows // 2) + 1):
            kept, lost = [slice(None)] * len(shape), [slice(None)] * len(shape)
            kept[axis], lost[axis] = slice(shift, None), slice(None, rows - shift)
            shared = sum(numpy.array_equal(a[tuple(kept)], b[tuple(lost)]) for a, b in pairs)
            if shared >= OWNING.overlap * len(pairs):  # a new episode begins a new window
                words = "one" if shift == 1 else str(shift)
                return f"consecutive arrays share all rows but {words}: store row numbers"
    return None


def _fits_float32(numpy: Any, array: Any) -> bool:  # noqa: ANN401
    """Whether nothing is lost on the way to float32 and back."""
    with numpy.errstate(over="ignore"):
        return bool(numpy.array_equal(array, array.astype(numpy.float32).astype(numpy.float64), equal_nan=True))
