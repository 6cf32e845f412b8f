"""Networks of a value or a logit for each choice, for observations with images: convolutions, then ReLU layers."""

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
    """A number for each choice; `obs` is the number of features that the layers read."""

    parts: Parts = field(kw_only=True)
    """Parts of an observation."""
    network: str = field(kw_only=True)
    """Name of the network that reads the images, one of `images.NETWORKS`."""

    @cached_property
    def encoder(self) -> ModuleEncoder:
        """Module that reads the images, and the numbers next to them."""
        return shipped_encoder(self.parts, self.network)

    @cached_property
    def layout(self) -> Layout:
        """The weights of one member: those of the encoder, and those of the layers behind it."""
        module = self.encoder.module
        encoder_weights = dict[str, Weight]()
        for name, value in module.named_parameters():
            layer = name.rpartition(".")[0]
            # Numbers that one output is made of; torch's layers draw a bias with the fan-in of its weight, too.
            fan_in = module.get_parameter(f"{layer}.weight")[0].numel()
            encoder_weights[PREFIX + name] = Weight(tuple(value.shape), fan_in)
        return Layout(encoder_weights | dict(super().layout.weights))

    def unmasked_values(self, params: Params, obs: Tensor) -> Float[Tensor, "P B A"]:
        """Return each member's value (or logit) of every choice, before the mask of legal ones.

        Observations are bytes [P, B, ...].
        """
        rows = obs.flatten(2)
        # The numbers of the observations that are outside of images.
        observed_numbers = view_numbers(rows, self.encoder.parts, torch.float32)
        features = []
        # One member at a time: grouped convolutions of all members take longer.
        for member in range(len(rows)):
            weights = _encoder_weights(params, member)
            features.append(self.encoder(weights, observed_numbers[member], rows[member], learning=False))
        # The layers behind the encoder read its features as observations.
        return super().unmasked_values(params, torch.stack(features))


def image_values(
    parts: Parts, network: str, choices: int, hidden_sizes: tuple[int, ...], **switches: bool
) -> ImageValues:
    """Return a network for observations of these parts.

    Args:
        parts: parts of an observation.
        network: one of `images.NETWORKS`.
        choices: length of the list that actions are chosen from.
        hidden_sizes: widths of the hidden layers behind the encoder.
        switches: `duelling`, `drawn` and `masked` of `MLPValues`.
    """
    features = shipped_encoder(parts, network).features
    return ImageValues(features, choices, hidden_sizes, parts=parts, network=network, **switches)


def _encoder_weights(params: Params, member: int) -> dict[str, Tensor]:
    """Return one member's weights of the encoder, by name."""
    return {name: weight[member] for name, weight in params.items() if name.startswith(PREFIX)}
