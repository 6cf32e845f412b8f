"""A population of networks as one block: every member's parameters are one row of a [P, n] tensor.

A `Layout` says where each named weight lies in a row; `views` gives the weights as [P, *shape] tensors that share the
block's storage. Optimisers, target averaging, crossover, mutation and checkpoints work on the block; layers work on
the views.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod, sqrt

import torch
from torch import Tensor

Params = Mapping[str, Tensor]
"""Weights by name, each [P, *shape]."""


_NULL_CONTEXT = nullcontext()


def bfloat16_autocast(device: torch.device, *, enabled: bool) -> AbstractContextManager[object]:
    """Return a context that turns autocast to bfloat16 on or off; on the meta device it does nothing."""
    # Entering a context takes as long as a layer of a small network, so none is entered to turn off what is off.
    if device.type == "meta" or not (enabled or torch.is_autocast_enabled(device.type)):
        return _NULL_CONTEXT
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


@dataclass(frozen=True)
class Weight:
    """One named weight of one member."""

    shape: tuple[int, ...]
    """Shape without the member axis. Matrices are [in, out]."""
    fan_in: float
    """Values start uniform in +-1/sqrt(fan_in) (the law of torch.nn.Linear); 0 stands for the constant `start`."""
    start: float = 0.0
    """The initial value where `fan_in` is 0."""


@dataclass(frozen=True)
class Layout:
    """The named weights of one member, in the order in which they lie in its row."""

    weights: Mapping[str, Weight]

    @property
    def size(self) -> int:
        """Number of values in one member's row."""
        return sum(prod(w.shape) for w in self.weights.values())


def views(block: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return the weights of all members by name, each [P, *shape], sharing the storage of `block` [P, n]."""
    weights, start = {}, 0
    for name, weight in layout.weights.items():
        size = prod(weight.shape)
        # `view` and not `reshape`, which may copy: writing to a weight must write to the block.
        weights[name] = block[:, start : start + size].view(len(block), *weight.shape)
        start += size
    return weights


def join_weights(weights_by_name: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """Return one member's row [1, n], made of its weights by name without the member axis: the inverse of `views`.

    Raises:
        ValueError: a weight is missing, or has another shape or type.
    """
    rows = []
    for name, weight in layout.weights.items():
        tensor = weights_by_name.get(name)
        if tensor is None or tuple(tensor.shape) != weight.shape or tensor.dtype != torch.float32:
            has = "none" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            raise ValueError(f"weight {name}: expected torch.float32 {list(weight.shape)}, got {has}")
        rows.append(tensor.flatten())
    return torch.cat(rows)[None]


def init_(block: Tensor, layout: Layout, rng: torch.Generator) -> None:
    """Draw initial weights for every member (row) of `block` [P, n], in place; none on the meta device."""
    if block.is_meta:
        return
    for name, view in views(block, layout).items():
        # In the layout's order, which decides the numbers that each weight draws from the generator.
        weight = layout.weights[name]
        if weight.fan_in:
            bound = 1 / sqrt(weight.fan_in)
            view.uniform_(-bound, bound, generator=rng)
        else:
            view.fill_(weight.start)


def linear(name: str, inputs: int, outputs: int) -> dict[str, Weight]:
    """Return the weight [in, out] and bias [out] of one linear layer."""
    return {
        f"{name}.weight": Weight((inputs, outputs), fan_in=inputs),
        f"{name}.bias": Weight((outputs,), fan_in=inputs),
    }


def apply_linear(params: Params, name: str, x: Tensor) -> Tensor:
    """Return the output of every member's linear layer `name`: x [P, B, in] -> [P, B, out]."""
    return torch.baddbmm(params[f"{name}.bias"].unsqueeze(1), x, params[f"{name}.weight"])
