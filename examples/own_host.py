"""A network of your own for `flatwater train grow`: small, residual, with two places where it can grow.

    cd examples
    flatwater train grow --host own_host:Residual --rounds 3

`slots` names submodules: behind the output of each of them a seed can be grown.
"""

from torch import Tensor, nn


class Block(nn.Module):
    """A convolution beside a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(2, width)

    def forward(self, x: Tensor) -> Tensor:
        """As many features."""
        added: Tensor = self.norm(self.conv(x))
        return (x + added).relu()


class Residual(nn.Module):
    """Two residual blocks for images of any size and number of classes."""

    slots = ("first", "second")

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:  # noqa: ARG002  (any size)
        super().__init__()
        self.stem = nn.Conv2d(channels, 8, 3, stride=2, padding=1)
        self.first, self.second = Block(8), Block(8)
        self.head = nn.Linear(8, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of each class."""
        logits: Tensor = self.head(self.second(self.first(self.stem(images))).mean((2, 3)))
        return logits
