"""A module that reads observations is called with given tensors, as `torch.func.functional_call` would call it."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from flatwater.nets.images import PixelConvolution, convolution
from flatwater.nets.module_encoder import PREFIX, shipped_encoder, try_module
from flatwater.nets.observation import Part, split_parts


class Tied(nn.Module):
    """A weight in two places, a buffer that a call changes, and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.linspace(1, 2, 3), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, obs: Tensor) -> Tensor:
        self.get_buffer("calls").add_(1)
        features: Tensor = self.second(self.first(obs).relu()) * self.frozen
        return features


def test_a_module_is_called_with_tensors_and_has_its_own_again() -> None:
    encoder = try_module(Tied, "network", (Part(shape=(3,)),))
    own = [*encoder.module.named_parameters(), *encoder.module.named_buffers()]
    rng = torch.Generator().manual_seed(0)
    shapes = {name: value.shape for name, value in encoder.module.named_parameters()}
    given = {name: torch.rand(shape, generator=rng).requires_grad_() for name, shape in shapes.items()}

    def call(tensors: dict[str, Tensor], obs: Tensor) -> Tensor:
        return encoder({PREFIX + name: value for name, value in tensors.items()}, obs, None, learning=True)

    def call_by_torch(tensors: dict[str, Tensor], obs: Tensor) -> Tensor:
        features: Tensor = functional_call(encoder.module, tensors, (obs,))
        return features

    obs, results, buffers = torch.rand(2, 3, generator=rng), [], []
    for run in (call, call_by_torch):
        buffer = torch.zeros(())
        features = run(given | {"calls": buffer}, obs)
        results.append((features, *torch.autograd.grad(features.sum(), list(given.values()), allow_unused=True)))
        buffers.append(buffer)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert [int(buffer) for buffer in buffers] == [1, 1]
    with pytest.raises(KeyError, match="calls"):
        call(given, obs)
    kept = [*encoder.module.named_parameters(), *encoder.module.named_buffers()]
    assert all(one is other for (_, one), (_, other) in zip(own, kept, strict=True))


@pytest.mark.parametrize("name", ["nature", "impala"])
def test_a_shipped_network_reads_pixels_as_shares_of_their_highest(name: str) -> None:
    parts = (Part(shape=(3, 20, 20), channels=(0,), low=(0.0,), high=(7.0,)),)
    encoder = shipped_encoder(parts, name)
    module = encoder.build()
    row = torch.randint(0, 8, (2, 1200), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = encoder({PREFIX + key: value for key, value in module.named_parameters()}, row[:, :0], row, learning=True)
    (shares,) = split_parts(parts, row[:, :0], row)
    layers = module.get_submodule("parts.0")
    first = layers.get_submodule("0")
    assert isinstance(first, PixelConvolution)
    first.max_pixel = 1.0
    torch.testing.assert_close(found, layers(shares), rtol=1e-3, atol=1e-4)
    assert found.shape == (2, encoder.features)


@pytest.mark.parametrize("channels", [1, 3, 4, 8])
def test_an_update_reads_images_by_the_same_function_as_a_step(channels: int) -> None:
    """Whatever order of channels is faster."""
    layer, rng = convolution(channels, (6, 4, 2, 1), 255.0), torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (32, channels, 12, 12), generator=rng).float()
    learned = layer(images)
    with torch.no_grad():
        torch.testing.assert_close(learned, layer(images), rtol=1e-4, atol=1e-5)
    plain = functional.conv2d(images, layer.weight / 255, layer.bias, stride=2, padding=1)
    gradients = (torch.autograd.grad(found.square().sum(), [*layer.parameters()]) for found in (learned, plain))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.long
def test_the_shipped_network_of_images_is_built_without_the_compiler() -> None:
    """A call on the meta device would import it: a second of the CPU and its memory, in every command of such a run."""
    program = """
import sys
from flatwater.nets.module_encoder import shipped_encoder
from flatwater.nets.observation import Part
parts = Part(("seen",), (3, 36, 36), (0,), (0.0,), (255.0,)), Part(("felt",), (2, 3))
encoder = shipped_encoder(parts, "nature")
sys.exit(encoder.features != 512 + 6 or "torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
