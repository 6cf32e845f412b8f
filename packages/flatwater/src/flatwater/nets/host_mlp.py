"""Hosts with slots whose blocks are dense layers: E of them as batched matrix products.

Blocks are a linear layer, a layer norm and ReLU; a slot follows each. A seed is a matrix, a norm and ReLU too, and its
blueprint decides the matrix: full, of low rank, or the identity, with which only the norm learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import layer_norm

from flatwater.nets.hosts import ImageShape
from flatwater.nets.slots import SlotGates, blend_seed, seed_input
from flatwater.nets.stack import Layout, Params, Weight, apply_linear, linear

LINEAR, LOW_RANK, NORM = range(3)
"""Blueprints of a dense seed."""


@dataclass(frozen=True)
class MLPHost:
    """A host of dense blocks, as many as there are widths."""

    image_shape: ImageShape
    hidden: tuple[int, ...] = (24, 24, 24)
    """Width of each block."""
    rank: int = 4
    """Rank of a low-rank seed."""
    has_kernels = False

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """No numbers besides weights."""
        return {}

    @cached_property
    def layout(self) -> Layout:
        """Matrices [in, out] and biases, scales and shifts of the norms, and the head."""
        weights: dict[str, Weight] = {}
        for block, (inputs, outputs) in enumerate(pairwise((self.image_shape.pixels, *self.hidden))):
            weights |= linear(str(block), inputs, outputs) | _norm_weights(str(block), outputs)
        return Layout(weights | linear("head", self.hidden[-1], self.image_shape.classes))

    @cached_property
    def seeds(self) -> tuple[Layout, ...]:
        """Weights of the seed in each slot: a matrix, the second factor of a low-rank seed, and a norm."""
        return tuple(dense_seed(width, self.rank) for width in self.hidden)

    def seed_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of weights in use in a seed, by slot and blueprint."""
        return tuple(dense_seed_sizes(width, self.rank) for width in self.hidden)

    def logits(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "B E P"]
    ) -> Float[Tensor, "B E K"]:
        """Return the logits of every host on images of its own: image b of host e is `images[b, e]`.

        Weights of hosts and of each slot's seeds are [E, *shape]; `gates` say how much each seed is blended in.
        """
        # Batched matrix products want the host axis first; the contract of hosts has it second.
        return self._run_hosts(host, seeds, gates, images.transpose(0, 1), with_ablations=False).transpose(0, 1)

    def ablations(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "N P"]
    ) -> Float[Tensor, "V N E K"]:
        """Return logits on the same N images: of each host as it is (first axis, 0), and without each slot's seed.

        Weights of hosts and of each slot's seeds are [E, *shape]; `gates` say how much each seed is blended in.
        """
        # The same images for every host: [N, P] -> [E, N, P], and back from [E, V N, K] to [V, N, E, K].
        outputs = self._run_hosts(host, seeds, gates, images.expand(len(gates.alpha), -1, -1), with_ablations=True)
        return outputs.view(len(outputs), 1 + len(seeds), -1, self.image_shape.classes).permute(1, 2, 0, 3)

    def _run_hosts(
        self,
        host: Params,
        seeds: Sequence[Params],
        gates: SlotGates,
        x: Float[Tensor, "E B F"],
        *,
        with_ablations: bool,
    ) -> Float[Tensor, "E B K"]:
        """Return the logits of one batch `x` of each host; a slot's seed acts on the output of the slot's block.

        Images have F numbers each. With `with_ablations`, axis 1 has the batch with all seeds, then without slot 0's
        seed, ...: [E, (1 + S) B, K].
        """
        batch_size = x.shape[1]
        for block, seed in enumerate(seeds):
            # The block: a linear layer, and behind it a layer norm and ReLU.
            x = _normalise_layer(host, str(block), apply_linear(host, str(block), x))
            with_seed = self._apply_slot(seed, gates, block, x)
            # The pass without this slot's seed branches off here: up to this block it equals the first pass.
            x = torch.cat((with_seed, x[:, :batch_size]), 1) if with_ablations else with_seed
        return apply_linear(host, "head", x)

    def _apply_slot(
        self, seed: Params, gates: SlotGates, slot: int, features: Float[Tensor, "E B F"]
    ) -> Float[Tensor, "E B F"]:
        """Return the features after a slot: the block's output, with the seed's output blended in by the slot's gates.

        Args:
            seed: weights of this slot's seeds, each [E, *shape].
            gates: gates of all slots.
            slot: number of the slot, S in all.
            features: those that leave the block.
        """
        alpha, train, blueprint = gates.alpha[:, slot], gates.train[:, slot], gates.blueprint[:, slot]
        # Transposed for `seed_input` and `blend_seed`, which expect [B, E, F]. The seed's input is equal to the
        # features; while the seed trains behind the host, its gradient stops there.
        batch_first = features.transpose(0, 1)
        seed_features = seed_input(batch_first, train).transpose(0, 1)
        seed_output = _normalise_layer(seed, "seed", torch.bmm(seed_features, seed_matrix(seed, blueprint, self.rank)))
        blended = blend_seed(batch_first, seed_output.transpose(0, 1), alpha=alpha, train=train)
        return blended.transpose(0, 1)


def dense_seed(width: int, rank: int) -> Layout:
    """Return the weights of a dense seed, whatever its blueprint."""
    matrices = {"seed.weight": Weight((width, width), fan_in=width), "seed.factor": Weight((rank, width), fan_in=rank)}
    return Layout(matrices | _norm_weights("seed", width))


def dense_seed_sizes(width: int, rank: int) -> tuple[int, int, int]:
    """Return the numbers of weights that linear, low-rank and norm seeds use, each with its norm's 2 w."""
    return width**2 + 2 * width, 2 * width * rank + 2 * width, 2 * width


def seed_matrix(seed: Params, blueprint: Int[Tensor, " E"], rank: int) -> Float[Tensor, "E F F"]:
    """Return the matrix that each seed's blueprint makes of its weights: F inputs by F outputs.

    Args:
        seed: `seed.weight` [E, F, F], of which a low-rank seed uses the first columns, and `seed.factor` [E, rank, F].
        blueprint: `LINEAR`, `LOW_RANK` or `NORM`, whose matrix is the identity.
        rank: rank of low-rank seeds.
    """
    full_matrix = seed["seed.weight"]
    low_rank_matrix = torch.bmm(full_matrix[..., :rank], seed["seed.factor"])
    identity = torch.eye(full_matrix.shape[-1], dtype=full_matrix.dtype, device=full_matrix.device)
    kind = blueprint[:, None, None]
    # All three matrices are computed, and one is chosen for each host, so that all hosts share one batched product.
    return torch.where(kind == LINEAR, full_matrix, torch.where(kind == LOW_RANK, low_rank_matrix, identity))


def _norm_weights(name: str, width: int) -> dict[str, Weight]:
    """Return the scale and shift of a layer norm, by name."""
    return {f"{name}.scale": Weight((width,), fan_in=0, start=1.0), f"{name}.shift": Weight((width,), fan_in=0)}


def _normalise_layer(params: Params, name: str, x: Float[Tensor, "E B F"]) -> Float[Tensor, "E B F"]:
    """Return ReLU of the layer norm of x, with each host's scale and shift of the layer `name`."""
    shift = params[f"{name}.shift"].unsqueeze(1)
    scale = params[f"{name}.scale"].unsqueeze(1)
    return torch.addcmul(shift, layer_norm(x, x.shape[-1:]), scale).relu()  # shift + normalised * scale
