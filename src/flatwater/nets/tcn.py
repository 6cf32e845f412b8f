"""Causal dilated convolutions over days, with weights shared by all columns.

The kernels multiply to the context and each dilation is the product of the kernels before it, so the receptive field
is the window exactly and every day of it is reached by one path (van den Oord et al. 2016, WaveNet, with kernel =
stride). For one window that is a pyramid of non-overlapping patches; for a series of days it is a dilated convolution
that computes each day once. Both are the same sums. Nothing is padded: no day sees the next one.
"""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm

from flatwater.nets.stack import Params, Weight, apply_linear, linear

CHUNK_NUMBERS = 2 << 20
"""Numbers of one layer held at a time when a series of days is evaluated: 8 MiB, whatever the panel's size."""


@dataclass(frozen=True)
class TcnEncoder:
    """The default encoder. `channels` + `features` numbers a column and day: its history, and today as it is."""

    kernels: tuple[int, ...]
    features: int
    channels: int

    @property
    def width(self) -> int:
        """Numbers that describe one column on one day."""
        return self.channels + self.features

    @property
    def weights(self) -> dict[str, Weight]:
        """One linear map per level, from a patch of the level below to `channels`."""
        named: dict[str, Weight] = {}
        for level, kernel in enumerate(self.kernels):
            inputs = self.features if level == 0 else self.channels
            named |= linear(f"encoder.{level}", kernel * inputs, self.channels)
        return named

    def windows(self, params: Params, x: Float[Tensor, "P B N C F"]) -> Float[Tensor, "P B N W"]:
        """The last day of each window, through the pyramid: 1 / k1 + 1 / (k1 k2) + ... of the window's rows."""
        p, b, n, _, f = x.shape
        h = x.reshape(p, -1, f)
        for level, kernel in enumerate(self.kernels):
            below = h
            h = apply_linear(params, f"encoder.{level}", h.reshape(p, -1, kernel * h.shape[-1])).relu_()
            if level:
                h = h + below[:, kernel - 1 :: kernel]
        return torch.cat([layer_norm(h, (self.channels,)).view(p, b, n, -1), x[:, :, :, -1]], dim=-1)

    def days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P S D N W"]:
        """Every day of each slice, each computed once; columns in chunks of bounded size."""
        members = len(params["encoder.0.bias"])
        _, s, n, length, f = x.shape
        if length == prod(self.kernels):
            return self.windows(params, x.expand(members, -1, -1, -1, -1)).unsqueeze(2)
        per_column = members * s * length * max(self.kernels) * max(self.channels, f)
        step = max(1, CHUNK_NUMBERS // per_column)
        parts = [self._days(params, x[:, :, at : at + step]) for at in range(0, n, step)]
        return torch.cat(parts, dim=2).permute(0, 1, 3, 2, 4)

    def _days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P S N D W"]:
        members, (s, n, length) = len(params["encoder.0.bias"]), x.shape[1:4]
        h, dilation = x.flatten(1, 2), 1
        for level, kernel in enumerate(self.kernels):
            below, span = h, h.shape[2] - (kernel - 1) * dilation
            # A day beside its taps, so that each member has one large product and not one for each column.
            taps = torch.cat([below[:, :, j * dilation : j * dilation + span] for j in range(kernel)], dim=-1)
            rows = taps.flatten(1, 2).expand(members, -1, -1)
            h = apply_linear(params, f"encoder.{level}", rows).relu_().view(members, s * n, span, -1)
            if level:
                h = h + below[:, :, -span:]
            dilation *= kernel
        today = x[:, :, :, length - h.shape[2] :].expand(members, -1, -1, -1, -1)
        return torch.cat([layer_norm(h, (self.channels,)).view(members, s, n, -1, self.channels), today], dim=-1)
