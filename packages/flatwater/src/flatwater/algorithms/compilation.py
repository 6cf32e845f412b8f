"""Compilation of a pure function of tensors into one call.

The function is traced once, on its first arguments, and called without guards: shapes must stay, and a function may
write nothing but its results. Arguments that it does not read are left out. A call takes a third of the time of
`torch.compile`, whose guards and wrappers cost more than a small network.
"""

import os
import platform
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from flatwater.state.garbage import freeze_new_objects_
from flatwater_watch.errors import require
from flatwater_watch.meters.mappings import footprint

T = TypeVar("T")
Function = Callable[..., tuple[Tensor, ...]]
COMPILER_BYTES = 200 << 20
"""Bytes that torch's compiler loads: 173 MiB were measured."""
_COMPILED_BYTES: list[int] = []
"""Bytes by which the process grew while it compiled each graph."""
MAX_SUMMED_ROWS = 16
"""Rows up to which a matrix product is compiled as a sum: a call of the matrix library would take longer."""

GROUP_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Signals that terminals, `timeout` and schedulers send to all processes of a command."""


def has_compiler() -> bool:
    """Return whether this machine has a C++ compiler and the headers of this Python, as torch's compiler needs."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    return shutil.which(compiler) is not None and Path(sysconfig.get_paths()["include"], "Python.h").is_file()


def require_compiler() -> None:
    """Refuse to compile on a machine without a compiler; a resumed run may come from a machine that has one.

    Raises:
        ConfigError: there is no compiler.
    """
    expected = (
        "off on a machine without a C++ compiler (g++, or what CXX names) and Python's headers. Install them, or give "
        "--learner.no-compile; a run that was begun compiled goes on without, with other last bits, by: "
        "flatwater fork RUN --learner.no-compile"
    )
    require(has_compiler(), "learner.compile", value=True, expected=expected)


@contextmanager
def shield_compiler() -> Iterator[None]:
    """Block `GROUP_SIGNALS` in this thread, so that the compiler's processes inherit the mask and survive Ctrl-C.

    If they ended, the run would report a failed compilation. This process gets the signal in another thread, or when
    the block ends.
    """
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def compile_graph(function: Function, *, enabled: bool) -> Function:
    """Return the function, compiled at its first call where that is `enabled`.

    Args:
        function: a function of tensors, by position. Each tensor that changes must be an argument: all other tensors
            become constants of the compiled code.
        enabled: False returns the function as it is.
    """
    if not enabled:
        return function
    graph: Function | None = None

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the graph, which the first call compiles for the shapes of its tensors."""
        nonlocal graph
        if graph is None:
            # Not before the first call: a run that is only planned must not wait for the compiler.
            previous_bytes = footprint().anonymous
            graph = _trace_and_compile(function, tensors)
            freeze_new_objects_()  # the compiler makes 240,000, which no later collection need visit
            _COMPILED_BYTES.append(max(0, footprint().anonymous - previous_bytes))
        return graph(*tensors)

    return call


def compiler_bytes() -> int:
    """Return the bytes that the compiler and its graphs hold in this process; 0 before it was used."""
    return sum(_COMPILED_BYTES)


def compile_nested(function: Callable[..., T]) -> Callable[..., T]:
    """Return the function, compiled at its first call, and again at each call with tensors of new shapes.

    Args:
        function: a pure function of positional arguments. Arguments and result may be dicts, lists, tuples and
            dataclasses of tensors; any other value in them becomes a constant of the compiled code.
    """
    graphs: dict[tuple[Any, ...], Callable[[list[Tensor]], T]] = {}

    def call(*arguments: Any) -> T:  # noqa: ANN401  (whatever the function takes)
        """Run the graph for the shapes and strides of these arguments."""
        tensors = list(_iterate_tensors(arguments))
        layout = tuple((tensor.shape, tensor.stride()) for tensor in tensors)
        if layout not in graphs:
            graphs[layout] = _bind_nested(function, arguments)
        return graphs[layout](tensors)

    return call


def _bind_nested(function: Callable[..., T], arguments: tuple[Any, ...]) -> Callable[[list[Tensor]], T]:
    """Return `function` as one of a flat list of tensors, which take the places of the tensors in `arguments`.

    The first call compiles it.
    """
    # Slots in the place of tensors: tensors of the first call would stay in memory with the graph.
    arguments_form = _replace_tensors(arguments, repeat(_TensorSlot()))
    result_form = cast("T", None)  # set by `flat_function`, which torch traces in the first call

    def flat_function(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of the result as a flat tuple; keep the result's form, without tensors, for `call`."""
        nonlocal result_form
        result = function(*_replace_tensors(arguments_form, iter(tensors)))
        result_form = _replace_tensors(result, repeat(_TensorSlot()))
        return tuple(_iterate_tensors(result))

    graph = compile_graph(flat_function, enabled=True)

    def call(tensors: list[Tensor]) -> T:
        results = graph(*tensors)  # first: the first call of the graph sets `result_form`
        return _replace_tensors(result_form, iter(results))

    return call


class _TensorSlot:
    """The place of a tensor in nested arguments or results."""


def _iterate_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, lists, tuples and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _iterate_tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _iterate_tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _iterate_tensors(getattr(value, field.name))


def _replace_tensors(value: T, tensors: Iterator[Any]) -> T:
    """Return a copy of nested values in which each tensor or `_TensorSlot` is replaced by the next of `tensors`."""
    copy: Any = value
    if isinstance(value, (Tensor, _TensorSlot)):
        copy = next(tensors)
    elif isinstance(value, dict):
        copy = {key: _replace_tensors(item, tensors) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = [_replace_tensors(item, tensors) for item in value]
        is_named_tuple = type(copy) not in {list, tuple}  # its class takes fields, and `_make` an iterable
        copy = type(copy)._make(items) if is_named_tuple else type(copy)(items)
    elif is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: _replace_tensors(getattr(value, field.name), tensors) for field in fields(value)}
        copy = replace(value, **changes)
    return cast("T", copy)


def _trace_and_compile(function: Function, arguments: tuple[Tensor, ...]) -> Function:
    """Trace a function on these arguments, and return it compiled for their shapes, with any gradients that it takes.

    Raises:
        ConfigError: this machine cannot compile.
    """
    on_cpu = all(tensor.device.type == "cpu" for tensor in arguments)
    if on_cpu:  # a GPU's code is not C++
        require_compiler()
    from torch._inductor import config  # noqa: PLC0415  (the compiler takes seconds to import)
    from torch._inductor.compile_fx import compile_fx_inner  # noqa: PLC0415  (the compiler takes seconds to import)
    from torch._inductor.decomposition import select_decomp_table  # noqa: PLC0415  (the compiler takes seconds to import)
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415  (the compiler takes seconds to import)

    # Operations that are traced as several simpler ones: those that the compiler takes apart, and one of ours.
    decompositions = {**select_decomp_table(), torch.ops.aten.addmm.default: _fused_linear}
    graph = make_fx(function, decompositions)(*arguments)
    # Arguments that the function does not read are left out of the graph.
    inputs = graph.graph.find_nodes(op="placeholder")
    used_inputs = [index for index, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    # torch's own tanh takes three times as long as its formula by an exponential. Sizes are not checked, because a
    # check of each of a hundred tensors takes a tenth of an update's time.
    settings = {"cpp.use_decompose_tanh": True, "size_asserts": False, "alignment_asserts": False}
    if config.cpp.vec_isa_ok is None and platform.machine() in {"x86_64", "AMD64"}:
        # torch would compile its headers for each vector instruction set, to learn whether the compiler knows it. That
        # takes as long as all graphs together; this processor's instruction set is known without it.
        settings["cpp.vec_isa_ok"] = True
    with torch.no_grad(), config.patch(settings), shield_compiler():
        compiled_graph = compile_fx_inner(graph, [arguments[index].detach() for index in used_inputs])
    # The inner callable alone: `compiled_graph(...)` looks for a profiler and a cache, in the time of a layer.
    code: Callable[[list[Tensor]], tuple[Tensor, ...]] = vars(compiled_graph)["current_callable"]

    # The default keeps `compiled_graph` alive, which clears `current_callable` when it is deleted.
    def call(*tensors: Tensor, _owner: object = compiled_graph) -> tuple[Tensor, ...]:
        """Run the compiled code on those of the arguments that the function reads."""
        return code([tensors[index] for index in used_inputs])

    # The code writes products into given tensors, which torch refuses while a factor requires a gradient.
    return torch.no_grad()(call) if any(tensor.requires_grad for tensor in arguments) else call


def _fused_linear(bias: Tensor, rows: Tensor, weight: Tensor, **factors: float) -> Tensor:
    """Return the replacement of `addmm`, bias + rows @ weight, by sums, which the compiler fuses with its neighbours.

    Args:
        bias: [m].
        rows: [k, n]; only up to `MAX_SUMMED_ROWS` rows on the CPU are replaced.
        weight: [n, m].
        factors: `alpha` and `beta` of `addmm`; a call that has them is not replaced.

    Returns:
        [k, m]; NotImplemented where the `addmm` stays.
    """
    if rows.shape[0] > MAX_SUMMED_ROWS or rows.device.type != "cpu" or factors:
        return cast("Tensor", NotImplemented)
    return (rows.unsqueeze(-1) * weight).sum(1) + bias
