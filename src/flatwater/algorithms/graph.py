"""A pure function of tensors as one compiled call.

It is traced once, on its first arguments, and called without guards: what it reads never changes its shape, and what it
writes are its results alone. That takes a third to a half of the time of `torch.compile`, whose guards cost as much as
a small network.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[..., tuple[Tensor, ...]]


def as_graph(function: Function, *, wanted: bool) -> Function:
    """The function, compiled at its first call where that is `wanted`.

    Args:
        function: of tensors, by position. Every tensor that changes is an argument: others are read once, and kept.
        wanted: False gives the function as it is.
    """
    if not wanted:
        return function
    graph: Function | None = None

    def call(*given: Tensor) -> tuple[Tensor, ...]:
        nonlocal graph
        if graph is None:
            graph = _compiled(function, given)
        with torch.no_grad():
            return graph(*given)

    return call


def _compiled(function: Function, given: tuple[Tensor, ...]) -> Function:
    """Trace it, with the gradients that it takes, and build the code."""
    from torch._inductor import config, standalone_compile  # noqa: PLC0415  (the compiler takes seconds to import)
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

    traced = make_fx(function)(*given)
    plain = [tensor.detach() for tensor in given]
    on_cpu = all(tensor.device.type == "cpu" for tensor in given)
    # torch's own tanh takes three times as long as an exponential, which is all that its formula needs.
    with torch.no_grad(), config.patch({"cpp_wrapper": on_cpu, "cpp.use_decompose_tanh": True}):
        built = standalone_compile(traced, [*plain])
    # Its own call tells torch's tracer to leave it alone, each time anew, which takes as long as a small network.
    unwatched: Function = vars(built)["_compiled_fn"].__wrapped__
    return unwatched
