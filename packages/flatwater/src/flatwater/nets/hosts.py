"""Hosts with slots, E of them as one: convolutional networks for images of any size.

All hosts have the same shapes, so that one grouped convolution serves them all; they differ by weights, masks and
gates. An impaired host has the centre tap of its 3 x 3 kernels alone (it sees single pixels), a seed's blueprint is a
mask of one 3 x 3 weight, an empty slot is a gate of 0. No host's numbers reach another's: channels of host e are
channels [e C, (e + 1) C) of every layer, and groups never cross that border.

Features are [B, E C, H, W]. Blocks are convolution, GroupNorm and ReLU; a slot follows each; from the second
block on, convolutions have a stride of two pixels; the mean over the last pixels goes into a linear head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d, group_norm

from flatwater.nets.slots import SlotGates, blend_seed, seed_input
from flatwater.nets.stack import Layout, Params, Weight

KERNEL_TAPS = 9
"""Weights of a 3 x 3 kernel, in the order of its rows."""
CENTRE_TAP = 4
"""Index of the middle tap of a 3 x 3 kernel."""
FULL, CENTRE_ONLY, DIAGONAL = range(3)
"""Blueprints of a convolutional seed."""


@dataclass(frozen=True)
class ImageShape:
    """Size of a host's images, and the number of classes that it tells apart."""

    channels: int
    height: int
    width: int
    classes: int

    @property
    def pixels(self) -> int:
        """Numbers of one image, P = channels x height x width, channels first; or of one vector."""
        return self.channels * self.height * self.width


class Host(Protocol):
    """A network with slots, of which E are computed at once."""

    @property
    def layout(self) -> Layout:
        """The host's own weights."""

    @property
    def seeds(self) -> tuple[Layout, ...]:
        """The weights of a seed in each slot, whatever its blueprint."""

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """Tensors that it computes with besides weights: the same for all hosts, and at all times."""

    @property
    def has_kernels(self) -> bool:
        """Whether an impaired host lacks taps of its kernels; where there are none, all hosts are alike."""

    def seed_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of weights in use in a seed, by slot and blueprint."""

    def logits(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "B E P"]
    ) -> Float[Tensor, "B E K"]:
        """Return the logits of every host on images of its own.

        Axes: B images of each host, E hosts, P numbers of an image, K classes.

        Args:
            host: the hosts' own weights, each [E, *shape].
            seeds: the weights of each slot's seeds, in the order of slots, each [E, *shape].
            gates: masks and gates of hosts and seeds.
            images: the images; image b of host e is `images[b, e]`.
        """

    def ablations(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "N P"]
    ) -> Float[Tensor, "V N E K"]:
        """Return logits on the same images, of each host as it is and without each slot's seed: V = 1 + S.

        Args:
            host: the hosts' own weights, each [E, *shape].
            seeds: the weights of each slot's seeds, in the order of slots, each [E, *shape].
            gates: masks and gates of hosts and seeds.
            images: N images that all hosts see.

        Returns:
            Index 0 of the first axis is each host as it is, index 1 + s is without the seed of slot s.
        """


@dataclass(frozen=True)
class ConvHost:
    """A host of three blocks of 3 x 3 convolutions, or of as many as there are widths."""

    image_shape: ImageShape
    channels: tuple[int, ...] = (4, 8, 16)
    """Channels after each block, multiples of `groups`."""
    groups: int = 2
    """Groups of each GroupNorm."""
    has_kernels = True

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """No numbers besides weights."""
        return {}

    @cached_property
    def layout(self) -> Layout:
        """Kernels [out, in, 9], scales and shifts of the norms, and the head [in, K]."""
        weights: dict[str, Weight] = {}
        for block, (inputs, outputs) in enumerate(pairwise((self.image_shape.channels, *self.channels))):
            weights |= _conv_weights(str(block), inputs, outputs)
        width, classes = self.channels[-1], self.image_shape.classes
        weights |= {"head.weight": Weight((width, classes), fan_in=width), "head.bias": Weight((classes,), fan_in=0)}
        return Layout(weights)

    @cached_property
    def seeds(self) -> tuple[Layout, ...]:
        """A convolution of as many channels out as in, and its norm."""
        return tuple(conv_seed(width) for width in self.channels)

    def seed_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of weights in use in a seed, by slot and blueprint."""
        return tuple(conv_seed_sizes(width) for width in self.channels)

    def logits(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "B E P"]
    ) -> Float[Tensor, "B E K"]:
        """Return the logits of every host on images of its own: image b of host e is `images[b, e]`.

        Weights of hosts and of each slot's seeds are [E, *shape]; `gates` say how much each seed is blended in.
        """
        # The channels of all hosts lie side by side: [B, E * channels, height, width].
        x = images.view(len(images), -1, *self._sides)
        return self._run_hosts(host, seeds, gates, x, with_ablations=False)

    def ablations(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "N P"]
    ) -> Float[Tensor, "V N E K"]:
        """Return logits on the same N images: of each host as it is (first axis, 0), and without each slot's seed.

        Weights of hosts and of each slot's seeds are [E, *shape]; `gates` say how much each seed is blended in.
        """
        # [N, channels, height, width], the same for all hosts.
        x = images.view(len(images), -1, *self._sides)
        logits = self._run_hosts(host, seeds, gates, x, with_ablations=True)
        return logits.view(1 + len(seeds), -1, *logits.shape[1:])

    @property
    def _sides(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.image_shape.height, self.image_shape.width

    def _run_hosts(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, x: Tensor, *, with_ablations: bool
    ) -> Tensor:
        """Return logits [B, E, K] of images [B, E * channels, height, width]: hosts are channel groups, side by side.

        Images may be [B, channels, height, width], the same for all hosts. With `with_ablations`, axis 0 has the batch
        with all seeds, then without slot 0's seed, without slot 1's, ...: [(1 + S) B, E, K].
        """
        batch_size = len(x)
        for block, seed in enumerate(seeds):
            # A mask of taps and not a smaller kernel: whole and impaired hosts stay in one grouped convolution.
            kernel = host[f"{block}.weight"] * gates.kernel[:, None, None, :]
            # Each block after the first halves the images' sides.
            x = self._apply_block(host, str(block), kernel, x, stride=1 if block == 0 else 2)
            with_seed = self._apply_slot(seed, gates, block, x)
            # The pass without this slot's seed branches off here: up to this block it equals the first pass.
            x = torch.cat((with_seed, x[:batch_size])) if with_ablations else with_seed
        # The head is one matrix product for each host: [E, B, C] times [E, C, K].
        pooled_channels = x.mean((2, 3)).view(len(x), len(gates.kernel), -1).transpose(0, 1)
        return torch.baddbmm(host["head.bias"].unsqueeze(1), pooled_channels, host["head.weight"]).transpose(0, 1)

    def _apply_block(
        self, params: Params, name: str, kernel: Float[Tensor, "E O I 9"], x: Tensor, *, stride: int
    ) -> Tensor:
        """Return convolution, group norm and ReLU of all hosts at once, each on its own group of channels.

        Args:
            params: weights of the hosts or of the seeds, each [E, *shape].
            name: the block's name, which begins its weights' names: a number, or `seed`.
            kernel: kernels [E, out, in, 9], masked.
            x: features [B, E * in, H, W], or [B, in, H, W], the same for all hosts.
            stride: stride of the convolution, in pixels.

        Returns:
            Features [B, E * out, H', W'], with H' = H / stride rounded up.
        """
        hosts, inputs = kernel.shape[0], kernel.shape[2]
        kernels = kernel.reshape(-1, inputs, 3, 3)
        # One group for each host; or a single group where all hosts read the same images.
        y = conv2d(x, kernels, stride=stride, padding=1, groups=x.shape[1] // inputs)
        scale = params[f"{name}.scale"].flatten()
        shift = params[f"{name}.shift"].flatten()
        # ReLU in place: the norm's gradient does not read the norm's output.
        return group_norm(y, hosts * self.groups, scale, shift).relu_()

    def _apply_slot(self, seed: Params, gates: SlotGates, slot: int, features: Tensor) -> Tensor:
        """Return the features after a slot: the block's output, with the seed's output blended in by the slot's gates.

        Args:
            seed: weights of this slot's seeds, each [E, *shape].
            gates: gates of all slots.
            slot: number of the slot, S in all.
            features: those that leave the block, [B, E * C, H, W].
        """
        alpha, train, blueprint = gates.alpha[:, slot], gates.train[:, slot], gates.blueprint[:, slot]
        hosts = len(alpha)
        # [B, E, C * H * W], the form of `seed_input` and `blend_seed`.
        flat_features = features.view(len(features), hosts, -1)
        # Equal numbers; while a seed trains behind its host, its gradient stops there.
        seed_features = seed_input(flat_features, train).view(features.shape)
        seed_output = self._apply_block(
            seed, "seed", mask_kernel(seed["seed.weight"], blueprint), seed_features, stride=1
        )
        flat_output = seed_output.view(flat_features.shape)
        return blend_seed(flat_features, flat_output, alpha=alpha, train=train).view(features.shape)


def conv_seed(width: int) -> Layout:
    """Return the weights of a convolutional seed, whatever its blueprint."""
    return Layout(_conv_weights("seed", width, width))


def conv_seed_sizes(width: int) -> tuple[int, int, int]:
    """Return the numbers of weights that full, centre-only and diagonal seeds of `width` channels use."""
    norm_size = 2 * width  # a scale and a shift for each channel
    return KERNEL_TAPS * width**2 + norm_size, width**2 + norm_size, KERNEL_TAPS * width + norm_size


def mask_kernel(weight: Float[Tensor, "E C C 9"], blueprint: Tensor) -> Float[Tensor, "E C C 9"]:
    """Return each seed's kernels with 0 for the weights that its blueprint does not use.

    `FULL` uses all weights, `CENTRE_ONLY` the middle tap, `DIAGONAL` the kernels from each channel to itself.
    """
    width, device = weight.shape[1], weight.device
    is_centre = torch.arange(KERNEL_TAPS, device=device) == CENTRE_TAP
    used_taps = (blueprint != CENTRE_ONLY)[:, None] | is_centre
    is_same_channel = torch.eye(width, dtype=torch.bool, device=device)
    used_channel_pairs = (blueprint != DIAGONAL)[:, None, None] | is_same_channel
    return weight * (used_taps[:, None, None, :] & used_channel_pairs[..., None])


def _conv_weights(name: str, inputs: int, outputs: int) -> dict[str, Weight]:
    """Return the weights of a 3 x 3 convolution and of its norm, by name."""
    return {
        f"{name}.weight": Weight((outputs, inputs, KERNEL_TAPS), fan_in=KERNEL_TAPS * inputs),
        f"{name}.scale": Weight((outputs,), fan_in=0, start=1.0),
        f"{name}.shift": Weight((outputs,), fan_in=0),
    }
