"""Gathers of the inputs of a level of causal dilated convolutions, so that the level is one matrix product.

A day's input is its taps: the features of `kernel` days that end with it, `dilation` days apart, side by side.
`patch_taps` takes taps of the panel as a view. `neighbour_taps` copies taps, unless memory has them in this order
already. The copy has its own gradient: torch's gradient of such a gather would pad each slice with zeros to the whole
series, and here each slice is added in place.

Axes: Q members, M series, I and J stretches of L and D days, F and W numbers a day, T = kernel x F or kernel x W.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx


def patch_taps(x: Float[Tensor, "Q M L F"], kernel: int, wanted_days: int) -> Float[Tensor, "Q M J D T"]:
    """Return the taps of the days that the level above reads: of each day the `kernel` days up to it, as a view.

    If `wanted_days` is `kernel` or more these are all days (J = 1). Otherwise they are stretches of `wanted_days` days
    that start `kernel` days apart: the level above joins days at a distance of `kernel`, so it reads no day between.

    Args:
        x: M series of L consecutive days, contiguous for a view.
        kernel: number of consecutive days that are joined.
        wanted_days: number of days that the top level gives.

    Returns:
        Taps, a view of `x`: D = L - kernel + 1 days in one stretch, or J stretches of D = `wanted_days` days.
    """
    features = x.shape[-1]
    # A view: overlapping runs of the flat days, one for each day, without a copy.
    taps = x.flatten(2).unfold(2, kernel * features, features)
    if wanted_days >= kernel:
        return taps.unsqueeze(2)
    stretches = taps.unfold(2, wanted_days, kernel)  # [Q, M, J, T, D]
    return stretches.transpose(3, 4)


def neighbour_taps(
    h: Float[Tensor, "Q M I L W"], kernel: int, dilation: int, wanted_days: int
) -> tuple[Float[Tensor, "Q M J D T"], Float[Tensor, "Q M J D W"]]:
    """Return the taps of the days that the level above reads, `dilation` days apart, and the newest tap of each.

    Every `kernel` stretches of `h` are joined to one. A whole series (I = 1) becomes stretches if the taps span more
    than `wanted_days` days.

    Args:
        h: output of the level below: I stretches of L days, or the whole series (I = 1).
        kernel: number of days that are joined.
        dilation: distance of these days.
        wanted_days: number of days that the top level gives.

    Returns:
        Taps of J stretches of D days, oldest day first; and the newest tap of each day, which the level's residual
        connection adds. If the stretches of `h` have a single day, both are views of `h`.
    """
    if h.shape[2] > 1 and wanted_days == 1:  # memory has the taps in this order already
        groups = h.view(*h.shape[:2], -1, kernel, h.shape[-1])
        return groups.flatten(3).unsqueeze(3), groups[:, :, :, -1:]
    taps: Tensor
    newest_tap: Tensor
    taps, newest_tap = _TapGather.apply(h, kernel, dilation, wanted_days)  # type: ignore[no-untyped-call]  # torch's own
    return taps, newest_tap


class _GatherContext(FunctionCtx):
    arguments: tuple[torch.Size, int, int]
    """Shape of the input of `forward`, kernel and dilation."""


class _TapGather(torch.autograd.Function):
    """A copy of taps whose gradient is added up slice by slice."""

    @staticmethod
    def forward(ctx: _GatherContext, h: Tensor, kernel: int, dilation: int, wanted_days: int) -> tuple[Tensor, Tensor]:
        """Copy the taps: of the whole series if `wanted_days` is at least dilation x kernel, else of stretches.

        Args:
            ctx: context that keeps shape, kernel and dilation for `backward`.
            h: output of the level below [Q, M, I, L, W].
            kernel: number of days that are joined.
            dilation: distance of these days.
            wanted_days: number of days that the top level gives.

        Returns:
            Taps [Q, M, J, D, T], and the newest tap of each day [Q, M, J, D, W].
        """
        ctx.arguments = h.shape, kernel, dilation
        if wanted_days >= dilation * kernel:
            # Days that have all their taps in the series.
            span = h.shape[3] - (kernel - 1) * dilation
            taps = torch.cat([h[:, :, :, j * dilation : j * dilation + span] for j in range(kernel)], dim=-1)
        else:
            # A whole series is first cut into stretches, which start `dilation` days apart.
            stretches = h if h.shape[2] > 1 else h.squeeze(2).unfold(2, wanted_days, dilation).transpose(3, 4)
            taps = stretches.view(*stretches.shape[:2], -1, kernel, *stretches.shape[3:]).transpose(3, 4).flatten(4)
        # The newest taps are copied, as two outputs of an autograd function should not share memory.
        return taps, taps[..., -h.shape[-1] :].clone()

    @staticmethod
    def backward(ctx: _GatherContext, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Add the gradients of all taps to the days that they were copied from.

        Args:
            ctx: context of `forward`.
            grads: gradients of the taps [Q, M, J, D, T] and of the newest taps [Q, M, J, D, W].

        Returns:
            The gradient of `h`; None for the three numbers.
        """
        taps, newest_tap = grads
        shape, kernel, dilation = ctx.arguments
        parts = list(taps.chunk(kernel, dim=-1))
        # The newest tap was given twice: within the taps, and as a copy. Both gradients belong to the same days.
        parts[-1] = parts[-1] + newest_tap
        if shape[2] > 1:  # stretches, of which each was copied once
            return torch.stack(parts, dim=3).flatten(2, 3), None, None, None
        # A whole series: the slices overlap, so they are added one after the other, in an order that never changes.
        grad = taps.new_zeros(shape)
        days = taps.shape[3]
        for stretch in range(taps.shape[2]):
            for tap, part in enumerate(parts):
                first = (stretch * kernel + tap) * dilation
                grad[:, :, 0, first : first + days] += part[:, :, stretch]
        return grad, None, None, None
