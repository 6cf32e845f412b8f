"""Inputs of one level of causal convolutions: below each day the days of the level beneath it, side by side.

Gathering is what such a level spends its time on beside the product. Torch differentiates a gather slice by slice, each
filled up with zeros to the whole series; here each slice of the gradient is added to where it came from.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx


def patches(x: Float[Tensor, "Q M L F"], kernel: int, wanted: int) -> Float[Tensor, "Q M J D T"]:
    """Give each day that is wanted the `kernel` days up to it, which lie side by side in the memory of a series.

    All days where `wanted` is `kernel` or more (J = 1); otherwise stretches of `wanted` days, one after each `kernel`.
    """
    features = x.shape[-1]
    # A view: overlapping runs of the flat days, without a copy.
    taps = x.flatten(2).unfold(2, kernel * features, features)
    return taps.unsqueeze(2) if wanted >= kernel else taps.unfold(2, wanted, kernel).transpose(3, 4)


def neighbours(
    h: Float[Tensor, "Q M I L W"], kernel: int, dilation: int, wanted: int
) -> tuple[Float[Tensor, "Q M J D T"], Float[Tensor, "Q M J D W"]]:
    """Give each day that is wanted `kernel` days that are `dilation` apart; and the last of them once more.

    Stretches of `wanted` days stay stretches, `kernel` of them to one. A whole series (I = 1) becomes stretches where
    fewer days are wanted than the taps span.

    Args:
        h: the level beneath: Q members, M series, I stretches of L days, W numbers a day.
        kernel: days that are joined.
        dilation: days between two of them.
        wanted: days that the top level gives.

    Returns:
        Taps of J stretches of D days, T = kernel x W; and their newest days.
    """
    if h.shape[2] > 1 and wanted == 1:  # nothing has to be moved
        below = h.view(*h.shape[:2], -1, kernel, h.shape[-1])
        return below.flatten(3).unsqueeze(3), below[:, :, :, -1:]
    taps: Tensor
    last: Tensor
    taps, last = _Neighbours.apply(h, kernel, dilation, wanted)  # type: ignore[no-untyped-call]  # torch's own
    return taps, last


class _GatherContext(FunctionCtx):
    taken: tuple[torch.Size, int, int]
    """Shape of the level that was gathered from, kernel and dilation."""


class _Neighbours(torch.autograd.Function):
    """A gather whose gradient is added up slice by slice."""

    @staticmethod
    def forward(ctx: _GatherContext, h: Tensor, kernel: int, dilation: int, wanted: int) -> tuple[Tensor, Tensor]:
        ctx.taken = h.shape, kernel, dilation
        if wanted >= dilation * kernel:
            span = h.shape[3] - (kernel - 1) * dilation
            taps = torch.cat([h[:, :, :, j * dilation : j * dilation + span] for j in range(kernel)], dim=-1)
        else:
            stretches = h if h.shape[2] > 1 else h.squeeze(2).unfold(2, wanted, dilation).transpose(3, 4)
            taps = stretches.view(*stretches.shape[:2], -1, kernel, *stretches.shape[3:]).transpose(3, 4).flatten(4)
        # A copy: two outputs of an autograd function should not share memory.
        return taps, taps[..., -h.shape[-1] :].clone()

    @staticmethod
    def backward(ctx: _GatherContext, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        taps, last = grads
        shape, kernel, dilation = ctx.taken
        parts = list(taps.chunk(kernel, dim=-1))
        # `last` is the newest tap once more, so both gradients belong to the same days.
        parts[-1] = parts[-1] + last
        if shape[2] > 1:
            return torch.stack(parts, dim=3).flatten(2, 3), None, None, None
        # The slices overlap: they are added one after the other, in an order that never changes.
        grad, days = taps.new_zeros(shape), taps.shape[3]
        for i in range(taps.shape[2]):
            for j, part in enumerate(parts):
                first = (i * kernel + j) * dilation
                grad[:, :, 0, first : first + days] += part[:, :, i]
        return grad, None, None, None
