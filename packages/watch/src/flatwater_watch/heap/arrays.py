"""Bytes of arrays, tensors and autograd graphs, with each storage counted once, and no operation called.

Neither numpy nor torch is imported: an object that gets here has brought its library along.
"""

import sys
import weakref
from bisect import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple

from flatwater_watch.heap.raw import c_attribute, class_name, instance_dict, is_a, mro, named_entries, names_of
from flatwater_watch.heap.view import (
    OPAQUE,
    Named,
    OpenedObject,
    Walk,
    claim_bytes,
    evenly_spaced_slice,
    opened_container,
)

TENSOR_BYTES = 224
"""Bytes of a tensor besides its storage and its `__sizeof__`: header of the collector, TensorImpl, malloc's headers.
These numbers were measured as the resident bytes of many alike objects (torch 2.13, glibc)."""
STORAGE_BYTES = 164
"""Bytes of a storage besides its data: StorageImpl, and the gap before data that begins on a cache line."""
AUTOGRAD_BYTES = 192
"""Further bytes of a tensor that requires a gradient."""
VIEW_BYTES = 320
"""Further bytes of a tensor that is a view."""
BASE_BYTES = 192
"""Bytes of a tensor of which there are only views: its TensorImpl."""
NODE_BYTES = 560
"""Bytes of a node of a graph, with its edges."""
SAVED_BYTES = 400
"""Bytes of a tensor that a node saves, besides its storage."""
ARRAY_BYTES = 48
"""Bytes of a numpy array besides its data and its `__sizeof__`: its shape, malloc's headers."""


class Graph:
    """Stand-in for the autograd graph of a tensor in a walk; it is opened last, so that other owners come first."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)

    @property
    def end_node(self) -> Any:
        """The graph's last node; None if the tensor is gone, as nothing keeps it alive for a backward pass."""
        tensor = self._tensor()
        return None if tensor is None else _graph_end(tensor)


def _graph_end(tensor: Any) -> Any:
    """The last node of a tensor's autograd graph; None if it has none. No code of a subclass runs."""
    torch: Any = sys.modules["torch"]
    with torch._C.DisableTorchFunction():
        return torch._C.TensorBase.grad_fn.__get__(tensor)


def open_array(array: Any, walk: Walk) -> OpenedObject:
    """Open a numpy array: its own bytes, or the base that holds them; a memory-mapped file has none."""
    # Runs no code of the watched program.
    # By descriptors of `numpy.ndarray`: a subclass of the program may have replaced any attribute.
    numpy: Any = sys.modules["numpy"]
    base = numpy.ndarray.base.__get__(array)
    size = object.__sizeof__(array)
    length = numpy.ndarray.size.__get__(array)
    if base is not None:
        return OpenedObject("array", size, length, parts=[(".base", base)])
    address, _ = numpy.ndarray.__array_interface__.__get__(array)["data"]
    size += claim_bytes(walk, address, numpy.ndarray.nbytes.__get__(array) + ARRAY_BYTES)
    if not numpy.ndarray.dtype.__get__(array).hasobject:
        return OpenedObject("array", size, length)
    flat = numpy.ndarray.flat.__get__(array)
    filled_count = _filled_count(flat, length)
    # An array of objects that is filled from its beginning is a list with a capacity: only the filled part counts.
    sample = (flat[i] for i in range(filled_count)[evenly_spaced_slice(filled_count, walk.sampled_items)])
    if filled_count < length:
        return opened_container("list", size, filled_count, sample, walk, length)
    return opened_container("array", size, length, sample, walk)


def _filled_count(flat: Any, length: int) -> int:
    """Number of objects in an array that is filled from its beginning; its length if it is not."""
    if length == 0 or flat[0] is None or flat[length - 1] is not None:
        return length
    return bisect(range(length), 0, key=lambda at: int(flat[at] is None))


def open_tensor(tensor: Any, walk: Walk) -> OpenedObject:
    """Open a torch tensor: the bytes of its storage, its gradient, and the graph that made it."""
    # Runs no code of the watched program.
    torch: Any = sys.modules["torch"]
    tensor_class = torch._C.TensorBase  # the class whose attributes no subclass has replaced
    with torch._C.DisableTorchFunction():  # neither a subclass nor a mode of the program is asked
        storages = storage_bytes(tensor, walk)
        size = object.__sizeof__(tensor) + TENSOR_BYTES + storages
        if tensor_class._is_view(tensor):
            size += VIEW_BYTES + (BASE_BYTES if storages else 0)
        elif tensor_class.requires_grad.__get__(tensor):
            size += AUTOGRAD_BYTES
        parts: list[Named] = []
        fn = tensor_class.grad_fn.__get__(tensor)
        if fn is not None:
            parts.append((".<graph>", Graph(tensor)))
        if fn is None or tensor_class.retains_grad.__get__(tensor):  # other tensors warn when asked for their gradient
            gradient = tensor_class.grad.__get__(tensor)
            if gradient is not None:
                parts.append((".grad", gradient))
        return OpenedObject("array", size, 0 if _wraps_tensors(tensor) else tensor_class.numel(tensor), parts=parts)


def _wraps_tensors(tensor: Any) -> bool:
    """Whether a tensor wraps other tensors (nested, quantised, distributed), which are among its attributes."""
    # Nothing else may be asked of a wrapper: Python code may compute even its shape and its device.
    torch: Any = sys.modules["torch"]
    return bool(torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python))


def storage_bytes(tensor: Any, walk: Walk) -> int:
    """Bytes of a tensor's storages that no object seen earlier holds; a sparse tensor has several storages."""
    # Runs no code of the watched program.
    tensor_class: Any = sys.modules["torch"]._C.TensorBase
    total = 0
    for dense in dense_parts(tensor):
        if not tensor_class.is_meta.__get__(dense):
            address, size = _storage_block(tensor_class.untyped_storage(dense))
            total += claim_bytes(walk, address, size + STORAGE_BYTES)
    return total


def dense_parts(tensor: Any) -> list[Any]:
    """The tensors with a storage of which a tensor is made; empty for a wrapper."""
    if _wraps_tensors(tensor):
        return []
    torch: Any = sys.modules["torch"]
    layout = torch._C.TensorBase.layout.__get__(tensor)
    if layout is torch.strided:
        return [tensor]
    with torch._C._DisableTorchDispatch():  # these are operations, which a mode would see
        return [getattr(torch._C.TensorBase, name)(tensor) for name in _SPARSE_PARTS.get(str(layout), ())]


_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_SPARSE_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": _ROWS,
    "torch.sparse_bsr": _ROWS,
    "torch.sparse_csc": _COLUMNS,
    "torch.sparse_bsc": _COLUMNS,
}
"""The dense tensors of a sparse one, by its layout."""


def _storage_block(storage: Any) -> tuple[int, int]:
    """Address and bytes of a storage's data."""
    storage_class: Any = sys.modules["torch"]._C.StorageBase
    return storage_class.data_ptr(storage), storage_class.nbytes(storage)


def open_storage(storage: Any, walk: Walk) -> OpenedObject:
    """Open a storage that is held without a tensor."""
    # Runs no code of the watched program.
    address, size = _storage_block(storage)
    return OpenedObject("array", object.__sizeof__(storage) + claim_bytes(walk, address, size), size)


class ArrayFigures(NamedTuple):
    """Figures of an array or a tensor for reports."""

    label: str
    """Type and shape: `float32[64, 504]`."""
    bytes: int
    """Bytes of its own elements; 0 if its layout does not say."""
    base_bytes: int
    """Bytes of the storage, or of the base, that it keeps alive."""
    graphed: bool | None
    """Whether a tensor carries a graph; None for an array."""


def array_figures(array: Any) -> ArrayFigures | None:
    """The figures of an array or a tensor; None for all other objects."""
    # Runs no code of the watched program.
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if torch is not None and is_a(array, torch._C.TensorBase):
        return _tensor_figures(array)
    if numpy is not None and is_a(array, numpy.ndarray):
        array_class: Any = numpy.ndarray
        label = f"{array_class.dtype.__get__(array)}{list(array_class.shape.__get__(array))}"
        return ArrayFigures(
            label, array_class.nbytes.__get__(array), array_class.nbytes.__get__(last_base(array)), None
        )
    return None


def _tensor_figures(tensor: Any) -> ArrayFigures:
    """Figures of a tensor; the bytes of a sparse one and of a wrapper count as 0. No code of the program runs."""
    torch: Any = sys.modules["torch"]
    tensor_class = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        has_graph = tensor_class.grad_fn.__get__(tensor) is not None
        if _wraps_tensors(tensor):
            return ArrayFigures(class_name(type(tensor)), 0, 0, has_graph)
        dense = tensor_class.layout.__get__(tensor) is torch.strided
        size = tensor_class.numel(tensor) * tensor_class.element_size(tensor) if dense else 0
        storage_size = _storage_block(tensor_class.untyped_storage(tensor))[1] if dense else 0
        shape = list(tensor_class.shape.__get__(tensor))
        return ArrayFigures(
            f"{str(tensor_class.dtype.__get__(tensor)).removeprefix('torch.')}{shape}", size, storage_size, has_graph
        )


def last_base(array: Any) -> Any:
    """The numpy array that holds the memory of a view, or the array itself."""
    numpy: Any = sys.modules["numpy"]
    base = array
    while is_a(above := numpy.ndarray.base.__get__(base), numpy.ndarray):
        base = above
    return base


def saved_tensors(tensor: Any, maximum: int = 10_000) -> Iterator[Any]:
    """Tensors that the autograd graph of a tensor saves for backward; at most `maximum` nodes are visited."""
    # Runs no code of the watched program.
    graph_end = _graph_end(tensor)
    open_nodes, seen_nodes = [] if graph_end is None else [graph_end], {id(graph_end): graph_end}
    while open_nodes and len(seen_nodes) < maximum:
        node = open_nodes.pop()
        yield from _saved_values(node)[0]
        for next_node in _next_nodes(node):
            if id(next_node) not in seen_nodes:
                seen_nodes[id(next_node)] = next_node
                open_nodes.append(next_node)


def open_graph(graph: Graph, walk: Walk) -> OpenedObject:
    """Return the saved storages of a whole autograd graph, and objects that custom Functions keep on `ctx`.

    The parameters at its ends do not belong to the graph.
    """
    # Runs no code of the watched program.
    # Only `_raw_saved_*` is read, whose `data` is the tensor as it was saved. `_saved_*` would unpack it: run
    # checkpointed forwards again, and raise where a tensor was changed in place.
    torch: Any = sys.modules["torch"]
    fn = graph.end_node
    if fn is None:
        return OPAQUE
    size, count, parts, nodes = 0, 0, [], [fn]
    for node in nodes:  # `nodes` grows inside the loop: breadth-first
        if id(node) in walk.seen_ids or walk.opened_count >= walk.maximum_objects:
            continue
        walk.seen_ids.add(id(node))
        walk.opened_count += 1
        count += 1
        size += NODE_BYTES
        tensors, objects = _saved_values(node)
        with torch._C.DisableTorchFunction():
            size += sum(SAVED_BYTES + storage_bytes(tensor, walk) for tensor in tensors)
        parts += objects
        nodes += _next_nodes(node)
    walk.kept_alive += nodes  # torch makes their Python side on demand, and an id must not be used twice
    return OpenedObject("graph", size, count, parts=parts)


def _next_nodes(node: Any) -> list[Any]:
    """The nodes of a graph to which a node passes gradients on."""
    return [fn for fn, _ in c_attribute(node, "next_functions") or () if fn is not None]


def _saved_values(node: Any) -> tuple[list[Any], list[Named]]:
    """The tensors that a graph node saves, and other objects that it holds, each with its name."""
    torch: Any = sys.modules["torch"]
    tensors, objects = [], []
    for name in _raw_names(type(node)):
        raw = _read_saved(node, name)
        for saved in raw if type(raw) is tuple else (raw,):
            data = None if saved is None else saved.data
            if is_a(data, torch._C.TensorBase):
                tensors.append(data)
            elif data is not None:  # the object into which a hook has packed the tensor
                objects.append((".<packed>", data))
    objects += [(f".<context>.{name}", value) for name, value in named_entries(instance_dict(node))]
    return tensors, objects


def _raw_names(kind: type) -> list[str]:
    """Attributes in which nodes of a class keep saved tensors as they are, without unpacking them."""
    return [name for owner in mro(kind) for name, _ in named_entries(names_of(owner)) if name.startswith("_raw_saved_")]


def _read_saved(node: Any, name: str) -> Any:
    """The attribute, or None if backward has freed it."""
    try:
        return c_attribute(node, name)
    except RuntimeError:
        return None
