"""Hosts as users write them, good and bad."""

from typing import ClassVar

import torch
from torch import Tensor, nn


class Both(nn.Module):
    """A slot of each kind, a constant, and an initialisation of its own."""

    slots: ClassVar = ("conv", "hidden.1")
    scale: Tensor

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(channels, 3, 3, padding=1), nn.ReLU())
        self.hidden = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
        self.head = nn.Linear(5, classes)
        nn.init.constant_(self.head.bias, 0.25)
        self.register_buffer("scale", torch.full((height, width), 0.5))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(self.conv(images * self.scale).mean((2, 3))))
        return logits


class Dense(nn.Module):
    """One dense layer; what is wrong with the others is what they change."""

    slots: ClassVar = ("layer",)

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(channels * height * width, 6)
        self.head = nn.Linear(6, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(images.flatten(1)).relu())
        return logits


class NoSlots(nn.Module):
    """It names none."""


class OneName(Dense):
    """A text is a sequence of letters."""

    slots = "layer"


class Twice(Dense):
    """The same place twice."""

    slots = ("layer", "layer")


class Nowhere(Dense):
    """A submodule that it does not have."""

    slots = ("conv1",)


class Itself(Dense):
    """The whole network is no place in it."""

    slots = ("",)


class OtherMaking(Dense):
    """It cannot be made from four numbers."""

    def __init__(self, classes: int) -> None:
        super().__init__(1, 8, 8, classes)


class Scores(Dense):
    """Too few logits."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images)[:, 1:]


class Pair(Dense):
    """More than logits."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(images), images


class Double(Dense):
    """Other numbers than float32."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.double()


class Frozen(Dense):
    """A weight that is not to be trained."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.head.bias.requires_grad_(requires_grad=False)


class Nothing(Dense):
    """Nothing to learn."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        del self.layer, self.head
        self.layer = nn.Flatten()

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images)[:, :10]


class Elsewhere(Dense):
    """Numbers from another generator than torch's."""

    made = 0

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        Elsewhere.made += 1
        nn.init.constant_(self.head.bias, Elsewhere.made)


class Unused(Dense):
    """A weight without a use."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.spare = nn.Linear(2, 2)


class Statistics(Dense):
    """BatchNorm, as it comes."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.layer(images.flatten(1))).relu())
        return logits


class DrawnBuffer(Dense):
    """A constant that is another in each host."""

    mask: Tensor

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_buffer("mask", nn.Linear(6, 1).weight.detach()[0])

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(images.flatten(1)) * self.mask)
        return logits


class Hidden(Dense):
    """Drawn numbers that are no parameter."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.mask = nn.Linear(6, 1).weight.detach()[0]

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(images.flatten(1)) * self.mask.to(images.device))
        return logits


class Dropping(Dense):
    """Random numbers in the forward."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(images), 0.1, self.training)


class Branching(Dense):
    """A branch on a value."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits if logits.mean() > 0 else 2 * logits


class OnTheCPU(Dense):
    """A tensor that is not made where the input lies."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + torch.arange(10.0)


class Again(Dense):
    """A layer that is called twice."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + super().forward(images)


class Tokens(Dense):
    """A slot with features that are neither maps nor vectors."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.layer = nn.Linear(8, 6)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(images[:, 0]).mean(1))
        return logits


NUMBER = 1
