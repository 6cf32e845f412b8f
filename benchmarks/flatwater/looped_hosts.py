"""The hosts of `flatwater.nets` one by one, as anybody would write them: a module, a loop and optimizers for each.

What an arena expresses by masks and gates is here what it stands for: an impaired host has 1 x 1 convolutions, a
diagonal seed is a depthwise one, and the slot's formula is written as it reads. Takes its weights from an arena's rows.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from flatwater.nets.host_mlp import LINEAR, NORM, MLPHost
from flatwater.nets.hosts import CENTRE_ONLY, CENTRE_TAP, DIAGONAL, ConvHost
from flatwater.nets.stack import Params


class ConvBlock(nn.Module):
    """Convolution, GroupNorm, ReLU; the kernel cut to one tap, or to a depthwise one."""

    def __init__(
        self, kernel: Tensor, scale: Tensor, shift: Tensor, *, stride: int, taps: int, depthwise: bool, groups: int
    ) -> None:
        super().__init__()
        outputs, inputs, _ = kernel.shape
        kernel = kernel.reshape(outputs, inputs, 3, 3) if taps > 1 else kernel[..., CENTRE_TAP, None, None]
        kernel = kernel[range(outputs), range(outputs)].unsqueeze(1) if depthwise else kernel
        self.conv = nn.Conv2d(
            inputs, outputs, kernel.shape[-1], stride, kernel.shape[-1] // 2, 1, inputs if depthwise else 1, bias=False
        )
        self.norm = nn.GroupNorm(groups, outputs)
        _put(self.conv.weight, kernel)
        _put(self.norm.weight, scale)
        _put(self.norm.bias, shift)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the block."""
        y: Tensor = relu(self.norm(self.conv(x)))
        return y


class DenseBlock(nn.Module):
    """Linear layer or matrix, layer norm, ReLU."""

    def __init__(self, factors: list[Tensor], bias: Tensor | None, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.factors = nn.ParameterList([nn.Parameter(f.detach().clone()) for f in factors])
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.norm = nn.LayerNorm(len(scale))
        _put(self.norm.weight, scale)
        _put(self.norm.bias, shift)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the block."""
        for factor in self.factors:
            x = x @ factor
        y: Tensor = relu(self.norm(x if self.bias is None else x + self.bias))
        return y


class LoopedHost(nn.Module):
    """One host and a seed in each slot."""

    def __init__(
        self, net: ConvHost | MLPHost, host: Params, seeds: Sequence[Params], blueprint: list[int], taps: int
    ) -> None:
        super().__init__()
        make = _conv_blocks if isinstance(net, ConvHost) else _dense_blocks
        blocks, grown = make(net, host, seeds, blueprint, taps)  # type: ignore[arg-type]  # mypy loses the pairing
        self.blocks, self.seeds = nn.ModuleList(blocks), nn.ModuleList(grown)
        self.is_conv = isinstance(net, ConvHost)
        self.shown = (net.image_shape.channels, net.image_shape.height, net.image_shape.width)
        self.head = nn.Linear(*host["head.weight"].shape)
        _put(self.head.weight, host["head.weight"].T)
        _put(self.head.bias, host["head.bias"])

    def forward(self, images: Tensor, alpha: Tensor, train: Tensor) -> Tensor:
        """Logits of [B, 64] images, with the gates [S] of each slot."""
        h = images.view(-1, *self.shown) if self.is_conv else images
        for slot, (block, seed) in enumerate(zip(self.blocks, self.seeds, strict=True)):
            h = block(h)
            z = seed(h.detach() if train[slot] else h)
            h = h + alpha[slot] * (z - h) + train[slot] * (z - z.detach())
        out: Tensor = self.head(h.mean((2, 3)) if self.is_conv else h)
        return out

    def optimizers(self, lr: float) -> list[torch.optim.Optimizer]:
        """One for the host and one for each seed."""
        own = [*self.blocks.parameters(), *self.head.parameters()]
        return [torch.optim.Adam(own, lr), *(torch.optim.Adam(seed.parameters(), lr) for seed in self.seeds)]

    def update_(
        self, optimizers: list[torch.optim.Optimizer], images: Tensor, labels: Tensor, gates: tuple[Tensor, Tensor]
    ) -> None:
        """One update of the host and its seeds."""
        for optimizer in optimizers:
            optimizer.zero_grad()
        cross_entropy(self(images, *gates), labels).backward()  # type: ignore[no-untyped-call]  # torch's own
        for optimizer in optimizers:
            optimizer.step()


def _conv_blocks(
    net: ConvHost, host: Params, seeds: Sequence[Params], blueprint: list[int], taps: int
) -> tuple[list[nn.Module], list[nn.Module]]:
    def block(params: Params, name: str, *, stride: int, taps: int, depthwise: bool = False) -> nn.Module:
        weights = [params[f"{name}.{part}"] for part in ("weight", "scale", "shift")]
        return ConvBlock(*weights, stride=stride, taps=taps, depthwise=depthwise, groups=net.groups)

    own = [block(host, str(b), stride=1 + (b > 0), taps=taps) for b in range(len(net.channels))]
    grown = [
        block(seed, "seed", stride=1, taps=1 if kind == CENTRE_ONLY else 9, depthwise=kind == DIAGONAL)
        for seed, kind in zip(seeds, blueprint, strict=True)
    ]
    return own, grown


def _dense_blocks(
    net: MLPHost, host: Params, seeds: Sequence[Params], blueprint: list[int], _taps: int
) -> tuple[list[nn.Module], list[nn.Module]]:
    own: list[nn.Module] = [
        DenseBlock([host[f"{b}.weight"]], host[f"{b}.bias"], host[f"{b}.scale"], host[f"{b}.shift"])
        for b, _ in enumerate(pairwise((0, *net.hidden)))
    ]
    grown: list[nn.Module] = []
    for seed, kind in zip(seeds, blueprint, strict=True):
        full, factor = seed["seed.weight"], seed["seed.factor"]
        factors = {LINEAR: [full], NORM: []}.get(kind, [full[:, : net.rank], factor])
        grown.append(DenseBlock(factors, None, seed["seed.scale"], seed["seed.shift"]))
    return own, grown


def _put(parameter: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(value)
