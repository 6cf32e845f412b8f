"""A convolution over patches of days, then a two-layer LSTM over the patches of one window.

It is the encoder of the reference system, for comparison: the recurrent state starts at the window's first day, so each
day needs a pass over its whole window and days share no computation.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm, relu

from flatwater.nets.stack import Params, Weight, apply_linear, linear

LAYERS = 2
CHUNK_NUMBERS = 8 << 20
"""Numbers gathered at a time when a series of days is evaluated on a CPU: 32 MiB, whatever the panel's size."""


@dataclass(frozen=True)
class LstmEncoder:
    """An LSTM over patches of `kernels[0]` days in their order (Hochreiter & Schmidhuber 1997)."""

    kernels: tuple[int, ...]
    """The first kernel is the length of a patch in days; the product of all is the context."""
    features: int
    """Number F of features of a column on a day."""
    channels: int
    """Width of a patch, and of the state of each layer."""
    chunk_factor: int = 1
    """Multiple of `CHUNK_NUMBERS` that may be gathered at a time."""

    @property
    def width(self) -> int:
        """Number of values that describe a column on a day."""
        return self.channels + self.features

    @property
    def weights(self) -> dict[str, Weight]:
        """Weights by name: a linear layer for patches of days, and for each LSTM layer its four gates in one.

        The gates of a step read its input and the output of the step before.
        """
        weights_by_name = linear("encoder.patch", self.kernels[0] * self.features, self.channels)
        for layer in range(LAYERS):
            weights_by_name |= linear(f"encoder.{layer}", 2 * self.channels, 4 * self.channels)
        return weights_by_name

    def windows(self, params: Params, x: Float[Tensor, "P B N C F"]) -> Float[Tensor, "P B N W"]:
        """Summarise each window: the last output of the LSTM, then the features of the window's last day."""
        members, batch, columns, days, features = x.shape
        patch = x.reshape(members, -1, self.kernels[0] * features)
        inputs = relu(apply_linear(params, "encoder.patch", patch))
        # One tensor [P, B x N, channels] for each patch, in the order of days.
        series = list(inputs.view(members, batch * columns, days // self.kernels[0], -1).unbind(2))
        for layer in range(LAYERS):
            series = self._layer(params, f"encoder.{layer}", series)
        summaries = layer_norm(series[-1], (self.channels,)).view(members, batch, columns, -1)
        return torch.cat([summaries, x[:, :, :, -1]], dim=-1)

    def _layer(self, params: Params, name: str, series: list[Tensor]) -> list[Tensor]:
        """Run an LSTM layer over the steps of a series, each [P, B x N, channels]; return its output at each step."""
        output = cell = torch.zeros_like(series[0])
        outputs = []
        for step in series:
            # One product for all gates: input, forget, output, candidate.
            gates = apply_linear(params, name, torch.cat([step, output], dim=-1))
            input_gate, forget_gate, output_gate, candidate = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
            output = torch.sigmoid(output_gate) * torch.tanh(cell)
            outputs.append(output)
        return outputs

    def days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P S D N W"]:
        """Summarise every day of each slice, window by window; days in chunks of bounded size."""
        members = len(params["encoder.patch.bias"])
        context = torch.Size(self.kernels).numel()
        windows = x.unfold(3, context, 1).permute(0, 1, 3, 2, 5, 4)  # [Q, S, D, N, C, F], a view
        _, slices, days, columns, _, features = windows.shape
        chunk_days = max(1, CHUNK_NUMBERS * self.chunk_factor // (members * slices * columns * context * features))
        chunk_summaries = []
        for first in range(0, days, chunk_days):
            # flatten copies the chunk, so only here do overlapping windows take memory.
            chunk = windows[:, :, first : first + chunk_days].flatten(1, 2).expand(members, -1, -1, -1, -1)
            summaries = self.windows(params, chunk)
            chunk_summaries.append(summaries.view(members, slices, -1, columns, self.width))
        return torch.cat(chunk_summaries, dim=2)
