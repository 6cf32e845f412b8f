"""Causal dilated convolutions over days, with weights shared by all columns.

The kernels multiply to the context and each dilation is the product of the kernels before it, so the receptive field
is exactly the window, and every day of it is reached by one path (van den Oord et al. 2016, WaveNet, with kernel =
stride). For a long series of days this is a dilated convolution, which computes each day of each level once. For fewer
wanted days less of the lower levels is needed: stretches of that number of days, which start a dilation apart. For one
day, a window, there remains a pyramid of non-overlapping patches. All compute the same sums. Nothing is padded: no day
sees a later day.
"""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm

from flatwater.nets.stack import Params, Weight, apply_linear, linear
from flatwater_trading.policy.taps import neighbour_taps, patch_taps
from flatwater_watch.progress import count_steps

CHUNK_NUMBERS = 2 << 20
"""Numbers of a layer held at a time when a series of days is evaluated on a CPU: 8 MiB, whatever the panel's size."""


@dataclass(frozen=True)
class TcnEncoder:
    """The default encoder: `channels` numbers for a column's history, then its `features` of the day unchanged."""

    kernels: tuple[int, ...]
    """Days that each level joins to one, lowest level first; their product is the context."""
    features: int
    """Number F of features of a column on a day."""
    channels: int
    """Width of each level's output for a column on a day."""
    chunk_factor: int = 1
    """Multiple of `CHUNK_NUMBERS` that may be held at a time."""

    @property
    def width(self) -> int:
        """Number of values that describe a column on a day."""
        return self.channels + self.features

    @property
    def weights(self) -> dict[str, Weight]:
        """Weights of a linear layer for each level: from `kernel` outputs of the level below to one of `channels`."""
        weights_by_name: dict[str, Weight] = {}
        for level, kernel in enumerate(self.kernels):
            inputs = self.features if level == 0 else self.channels
            weights_by_name |= linear(f"encoder.{level}", kernel * inputs, self.channels)
        return weights_by_name

    def windows(self, params: Params, x: Float[Tensor, "P B N C F"]) -> Float[Tensor, "P B N W"]:
        """Summarise the last day of each window, which is the only day with its whole context in the window."""
        return self._summarise_days(params, x)[:, :, :, 0]

    def days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P S D N W"]:
        """Summarise every day of each slice, each computed once; columns in chunks of bounded size."""
        members = len(params["encoder.0.bias"])
        _, slices, columns, length, _ = x.shape
        chunk_columns = max(1, CHUNK_NUMBERS * self.chunk_factor // (members * slices * self._largest_input(length)))
        # The encoder treats columns independently, so a chunk of columns gives the same numbers as all.
        chunks = count_steps("columns encoded, in chunks", range(0, columns, chunk_columns))
        chunk_summaries = [self._summarise_days(params, x[:, :, first : first + chunk_columns]) for first in chunks]
        # From [P, S, N, D, W] to days before columns.
        return torch.cat(chunk_summaries, dim=2).permute(0, 1, 3, 2, 4)

    def _largest_input(self, length: int) -> int:
        """Return the count of numbers in the largest input of a level, for one column of a slice of `length` days.

        Chunks are as wide as this input allows.
        """
        context = prod(self.kernels)
        reach = 1
        largest = 0
        days = length - context + 1
        for level, kernel in enumerate(self.kernels):
            reach *= kernel  # days that an output of this level has seen
            # The whole series, or the stretches that the wanted days need, whichever has fewer rows.
            rows = min(length - reach + 1, context // reach * days)
            numbers_a_day = self.channels if level else self.features  # only the lowest level reads features
            largest = max(largest, rows * kernel * numbers_a_day)
        return largest

    def _summarise_days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P S N D W"]:
        """Summarise every day that has its whole context in the series, level by level: D = L - C + 1 days.

        The taps of a day are the `kernel` days, a dilation apart, that a level joins for it. A level computes stretches
        of D days if its taps span more than D days, else the whole series.
        """
        members, (slices, columns, length) = len(params["encoder.0.bias"]), x.shape[1:4]
        context = prod(self.kernels)
        dilation = 1
        days = length - context + 1
        h = x.flatten(1, 2)
        for level, kernel in enumerate(self.kernels):
            if level:
                taps, newest_tap = neighbour_taps(h, kernel, dilation, days)
            else:
                # The panel needs no gradient, so a view is enough.
                taps = newest_tap = patch_taps(h, kernel, days)
            # With columns, stretches and days as rows, each member has one large product, not one for each column.
            rows = taps.flatten(1, 3).expand(members, -1, -1)
            h = apply_linear(params, f"encoder.{level}", rows).relu_().view(members, *taps.shape[1:4], self.channels)
            if level:
                # A residual connection to the newest tap. The first level's input has another width.
                h = h + newest_tap
            dilation *= kernel
        today = x[:, :, :, length - days :].expand(members, -1, -1, -1, -1)
        summaries = layer_norm(h, (self.channels,)).view(members, slices, columns, days, self.channels)
        return torch.cat([summaries, today], dim=-1)
