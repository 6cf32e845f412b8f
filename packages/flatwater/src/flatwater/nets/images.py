"""Networks for images of any size, next to numbers or without: as they are usual, and as modules like a user's.

Nature: three convolutions and a layer of 512 (Mnih et al. 2015). IMPALA: three stages of a convolution, a pooling and
two residual blocks, and a layer of 256 (Espeholt et al. 2018). Weights are orthogonal, biases 0 (Huang et al. 2022).
"""

from math import prod, sqrt
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from flatwater.nets.observation import Parts, value_of

Convolution = tuple[int, int, int, int]
"""Channels, kernel, stride and padding."""
NATURE: tuple[tuple[int, tuple[Convolution, ...]], ...] = (
    (36, ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))),
    (16, ((32, 4, 2, 0), (64, 3, 2, 0), (64, 3, 1, 0))),
    (1, ((32, 3, 1, 1), (64, 3, 2, 1), (64, 3, 1, 1))),
)
"""Shortest side of an image and its convolutions. Those of the first row are usual; nothing would be left of smaller
images behind them."""
NATURE_FEATURES, IMPALA_FEATURES = 512, 256
IMPALA_CHANNELS = (16, 32, 32)
CHANNELS_TOGETHER = 4
"""Channels of whose multiples a CPU takes a third less of the time for an update if those of a pixel lie together:
0.27 s and not 0.40 for 256 stacks of four frames of 84 x 84. It gains nothing with one channel or three, and the few
images of a step take longer."""
NETWORKS = ("nature", "impala")
"""Names of the networks."""


class ResidualBlock(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return images of the same shape."""
        added: Tensor = self.second(self.first(x.relu()).relu())
        return x + added


class PixelConvolution(nn.Conv2d):
    """A convolution of pixels as they are in bytes, which it reads as shares of the highest.

    Its weights are divided and not the pixels, which are hundreds of times as many in a minibatch.
    """

    most = 1.0
    """Highest value of a pixel."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of float32 [B, C, H, W] from 0 to `most`."""
        weight = self.weight / self.most
        learns = torch.is_grad_enabled() and weight.requires_grad
        if learns and self.in_channels % CHANNELS_TOGETHER == 0 and x.device.type != "cuda":
            # Later layers keep this order, and are faster in it as well.
            x, weight = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight))
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


def convolution(channels: int, form: Convolution, most: float | None) -> nn.Conv2d:
    """Return a convolution of features, or of pixels up to `most`."""
    if most is None:
        return nn.Conv2d(channels, *form)
    layer = PixelConvolution(channels, *form)
    layer.most = most
    return layer


def nature_layers(shape: tuple[int, ...], most: float) -> nn.Sequential:
    """Return the network from images [B, C, H, W] of pixels up to `most` to features [B, 512]."""
    convolutions = next(rows for shortest, rows in NATURE if min(shape[1:]) >= shortest)
    layers: list[nn.Module] = []
    channels, *sides = shape
    for form in convolutions:
        out, kernel, stride, padding = form
        layers += [convolution(channels, form, None if layers else most), nn.ReLU(inplace=True)]
        channels, sides = out, [(side + 2 * padding - kernel) // stride + 1 for side in sides]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(channels * prod(sides), NATURE_FEATURES), nn.ReLU(inplace=True)
    )


def impala_layers(shape: tuple[int, ...], most: float) -> nn.Sequential:
    """Return the network from images [B, C, H, W] of pixels up to `most` to features [B, 256]."""
    layers: list[nn.Module] = []
    channels, *sides = shape
    for out in IMPALA_CHANNELS:
        layers += [convolution(channels, (out, 3, 1, 1), None if layers else most), nn.MaxPool2d(3, 2, padding=1)]
        layers += [ResidualBlock(out), ResidualBlock(out)]
        channels, sides = out, [(side + 1) // 2 for side in sides]
    top = nn.Linear(channels * prod(sides), IMPALA_FEATURES)
    return nn.Sequential(*layers, nn.ReLU(inplace=True), nn.Flatten(), top, nn.ReLU(inplace=True))


class ImageNetwork(nn.Module):
    """Features of every image, and the numbers next to them as they are."""

    def __init__(self, parts: Parts, name: str) -> None:
        """Make a network of its own for each image.

        Args:
            parts: the parts of an observation.
            name: one of `NETWORKS`.
        """
        super().__init__()
        self._parts = parts
        layers, features = (nature_layers, NATURE_FEATURES) if name == "nature" else (impala_layers, IMPALA_FEATURES)
        self.features = sum(features if part.is_image else prod(part.read_shape) for part in parts)
        """Numbers that it returns for an observation, F."""
        self.parts = nn.ModuleList(
            layers(part.read_shape, part.most) if part.is_image else nn.Flatten() for part in parts
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.is_meta:
                nn.init.orthogonal_(module.weight, sqrt(2))
                nn.init.constant_(cast("Tensor", module.bias), 0)

    def forward(self, obs: object) -> Tensor:
        """Return features [B, F] of observations, whose pixels are numbers as in their bytes."""
        pairs = zip(self.parts, self._parts, strict=True)
        return torch.cat([module(value_of(part, obs)) for module, part in pairs], dim=-1)
