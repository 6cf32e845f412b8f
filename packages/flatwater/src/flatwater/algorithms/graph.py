"""A pure function of tensors as one compiled call.

It is traced once, on its first arguments, and called without guards: what it reads never changes its shape, and what it
writes are its results alone. Arguments that it does not read are left out. That takes a third of the time of
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

from flatwater_watch.errors import require
from flatwater_watch.meters.mappings import footprint

T = TypeVar("T")
Function = Callable[..., tuple[Tensor, ...]]
COMPILER_BYTES = 200 << 20
"""Bytes that torch's compiler loads: 173 MiB were measured."""
_COMPILED_BYTES: list[int] = []
"""Bytes by which the process has grown while it compiled, of each graph."""
FEW = 16
"""Rows up to which a layer is a loop in the compiled code: a call of the library for matrices would take longer."""

GROUP_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Signals that terminals, `timeout` and schedulers send to all processes of a command."""


def has_compiler() -> bool:
    """Whether this machine has the needs of torch's compiler: a C++ compiler, and the headers of this Python."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    return shutil.which(compiler) is not None and Path(sysconfig.get_paths()["include"], "Python.h").is_file()


def require_compiler() -> None:
    """Refuse to compile where this machine cannot: a run may have been begun on another one.

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
    """Keep signals to the whole group of processes, as a terminal sends for Ctrl-C, from the compiler's processes.

    They would end, and the run would say that its code cannot be compiled. A process begins with the mask of the thread
    that starts it. This process hears the signal by another thread, or when compiling has ended.
    """
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)


def compile_graph(function: Function, *, enabled: bool) -> Function:
    """Return the function, compiled at its first call where that is `enabled`.

    Args:
        function: a function of tensors, by position. Every tensor that changes is an argument: others are read
            once, and kept.
        enabled: False gives the function as it is.
    """
    if not enabled:
        return function
    graph: Function | None = None

    def call(*given: Tensor) -> tuple[Tensor, ...]:
        """Run the graph on tensors of the shapes of the first call, which compiles it."""
        nonlocal graph
        if graph is None:
            # At the first call and not before: a run that is only planned never waits for the compiler.
            bytes_before = footprint().anonymous
            graph = _trace_and_compile(function, given)
            _COMPILED_BYTES.append(max(0, footprint().anonymous - bytes_before))
        return graph(*given)

    return call


def compiler_bytes() -> int:
    """Return the bytes that the compiler and its graphs hold in this process; 0 before it was used."""
    return sum(_COMPILED_BYTES)


def compile_nested(function: Callable[..., T]) -> Callable[..., T]:
    """Return the function, compiled at its first call and again at the first with tensors of other shapes.

    Args:
        function: a pure function, by position. Arguments and result are tensors, also in dicts, lists, tuples and
            dataclasses; what else stands there is read when it is compiled, and kept.
    """
    graphs: dict[tuple[Any, ...], Callable[[list[Tensor]], T]] = {}

    def call(*arguments: Any) -> T:  # noqa: ANN401  (whatever the function takes)
        """Run the graph of these shapes."""
        tensors = list(_tensors_in(arguments))
        layout = tuple((tensor.shape, tensor.stride()) for tensor in tensors)
        if layout not in graphs:
            graphs[layout] = _bind_nested(function, arguments)
        return graphs[layout](tensors)

    return call


def _bind_nested(function: Callable[..., T], arguments: tuple[Any, ...]) -> Callable[[list[Tensor]], T]:
    """Return a call of the function with other tensors in these arguments; the first compiles it."""
    # Forms without tensors: those of the first call would stay in memory with the graph.
    arguments_form, result_form = _put_in(arguments, repeat(_Place())), cast("T", None)

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of the result, and keep its form."""
        nonlocal result_form
        result = function(*_put_in(arguments_form, iter(tensors)))
        result_form = _put_in(result, repeat(_Place()))
        return tuple(_tensors_in(result))

    graph = compile_graph(flat, enabled=True)

    def call(tensors: list[Tensor]) -> T:
        results = graph(*tensors)  # before the form is read, which the first call keeps
        return _put_in(result_form, iter(results))

    return call


class _Place:
    """The place of a tensor."""


def _tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in dicts, lists, tuples and dataclasses, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors_in(getattr(value, field.name))


def _put_in(value: T, tensors: Iterator[Any]) -> T:
    """Return the value with the next of `tensors` for each of its tensors or their places, in their order."""
    new: Any = value
    if isinstance(value, (Tensor, _Place)):
        new = next(tensors)
    elif isinstance(value, dict):
        new = {key: _put_in(item, tensors) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = [_put_in(item, tensors) for item in value]
        is_named = type(new) not in {list, tuple}
        new = type(new)._make(items) if is_named else type(new)(items)
    elif is_dataclass(value) and not isinstance(value, type):
        new = replace(value, **{field.name: _put_in(getattr(value, field.name), tensors) for field in fields(value)})
    return cast("T", new)


def _trace_and_compile(function: Function, arguments: tuple[Tensor, ...]) -> Function:
    """Trace the function, with the gradients that it takes, and build the code.

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

    graph = make_fx(function, {**select_decomp_table(), torch.ops.aten.addmm.default: _fused_linear})(*arguments)
    inputs = graph.graph.find_nodes(op="placeholder")
    used_inputs = [at for at, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    # torch's own tanh takes three times as long as an exponential, which is all that its formula needs. Shapes and
    # strides are those of the first call: to check each of a hundred of them takes a tenth of an update's time.
    settings = {"cpp.use_decompose_tanh": True, "size_asserts": False, "alignment_asserts": False}
    if config.cpp.vec_isa_ok is None and platform.machine() in {"x86_64", "AMD64"}:
        # The processor's vectors are known from the processor. torch would compile its headers for each kind of them to
        # learn whether the compiler can, which takes as long as all of the graphs, and load them in each process.
        settings["cpp.vec_isa_ok"] = True
    with torch.no_grad(), config.patch(settings), shield_compiler():
        compiled = compile_fx_inner(graph, [arguments[at].detach() for at in used_inputs])
    # Its own call asks for a profiler and a cache each time, which takes as long as a layer. It empties
    # `current_callable` at its end, so `call` below holds the whole of it.
    code: Callable[[list[Tensor]], tuple[Tensor, ...]] = vars(compiled)["current_callable"]

    def call(*tensors: Tensor, _kept: object = compiled) -> tuple[Tensor, ...]:
        return code([tensors[at] for at in used_inputs])

    # Its products are written into tensors that it has: not where one of the factors asks for a gradient.
    return torch.no_grad()(call) if any(tensor.requires_grad for tensor in arguments) else call


def _fused_linear(bias: Tensor, rows: Tensor, weight: Tensor, **factors: float) -> Tensor:
    """Return an `addmm`, bias + rows @ weight, of few rows on the CPU as sums, which fuse with other operations.

    Args:
        bias: [m].
        rows: [k, n]; more than FEW of them, or on another device, are left to `addmm`.
        weight: [n, m].
        factors: `alpha` and `beta` of `addmm`; where they are given, it is left to `addmm`.

    Returns:
        [k, m]; NotImplemented where it stays an `addmm`.
    """
    if rows.shape[0] > FEW or rows.device.type != "cpu" or factors:
        return cast("Tensor", NotImplemented)  # then it stays an `addmm`
    return (rows.unsqueeze(-1) * weight).sum(1) + bias
