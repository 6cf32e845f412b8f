"""Bytes of arrays, tensors and autograd graphs, with each storage counted once, and no operation called.

A storage is the block of memory of a tensor; its views share it. An autograd graph has a node for each operation that
made a tensor, and each node saves tensors for the backward pass.

Attributes are read by descriptors of the libraries' own classes, `TensorBase.layout.__get__(tensor)`: a subclass of the
program's may have replaced them by code of its own. Neither numpy nor torch is imported: an object that gets here has
brought its library along.
"""

import sys
import weakref
from bisect import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple

from flatwater_watch.heap.raw import c_attribute, class_dict, class_name, instance_dict, is_a, mro, named_entries
from flatwater_watch.heap.view import (
    OPAQUE,
    Named,
    OpenedObject,
    Walk,
    claim_bytes,
    evenly_spaced_slice,
    open_container,
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
    """A stand-in for a tensor's autograd graph in a walk; it is opened last, so that other owners come first."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)

    @property
    def end_node(self) -> Any:
        """The graph's last node; None if the tensor is gone."""
        tensor = self._tensor()
        return None if tensor is None else _graph_end(tensor)


def _graph_end(tensor: Any) -> Any:
    """Return the last node of a tensor's autograd graph; None for a tensor without a graph."""
    # Runs no code of the watched program: by torch's own descriptor, as a subclass may define `grad_fn` itself.
    torch: Any = sys.modules["torch"]
    with torch._C.DisableTorchFunction():
        return torch._C.TensorBase.grad_fn.__get__(tensor)


def open_array(array: Any, walk: Walk) -> OpenedObject:
    """Open a numpy array: the bytes of its data, or the base that holds them.

    An array of objects that is filled from its beginning, such as a replay that is not full yet, counts as a list with
    a capacity.
    """
    # Runs no code of the watched program.
    # By descriptors of `numpy.ndarray`: a subclass of the program may have replaced any attribute.
    numpy: Any = sys.modules["numpy"]
    base = numpy.ndarray.base.__get__(array)
    size = object.__sizeof__(array)
    length = numpy.ndarray.size.__get__(array)
    if base is not None:  # a view: the bytes of its data count with its base
        return OpenedObject("array", size, length, parts=[(".base", base)])
    address, _ = numpy.ndarray.__array_interface__.__get__(array)["data"]
    size += claim_bytes(walk, address, numpy.ndarray.nbytes.__get__(array) + ARRAY_BYTES)
    if not numpy.ndarray.dtype.__get__(array).hasobject:  # plain numbers: no children
        return OpenedObject("array", size, length)
    flat = numpy.ndarray.flat.__get__(array)
    filled_count = _filled_count(flat, length)
    sample = (flat[i] for i in range(filled_count)[evenly_spaced_slice(filled_count, walk.sampled_items)])
    if filled_count < length:
        return open_container("list", size, filled_count, sample, walk, capacity=length)
    return open_container("array", size, length, sample, walk)


def _filled_count(flat: Any, length: int) -> int:
    """Return the number of objects before the first None, if an array is filled from its beginning; else its length.

    An array counts as filled from its beginning if its first item is an object, and its last item None.
    """
    if length == 0 or flat[0] is None or flat[length - 1] is not None:
        return length
    # By bisection, as the array may be long. The key is 0 for each filled place, and 1 for each place behind them: the
    # insertion point behind all zeros is their number.
    return bisect(range(length), 0, key=lambda index: int(flat[index] is None))


def open_tensor(tensor: Any, walk: Walk) -> OpenedObject:
    """Open a torch tensor: the bytes of its storage, its gradient, and the graph that made it."""
    # Runs no code of the watched program.
    torch: Any = sys.modules["torch"]
    tensor_class = torch._C.TensorBase  # the class whose attributes no subclass has replaced
    with torch._C.DisableTorchFunction():  # neither a subclass nor a mode of the program is asked
        storage_size = claim_storages_(tensor, walk)
        size = object.__sizeof__(tensor) + TENSOR_BYTES + storage_size
        if tensor_class._is_view(tensor):
            size += VIEW_BYTES
            if storage_size:  # the first view of a base that no other object holds: the base counts with it
                size += BASE_BYTES
        elif tensor_class.requires_grad.__get__(tensor):
            size += AUTOGRAD_BYTES
        parts: list[Named] = []
        has_graph = tensor_class.grad_fn.__get__(tensor) is not None
        if has_graph:
            parts.append((".<graph>", Graph(tensor)))
        # A tensor that an operation made warns when it is asked for its gradient, unless it retains one.
        if not has_graph or tensor_class.retains_grad.__get__(tensor):
            gradient = tensor_class.grad.__get__(tensor)
            if gradient is not None:
                parts.append((".grad", gradient))
        # Python code of a wrapper would compute its number of elements.
        length = 0 if _wraps_tensors(tensor) else tensor_class.numel(tensor)
        return OpenedObject("array", size, length, parts=parts)


def _wraps_tensors(tensor: Any) -> bool:
    """Return whether a tensor wraps other tensors (nested, quantised, distributed), which are among its attributes."""
    # Nothing but its dispatch keys may be read of a wrapper: Python code may compute even its shape and its device.
    torch: Any = sys.modules["torch"]
    return bool(torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python))


def claim_storages_(tensor: Any, walk: Walk) -> int:
    """Return the bytes of a tensor's storages that the walk has not seen before, and mark them as seen.

    A sparse tensor has several storages.
    """
    # Runs no code of the watched program: by torch's own descriptors, as a subclass may define these names itself.
    tensor_class: Any = sys.modules["torch"]._C.TensorBase
    total = 0
    for dense in dense_parts(tensor):
        if not tensor_class.is_meta.__get__(dense):  # a tensor on the meta device has no data
            address, size = _storage_block(tensor_class.untyped_storage(dense))
            total += claim_bytes(walk, address, size + STORAGE_BYTES)
    return total


def dense_parts(tensor: Any) -> list[Any]:
    """Return the dense tensors that make up a tensor: itself, or the parts of a sparse one; none for a wrapper."""
    # Runs no code of the watched program.
    if _wraps_tensors(tensor):
        return []
    torch: Any = sys.modules["torch"]
    tensor_class = torch._C.TensorBase  # whose attributes and methods a subclass may override with code of its own
    layout = tensor_class.layout.__get__(tensor)
    if layout is torch.strided:
        return [tensor]
    with torch._C._DisableTorchDispatch():  # to read the parts runs operations, which a mode of the program would see
        return [getattr(tensor_class, name)(tensor) for name in _SPARSE_PARTS.get(str(layout), ())]


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
    """Return the address of a storage's data, and its bytes."""
    storage_class: Any = sys.modules["torch"]._C.StorageBase
    return storage_class.data_ptr(storage), storage_class.nbytes(storage)


def open_storage(storage: Any, walk: Walk) -> OpenedObject:
    """Open a storage that is held without a tensor: the bytes of its data, if no object seen earlier holds them."""
    # Runs no code of the watched program.
    address, size = _storage_block(storage)
    return OpenedObject("array", object.__sizeof__(storage) + claim_bytes(walk, address, size), size)


def data_address(array: Any) -> int:
    """Return the address of the data of an array, or of the storage of a tensor; 0 for all other objects.

    A sparse tensor has the address of its first dense part, and a tensor that wraps others has 0.
    """
    # Runs no code of the watched program.
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if numpy is not None and is_a(array, numpy.ndarray):
        address, _ = numpy.ndarray.__array_interface__.__get__(array)["data"]
        return int(address)
    if torch is None or not is_a(array, torch._C.TensorBase):
        return 0
    with torch._C.DisableTorchFunction():
        for part in dense_parts(array):  # the first part decides
            address, _ = _storage_block(torch._C.TensorBase.untyped_storage(part))
            return address
    return 0  # it wraps other tensors


class ArrayFigures(NamedTuple):
    """Figures of an array or a tensor for reports."""

    label: str
    """Type and shape: `float32[64, 504]`."""
    bytes: int
    """Bytes of its own elements; 0 if its layout does not say."""
    base_bytes: int
    """Bytes of the storage, or of the base, that it keeps alive."""
    has_graph: bool | None
    """Whether a tensor carries a graph; None for an array."""


def array_figures(array: Any) -> ArrayFigures | None:
    """Return the figures of an array or a tensor; None for all other objects."""
    # Runs no code of the watched program: by descriptors of the base classes, which a subclass cannot have replaced.
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if torch is not None and is_a(array, torch._C.TensorBase):
        return _tensor_figures(array)
    if numpy is not None and is_a(array, numpy.ndarray):
        array_class: Any = numpy.ndarray
        label = f"{array_class.dtype.__get__(array)}{list(array_class.shape.__get__(array))}"
        own_bytes = array_class.nbytes.__get__(array)
        base_bytes = array_class.nbytes.__get__(owning_array(array))
        return ArrayFigures(label, own_bytes, base_bytes, has_graph=None)
    return None


def _tensor_figures(tensor: Any) -> ArrayFigures:
    """Return the figures of a tensor; the bytes of a sparse tensor and of a wrapper count as 0."""
    # Runs no code of the watched program, which may have replaced attributes in a subclass.
    torch: Any = sys.modules["torch"]
    tensor_class = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        has_graph = tensor_class.grad_fn.__get__(tensor) is not None
        if _wraps_tensors(tensor):
            return ArrayFigures(class_name(type(tensor)), bytes=0, base_bytes=0, has_graph=has_graph)
        dtype = str(tensor_class.dtype.__get__(tensor)).removeprefix("torch.")
        label = f"{dtype}{list(tensor_class.shape.__get__(tensor))}"
        if tensor_class.layout.__get__(tensor) is not torch.strided:
            return ArrayFigures(label, bytes=0, base_bytes=0, has_graph=has_graph)
        size = tensor_class.numel(tensor) * tensor_class.element_size(tensor)
        _, storage_size = _storage_block(tensor_class.untyped_storage(tensor))
        return ArrayFigures(label, size, storage_size, has_graph)


def owning_array(array: Any) -> Any:
    """Return the numpy array at the end of a view's chain of bases, or the array itself if it is no view."""
    numpy: Any = sys.modules["numpy"]
    owner = array
    # By numpy's own descriptor: a subclass may define `base` itself, and no code of the program may run.
    while is_a(base := numpy.ndarray.base.__get__(owner), numpy.ndarray):
        owner = base
    return owner


def saved_tensors(tensor: Any, maximum: int = 10_000) -> Iterator[Any]:
    """Yield the tensors that a tensor's autograd graph saves for backward; at most `maximum` nodes are visited."""
    # Runs no code of the watched program.
    graph_end = _graph_end(tensor)
    waiting_nodes = [] if graph_end is None else [graph_end]
    seen_nodes = {id(graph_end): graph_end}  # kept alive, so that no id is used again
    while waiting_nodes and len(seen_nodes) < maximum:
        node = waiting_nodes.pop()
        saved_values, _ = _saved_values(node)
        yield from saved_values
        for next_node in _next_nodes(node):
            if id(next_node) not in seen_nodes:
                seen_nodes[id(next_node)] = next_node
                waiting_nodes.append(next_node)


def open_graph(graph: Graph, walk: Walk) -> OpenedObject:
    """Open a whole autograd graph: the storages that it saves, and the objects that custom Functions keep on `ctx`.

    Its length is its number of nodes. The parameters at its ends do not belong to the graph.
    """
    # Runs no code of the watched program.
    # Only `_raw_saved_*` is read, whose `data` is the tensor as it was saved. `_saved_*` would unpack it: run
    # checkpointed forwards again, and raise where a tensor was changed in place.
    torch: Any = sys.modules["torch"]
    end_node = graph.end_node
    if end_node is None:
        return OPAQUE
    size, node_count, parts, nodes = 0, 0, [], [end_node]
    for node in nodes:  # `nodes` grows inside the loop: breadth-first
        if id(node) in walk.seen_ids or walk.opened_count >= walk.maximum_objects:  # seen before, or too many
            continue
        walk.seen_ids.add(id(node))
        walk.opened_count += 1
        node_count += 1
        size += NODE_BYTES
        tensors, objects = _saved_values(node)
        with torch._C.DisableTorchFunction():
            size += sum(SAVED_BYTES + claim_storages_(tensor, walk) for tensor in tensors)
        parts += objects
        nodes += _next_nodes(node)
    walk.kept_alive += nodes  # torch makes their Python objects on demand, and an id must not be used twice
    return OpenedObject("graph", size, node_count, parts=parts)


def _next_nodes(node: Any) -> list[Any]:
    """Return the nodes of an autograd graph to which a node passes gradients on."""
    edges = c_attribute(node, "next_functions") or ()  # pairs of a node, or None, and the number of its input
    return [next_node for next_node, _ in edges if next_node is not None]


def _saved_values(node: Any) -> tuple[list[Any], list[Named]]:
    """Return the tensors that a graph node saves for backward, and other objects that it holds, each with its name."""
    torch: Any = sys.modules["torch"]
    tensors, objects = [], []
    for name in _raw_names(type(node)):
        raw = _read_saved_value(node, name)
        saved_values = raw if type(raw) is tuple else (raw,)  # one attribute may save several tensors
        for saved_value in saved_values:
            data = None if saved_value is None else saved_value.data  # as it was saved, not unpacked
            if is_a(data, torch._C.TensorBase):
                tensors.append(data)
            elif data is not None:  # an object into which a hook of saved tensors has packed the tensor
                objects.append((".<packed>", data))
    # A custom Function keeps its objects as attributes of `ctx`, which is the node itself.
    objects += [(f".<context>.{name}", value) for name, value in named_entries(instance_dict(node))]
    return tensors, objects


def _raw_names(kind: type) -> list[str]:
    """Return the names of the attributes that give a node's saved tensors without unpacking them."""
    return [
        name for owner in mro(kind) for name, _ in named_entries(class_dict(owner)) if name.startswith("_raw_saved_")
    ]


def _read_saved_value(node: Any, name: str) -> Any:
    """Return an attribute of a graph node; None if backward has freed it."""
    try:
        return c_attribute(node, name)
    except RuntimeError:
        return None
