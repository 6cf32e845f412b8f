"""The usual networks for images of any size, which may have numbers next to them, as ordinary modules.

Nature: three convolutions and a layer of 512 (Mnih et al. 2015). IMPALA: three stages of a convolution, a pooling and
two residual blocks, and a layer of 256 (Espeholt et al. 2018). Weights are orthogonal, biases 0 (Huang et al. 2022).
"""

from math import prod, sqrt
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from flatwater.nets.observation import Parts, part_value

Convolution = tuple[int, int, int, int]
"""Channels, kernel, stride and padding."""
NATURE: tuple[tuple[int, tuple[Convolution, ...]], ...] = (
    (36, ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))),
    (16, ((32, 4, 2, 0), (64, 3, 2, 0), (64, 3, 1, 0))),
    (1, ((32, 3, 1, 1), (64, 3, 2, 1), (64, 3, 1, 1))),
)
"""Shortest side of an image in pixels, and the convolutions for it: the usual ones in the first row, smaller ones for
images that these would reduce to nothing."""
NATURE_FEATURES, IMPALA_FEATURES = 512, 256
IMPALA_CHANNELS = (16, 32, 32)
CHANNELS_LAST_MULTIPLE = 4
"""A CPU learns in channels-last order from images whose number of channels is a multiple of this: an update of 256
stacks of four frames of 84 x 84 takes 0.27 s and not 0.40. One or three channels gain nothing, and the few images of an
acting step take longer."""
NETWORKS = ("nature", "impala")
"""Names of the networks."""


class ResidualBlock(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return images of the same shape."""
        residual: Tensor = self.second(self.first(x.relu()).relu())
        return x + residual


class PixelConvolution(nn.Conv2d):
    """A convolution of raw pixels, from 0 to `max_pixel`, that gives the result for pixels from 0 to 1.

    It divides its weights and not the pixels, which are hundreds of times as many in a minibatch.
    """

    max_pixel = 1.0
    """Highest value of a pixel."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of float32 [B, C, H, W] from 0 to `max_pixel`."""
        weight = self.weight / self.max_pixel
        learns = torch.is_grad_enabled() and weight.requires_grad
        if learns and self.in_channels % CHANNELS_LAST_MULTIPLE == 0 and x.device.type != "cuda":
            # Later layers keep the channels-last order, and are faster in it as well.
            x = x.contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


def convolution(channels: int, form: Convolution, max_pixel: float | None) -> nn.Conv2d:
    """Return a convolution of raw pixels from 0 to `max_pixel`, or of features if that is None."""
    # `form` has the channels of the output, kernel, stride and padding, in torch's order.
    if max_pixel is None:
        return nn.Conv2d(channels, *form)
    layer = PixelConvolution(channels, *form)
    layer.max_pixel = max_pixel
    return layer


def nature_layers(shape: tuple[int, ...], max_pixel: float) -> nn.Sequential:
    """Return the network from images of `shape` [C, H, W], with pixels up to `max_pixel`, to features [B, 512]."""
    # The rows go from the largest images to the smallest: the first that fits is taken.
    convolutions = next(forms for shortest_side, forms in NATURE if min(shape[1:]) >= shortest_side)
    layers: list[nn.Module] = []
    channels, *sides = shape
    for form in convolutions:
        output_channels, kernel, stride, padding = form
        reads_pixels = not layers  # the first convolution alone
        layers += [convolution(channels, form, max_pixel if reads_pixels else None), nn.ReLU(inplace=True)]
        channels = output_channels
        sides = [(side + 2 * padding - kernel) // stride + 1 for side in sides]  # of a convolution's output
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(channels * prod(sides), NATURE_FEATURES), nn.ReLU(inplace=True)
    )


def impala_layers(shape: tuple[int, ...], max_pixel: float) -> nn.Sequential:
    """Return the network from images of `shape` [C, H, W], with pixels up to `max_pixel`, to features [B, 256]."""
    layers: list[nn.Module] = []
    channels, *sides = shape
    for output_channels in IMPALA_CHANNELS:
        reads_pixels = not layers  # the first convolution alone
        # Kernels of 3, a stride of 1 and a padding of 1 keep the sides.
        layers += [
            convolution(channels, (output_channels, 3, 1, 1), max_pixel if reads_pixels else None),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        ]
        layers += [ResidualBlock(output_channels), ResidualBlock(output_channels)]
        channels = output_channels
        sides = [(side + 1) // 2 for side in sides]  # the pooling halves them, rounded up
    top = nn.Linear(channels * prod(sides), IMPALA_FEATURES)
    return nn.Sequential(*layers, nn.ReLU(inplace=True), nn.Flatten(), top, nn.ReLU(inplace=True))


class ImageNetwork(nn.Module):
    """A module that returns the features of every image of an observation, and its other numbers unchanged."""

    def __init__(self, parts: Parts, name: str) -> None:
        """Make a separate network for each image; other parts are flattened.

        Args:
            parts: the parts of an observation.
            name: one of `NETWORKS`.
        """
        super().__init__()
        self._observation_parts = parts
        layers, features = (nature_layers, NATURE_FEATURES) if name == "nature" else (impala_layers, IMPALA_FEATURES)
        self.features = sum(features if part.is_image else prod(part.read_shape) for part in parts)
        """Numbers that it returns for an observation, F."""
        self.parts = nn.ModuleList(
            layers(part.read_shape, part.max_value) if part.is_image else nn.Flatten() for part in parts
        )
        for module in self.modules():
            # The initial weights of the module's docstring; on the meta device there are no numbers to draw.
            if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.is_meta:
                nn.init.orthogonal_(module.weight, gain=sqrt(2))
                nn.init.constant_(cast("Tensor", module.bias), 0)

    def forward(self, obs: object) -> Tensor:
        """Return features [B, F] of a batch of observations with raw pixels."""
        pairs = zip(self.parts, self._observation_parts, strict=True)
        return torch.cat([module(part_value(part, obs)) for module, part in pairs], dim=-1)
