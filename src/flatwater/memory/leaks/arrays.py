"""Arrays, tensors and autograd graphs: bytes of storages, each counted once, read without any operation of theirs.

Neither numpy nor torch is imported: an object that gets here has brought its library along.
"""

import sys
import weakref
from typing import Any

from flatwater.memory.leaks.inside import OPAQUE, Inside, Named, Walk, claim

TENSOR_BYTES = 224
"""What a tensor takes besides its storage and what Python says: a header of the collector's, TensorImpl, allocations'
own. These numbers were measured as the resident bytes of many alike (torch 2.13, glibc)."""
STORAGE_BYTES = 164
"""The same of a storage besides its data: StorageImpl, and what is lost where the data begins on a cache line."""
AUTOGRAD_BYTES = 192
"""What a tensor takes more that may have a gradient, ..."""
VIEW_BYTES = 320
"""... and one that is a view of another."""
BASE_BYTES = 192
"""A tensor of which there are only views: its TensorImpl."""
NODE_BYTES = 560
"""A node of a graph with what leads to the next, ..."""
SAVED_BYTES = 400
"""... and a tensor that it saves, besides its storage."""
ARRAY_BYTES = 48
"""What a numpy array takes besides its data and what Python says: its shape, allocations' own."""


class Graph:
    """Stands in the walk for the autograd graph of a tensor. Opened last: what has another owner is not the graph's."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401
        self._tensor = weakref.ref(tensor)

    @property
    def fn(self) -> Any:  # noqa: ANN401  torch's nodes have no common type
        """Its last node; None if the tensor is gone: nothing is kept alive that backward would need."""
        torch: Any = sys.modules["torch"]
        tensor = self._tensor()
        return None if tensor is None else torch._C.TensorBase.grad_fn.__get__(tensor)  # noqa: SLF001


def look_array(array: Any, walk: Walk) -> Inside:  # noqa: ANN401
    """A numpy array: its own bytes, or the base that holds them. A memory-mapped file is no memory of ours."""
    numpy: Any = sys.modules["numpy"]
    base = numpy.ndarray.base.__get__(array)
    size = object.__sizeof__(array)
    length = numpy.ndarray.size.__get__(array)
    if base is not None:
        return Inside("array", size, length, parts=[(".base", base)])
    address, _ = numpy.ndarray.__array_interface__.__get__(array)["data"]
    size += claim(walk, address, numpy.ndarray.nbytes.__get__(array) + ARRAY_BYTES)
    if not numpy.ndarray.dtype.__get__(array).hasobject:
        return Inside("array", size, length)
    flat = numpy.ndarray.flat.__get__(array)
    if length <= walk.draw:
        return Inside("array", size, length, parts=[("[*]", value) for value in flat])
    step = -(-length // walk.draw)
    return Inside("array", size, length, drawn=[("[*]", flat[i]) for i in range(0, length, step)], of=length)


def look_tensor(tensor: Any, walk: Walk) -> Inside:  # noqa: ANN401
    """A torch tensor: the bytes of its storage, its gradient, and the graph that made it."""
    torch: Any = sys.modules["torch"]
    own = torch._C.TensorBase  # noqa: SLF001  the class whose attributes no subclass has replaced
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
        storages = storage_bytes(tensor, walk)
        size = object.__sizeof__(tensor) + TENSOR_BYTES + storages
        if own._is_view(tensor):  # noqa: SLF001
            size += VIEW_BYTES + (BASE_BYTES if storages else 0)
        elif own.requires_grad.__get__(tensor):
            size += AUTOGRAD_BYTES
        parts: list[Named] = []
        fn = own.grad_fn.__get__(tensor)
        if fn is not None:
            parts.append((".<graph>", Graph(tensor)))
        if fn is None or own.retains_grad.__get__(tensor):  # others warn when they are asked
            gradient = own.grad.__get__(tensor)
            if gradient is not None:
                parts.append((".grad", gradient))
        return Inside("array", size, own.numel(tensor), parts=parts)


def storage_bytes(tensor: Any, walk: Walk) -> int:  # noqa: ANN401
    """Bytes of the tensor's storages that nothing seen earlier holds; a sparse tensor has several."""
    total = 0
    for dense in dense_parts(tensor):
        if not dense.is_meta:
            storage = sys.modules["torch"]._C.TensorBase.untyped_storage(dense)  # noqa: SLF001
            total += claim(walk, storage.data_ptr(), storage.nbytes() + STORAGE_BYTES)
    return total


def dense_parts(tensor: Any) -> list[Any]:  # noqa: ANN401
    """The tensors with a storage of which the tensor is made."""
    torch: Any = sys.modules["torch"]
    if tensor.layout == torch.strided:
        # A wrapper of other tensors (nested, quantised, distributed) has them among its attributes instead.
        return [] if torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python) else [tensor]  # noqa: SLF001
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # noqa: SLF001
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def look_storage(storage: Any, walk: Walk) -> Inside:  # noqa: ANN401
    """A storage that is held without a tensor."""
    size = storage.nbytes()
    return Inside("array", object.__sizeof__(storage) + claim(walk, storage.data_ptr(), size), size)


def look_graph(graph: Graph, walk: Walk) -> Inside:
    """A graph, whole: the storages that its nodes save, and what Python functions keep on their context.

    Reads `_raw_saved_*` only, whose `data` is what lies there. `_saved_*` would unpack it: run checkpointed forwards
    again, and raise where a tensor was changed in place. The parameters at its ends are not the graph's.
    """
    fn = graph.fn
    if fn is None:
        return OPAQUE
    size, count, parts, nodes = 0, 0, [], [fn]
    for node in nodes:
        if id(node) in walk.seen or walk.visited >= walk.most:
            continue
        walk.seen.add(id(node))
        walk.visited += 1
        count += 1
        size += NODE_BYTES
        saved, kept = _saved(node)
        size += sum(SAVED_BYTES + storage_bytes(tensor, walk) for tensor in saved)
        parts += kept
        nodes += [fn for fn, _ in node.next_functions if fn is not None]
    walk.kept += nodes  # torch makes their Python side on demand, and an id must not be used twice
    return Inside("graph", size, count, parts=parts)


def _saved(node: Any) -> tuple[list[Any], list[Named]]:  # noqa: ANN401
    """The tensors that a node saves, and the other objects on it."""
    torch: Any = sys.modules["torch"]
    tensors, kept = [], []
    for name in _raw_names(type(node)):
        raw = _read(node, name)
        for one in raw if type(raw) is tuple else (raw,):
            data = None if one is None else one.data
            if issubclass(type(data), torch.Tensor):
                tensors.append(data)
            elif data is not None:  # what a hook has packed it into
                kept.append((".<packed>", data))
    for owner in type(node).__mro__:
        if "__dict__" in vars(owner):
            kept += [(f".<context>.{name}", value) for name, value in vars(node).items()]
            break
    return tensors, kept


def _raw_names(kind: type) -> list[str]:
    return [name for owner in kind.__mro__ for name in vars(owner) if name.startswith("_raw_saved_")]


def _read(node: Any, name: str) -> Any:  # noqa: ANN401
    """The attribute, or None where backward has freed it."""
    try:
        return object.__getattribute__(node, name)
    except RuntimeError:
        return None
