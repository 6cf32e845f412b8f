"""Seeds behind a layer of a user's network, computed for one host at a time under `torch.func.vmap`.

Their weights and blueprints are those of the shipped hosts' seeds: a masked 3 x 3 convolution behind [N, C, H, W], a
matrix behind [N, F], each with a norm and ReLU.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import conv2d, group_norm, layer_norm

from flatwater.nets.host_mlp import dense_seed, dense_seed_sizes, seed_matrix
from flatwater.nets.hosts import conv_seed, conv_seed_sizes, mask_kernel
from flatwater.nets.stack import Layout, Params


class Graft(Protocol):
    """A seed behind one slot's layer."""

    @property
    def layout(self) -> Layout:
        """The weights of a seed, whatever its blueprint."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of weights in use, by blueprint."""

    def cut_to_blueprint(self, seed: Params, blueprint: Int[Tensor, " E"]) -> Params:
        """Return the weights of every host's seed, cut to its blueprint."""

    def apply_seed(self, seed: Params, features: Tensor) -> Tensor:
        """Return the seed's output on the features of one host, with weights that were cut."""


@dataclass(frozen=True)
class ConvGraft:
    """A convolutional seed behind features [N, C, H, W]."""

    width: int
    """Channels, C."""

    @property
    def layout(self) -> Layout:
        """Weights of a convolution with as many channels out as in, and of its norm."""
        return conv_seed(self.width)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of weights in use: full, centre, diagonal."""
        return conv_seed_sizes(self.width)

    def cut_to_blueprint(self, seed: Params, blueprint: Int[Tensor, " E"]) -> Params:
        """Return the weights of every host's seed, cut to its blueprint."""
        return {**seed, "seed.weight": mask_kernel(seed["seed.weight"], blueprint)}

    def apply_seed(self, seed: Params, features: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C H W"]:
        """Return the seed's output on the features of one host."""
        kernel = seed["seed.weight"].reshape(self.width, self.width, 3, 3)
        # Two groups, as the shipped hosts' norms have; an odd width cannot be halved.
        groups = 1 if self.width % 2 else 2
        return group_norm(conv2d(features, kernel, padding=1), groups, seed["seed.scale"], seed["seed.shift"]).relu()


@dataclass(frozen=True)
class DenseGraft:
    """A dense seed behind features [N, F]."""

    width: int
    """Features, F."""
    rank: int
    """Rank of a low-rank seed."""

    @property
    def layout(self) -> Layout:
        """Weights of a full matrix, of which a low-rank seed uses the first columns, the other factor, and a norm."""
        return dense_seed(self.width, self.rank)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of weights in use: linear, low-rank, norm."""
        return dense_seed_sizes(self.width, self.rank)

    def cut_to_blueprint(self, seed: Params, blueprint: Int[Tensor, " E"]) -> Params:
        """Return the weights of every host's seed, cut to its blueprint."""
        # The same operations for every blueprint, because vmap runs one program for all hosts.
        return {**seed, "seed.weight": seed_matrix(seed, blueprint, self.rank)}

    def apply_seed(self, seed: Params, features: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Return the seed's output on the features of one host."""
        normalised = layer_norm(features @ seed["seed.weight"], (self.width,))
        # shift + normalised * scale
        return torch.addcmul(seed["seed.shift"], normalised, seed["seed.scale"]).relu()
