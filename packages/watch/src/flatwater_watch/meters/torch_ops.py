"""Records of new torch storages on any device: the operation that made each, and the moment when it is freed.

A storage is the block of memory of a tensor; views of the tensor share it. A dispatch mode is an object of torch that
gets each operation of a thread while it is entered.

This is the only module of the memory package that imports torch; it is imported only where torch is loaded already.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack, _pop_mode, _push_mode

R = TypeVar("R")

_UNSEEN_ALLOCATION_OPERATIONS = ("aten::lift_fresh", "aten::lift", "aten::set_.source_Storage_storage_offset")
"""Operations that return their argument, with a new storage that no operation was seen to make: `torch.tensor` made it,
or in the third case `copy.deepcopy`."""


class NewStorages(TorchDispatchMode, Generic[R]):  # type: ignore[no-untyped-call]  # torch's own hook has no types
    """A dispatch mode that records each storage made while it is entered, until the storage is freed.

    It keeps no storage alive.
    """

    # Compiled code stays compiled, and higher order operators run as they would.
    supports_higher_order_operators = True

    def __init__(self, make_record: Callable[[str, int], R], on_freed: Callable[[R], object]) -> None:
        """Prepare without recording; `make_record` gets the operation's name and the storage's bytes."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: dict[int, tuple[weakref.ref[torch.UntypedStorage], R]] = {}
        """Records by address of the storage's object, each with a weak reference that ends the record."""
        self._make_record = make_record
        self._on_freed = on_freed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would import torch._dynamo on the first operation: 84 MiB, in a process that may be near its limit.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: under this mode compiled functions are neither compiled again nor run eagerly."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401  (as torch calls it)
        """Run the operation unchanged, record the storages of its result, and return the result."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for storage in _tensor_storages(result):
            address = _storage_key(storage)
            if address not in self.records:
                self._record_if_new_(storage, address, func.name(), (args, kwargs))
        return result

    def _record_if_new_(
        self, storage: torch.UntypedStorage, address: int, operation: str, arguments: tuple[Any, Any]
    ) -> None:
        """Record a storage of an operation's result until it is freed, unless it is that of an argument.

        Args:
            storage: the storage.
            address: its key in `records`.
            operation: name of the operation, with its overload: `aten::add.Tensor`.
            arguments: positional arguments of the operation, and named ones.
        """
        # Views and in-place operations return the storage of an argument, which is not new. A few return one that was
        # made out of sight just before, as by `torch.tensor`.
        positional, keywords = arguments
        operands = (*positional, *keywords.values())
        is_of_argument = any(address == _storage_key(operand) for operand in _tensor_storages(operands))
        if is_of_argument and operation not in _UNSEEN_ALLOCATION_OPERATIONS:
            return
        record = self._make_record(operation.split(".", maxsplit=1)[0], storage.nbytes())  # without the overload
        # Bound as locals: a reference to the mode itself would keep it alive as long as the storage.
        records, on_freed = self.records, self._on_freed

        def end_record(_: object) -> None:
            records.pop(address, None)
            on_freed(record)

        records[address] = (weakref.ref(storage, end_record), record)

    def find_record(self, tensor: torch.Tensor) -> R | None:
        """Return the record of the tensor's storage, which a view shares with its base; None if there is none."""
        for storage in _tensor_storages(tensor):  # one at most: none for a sparse tensor
            _, record = self.records.get(_storage_key(storage), (None, None))
            return record
        return None


def enter_mode_(mode: NewStorages[R]) -> bool:
    """Enter a mode in this thread and return True; do nothing and return False if any mode is entered already."""
    # The program, as it leaves its own mode, could take this one from the stack: torch pops the topmost mode.
    if _get_current_dispatch_mode_stack():
        return False
    mode.__enter__()  # type: ignore[no-untyped-call]
    return True


def leave_mode_(mode: NewStorages[R]) -> None:
    """Leave a mode, unless the program has popped it; modes that the program has entered since stay entered."""
    # Modes are a stack of this thread: those above this mode are popped first, and pushed back in the same order.
    later_modes = []
    stack = _get_current_dispatch_mode_stack()
    while stack and stack[-1] is not mode:
        later_modes.append(_pop_mode())
        stack = _get_current_dispatch_mode_stack()
    if stack:  # its topmost mode is this one
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    for later_mode in reversed(later_modes):
        _push_mode(later_mode)


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the peak bytes of the storages that `run` makes, on any device, meta included.

    Scratch memory of kernels within one operation is not counted, nor is a storage that is resized in place.
    """
    live_bytes = peak = 0

    def count_new(_: str, size: int) -> int:
        """Add the bytes of a new storage, and return them as its record, which `count_freed_bytes` gets."""
        nonlocal live_bytes, peak
        live_bytes += size
        peak = max(peak, live_bytes)
        return size

    def count_freed_bytes(size: int) -> None:
        nonlocal live_bytes
        live_bytes -= size

    with NewStorages(count_new, count_freed_bytes):
        run()
    return peak


def _tensor_storages(value: object) -> Iterator[torch.UntypedStorage]:
    """Yield the storage of a tensor, or the storages of the tensors in a tuple or list, at any depth."""
    if isinstance(value, torch.Tensor):
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001  (no code of a subclass runs)
                storage = torch._C.TensorBase.untyped_storage(value)  # noqa: SLF001  (a subclass may override its own)
        except RuntimeError:  # sparse tensors and wrappers have none
            return
        yield storage
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensor_storages(item)


def _storage_key(storage: torch.UntypedStorage) -> int:
    """Return the address of the storage's object; the address of its data is 0 for every tensor on the meta device."""
    return int(storage._cdata)  # noqa: SLF001  (torch names it in no other way)
