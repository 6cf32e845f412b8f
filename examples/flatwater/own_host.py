"""A network of your own for `flatwater train grow`: it sees pixel by pixel, until something is grown in it.

    cd examples/flatwater
    flatwater train grow --host own_host:Pixels --rounds 3

`slots` names submodules: behind the output of each of them a seed can be grown, here a 3 x 3 convolution.
"""

from torch import Tensor, nn


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A convolution of single pixels, a norm and an activation."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.GroupNorm(2, outputs), nn.ReLU())


class Pixels(nn.Module):
    """Three blocks for images of any size and number of classes."""

    slots = ("blocks.0", "blocks.1", "blocks.2")

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:  # noqa: ARG002  (any size)
        super().__init__()
        self.blocks = nn.Sequential(block(channels, 4), block(4, 8, stride=2), block(8, 16, stride=2))
        self.head = nn.Linear(16, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of each class."""
        logits: Tensor = self.head(self.blocks(images).mean((2, 3)))
        return logits
