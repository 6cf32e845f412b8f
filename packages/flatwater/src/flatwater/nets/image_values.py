"""Values of choices, or logits, for agents whose observations have images: convolutions, and layers behind them."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.nets.mlp import MLPValues
from flatwater.nets.module_encoder import PREFIX, ModuleEncoder, shipped_encoder
from flatwater.nets.observation import Parts, view_numbers
from flatwater.nets.stack import Layout, Params, Weight


@dataclass(frozen=True)
class ImageValues(MLPValues):
    """A number for each choice; `obs` are the features that the layers read."""

    parts: Parts = field(kw_only=True)
    """Parts of an observation."""
    network: str = field(kw_only=True)
    """Name of the network that reads the images, one of `images.NETWORKS`."""

    @cached_property
    def encoder(self) -> ModuleEncoder:
        """Network that reads the images, and the numbers next to them."""
        return shipped_encoder(self.parts, self.network)

    @cached_property
    def layout(self) -> Layout:
        """The weights of one member: those that read, by the law of torch's own layers, and the layers'."""
        module, reads = self.encoder.module, dict[str, Weight]()
        for name, value in module.named_parameters():
            layer = name.rpartition(".")[0]
            reads[PREFIX + name] = Weight(tuple(value.shape), module.get_parameter(f"{layer}.weight")[0].numel())
        return Layout(reads | dict(super().layout.weights))

    def values(self, params: Params, obs: Tensor) -> Float[Tensor, "P B A"]:
        """Return the numbers of all choices; observations are bytes [P, B, ...]."""
        rows = obs.flatten(2)
        numbers = view_numbers(rows, self.encoder.parts, torch.float32)
        # Member by member: convolutions of several at once take longer than those of each.
        features = [self.encoder(_member(params, p), numbers[p], rows[p], learning=False) for p in range(len(rows))]
        return super().values(params, torch.stack(features))


def image_values(
    parts: Parts, network: str, choices: int, hidden: tuple[int, ...], *, duelling: bool = False, drawn: bool = False
) -> ImageValues:
    """Return the network for observations of these parts; other arguments are those of `MLPValues`."""
    features = shipped_encoder(parts, network).features
    return ImageValues(features, choices, hidden, duelling, drawn, parts=parts, network=network)


def _member(params: Params, number: int) -> dict[str, Tensor]:
    """Return the weights of one member that read observations."""
    return {name: weight[number] for name, weight in params.items() if name.startswith(PREFIX)}
