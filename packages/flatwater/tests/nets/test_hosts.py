"""E hosts as one are E hosts one by one: outputs, gradients and twenty updates, for every blueprint and stage."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

sys.path.append(str(Path(__file__).parents[4] / "benchmarks" / "flatwater"))
from looped_hosts import LoopedHost

from flatwater.nets.host_mlp import MLPHost
from flatwater.nets.hosts import CENTRE_TAP, KERNEL_TAPS, ConvHost, ImageShape, mask_kernel
from flatwater.nets.slots import SlotGates, blend_seed, seed_input
from flatwater.nets.stack import init_, views

torch.set_num_threads(1)
HOSTS, IMAGES = 4, 6
SHOWN = ImageShape(channels=1, height=8, width=8, classes=10)
NETS = pytest.mark.parametrize("net", [ConvHost(SHOWN, (2, 4, 6)), MLPHost(SHOWN, (5, 6, 7), 2)], ids=["conv", "mlp"])

BLUEPRINT = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 0, 0]])
ALPHA = torch.tensor([[0.0, 0.3, 1.0], [1.0, 0.0, 0.7], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
TRAIN = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
"""Behind the host, blending and held seeds in each slot; the last host has none."""
IMPAIRED = torch.tensor([False, True, False, True])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def arena(
    net: ConvHost | MLPHost, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], SlotGates, Tensor, Tensor]:
    """Weights of hosts and seeds, gates, images [B, E, 64] and labels [B, E]."""
    rng = generator()
    blocks = []
    for layout in (net.layout, *net.seeds):
        block = torch.zeros(HOSTS, layout.size)
        init_(block, layout, rng)
        blocks.append(block.to(dtype))
    kernel = (~IMPAIRED[:, None] | (torch.arange(KERNEL_TAPS) == CENTRE_TAP)).to(dtype)
    images = torch.rand(IMAGES, HOSTS, 64, generator=rng).to(dtype)
    labels = torch.randint(0, 10, (IMAGES, HOSTS), generator=rng)
    return blocks, SlotGates(kernel, BLUEPRINT, ALPHA.to(dtype), TRAIN.to(dtype)), images, labels


def named_weights(net: ConvHost | MLPHost, blocks: list[Tensor]) -> list[dict[str, Tensor]]:
    return [views(block, layout) for block, layout in zip(blocks, (net.layout, *net.seeds), strict=True)]


def looped_host(net: ConvHost | MLPHost, blocks: list[Tensor], env: int) -> LoopedHost:
    host, *seeds = ({name: w[env] for name, w in part.items()} for part in named_weights(net, blocks))
    return LoopedHost(net, host, seeds, BLUEPRINT[env].tolist(), 1 if IMPAIRED[env] else KERNEL_TAPS)


@NETS
def test_all_hosts_at_once_compute_what_each_computes_alone(net: ConvHost | MLPHost) -> None:
    blocks, gates, images, _ = arena(net)
    host, *seeds = named_weights(net, blocks)
    together = net.logits(host, seeds, gates, images)
    for env in range(HOSTS):
        torch.testing.assert_close(
            together[:, env], looped_host(net, blocks, env)(images[:, env], ALPHA[env], TRAIN[env]), rtol=0, atol=2e-6
        )


@NETS
@pytest.mark.parametrize(("dtype", "lr", "apart"), [(torch.float32, 0.01, 1e-5), (torch.float64, 0.1, 1e-12)])
def test_twenty_updates_at_once_are_those_of_each_host_alone(
    net: ConvHost | MLPHost, dtype: torch.dtype, lr: float, apart: float
) -> None:
    """Plain gradient steps, so that a wrong gradient shows in its size, not only in its sign."""
    blocks, gates, images, labels = arena(net, dtype)
    alone = [looped_host(net, blocks, env).to(dtype) for env in range(HOSTS)]
    trained = [block.clone().requires_grad_() for block in blocks]
    for _ in range(20):
        host, *seeds = named_weights(net, trained)
        logits = net.logits(host, seeds, gates, images)
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape).mean(0).sum()
        for block, grad in zip(trained, torch.autograd.grad(loss, trained), strict=True):
            block.data.sub_(grad, alpha=lr)
        for env, one in enumerate(alone):
            error = cross_entropy(one(images[:, env], gates.alpha[env], gates.train[env]), labels[:, env])
            grads = torch.autograd.grad(error, [*one.parameters()], allow_unused=True)
            for parameter, own in zip(one.parameters(), grads, strict=True):
                parameter.data.sub_(0 if own is None else own, alpha=lr)
    host, *seeds = named_weights(net, [block.detach() for block in trained])
    for env, one in enumerate(alone):
        with torch.no_grad():
            own = one(images[:, env], gates.alpha[env], gates.train[env])
            assert (own - net.logits(host, seeds, gates, images)[:, env]).abs().max() <= apart
    assert (trained[0] - blocks[0]).abs().max() > lr / 10


@NETS
def test_one_pass_holds_the_network_without_each_seed(net: ConvHost | MLPHost) -> None:
    blocks, gates, images, _ = arena(net)
    host, *seeds = named_weights(net, blocks)
    common = images[:, 0]
    passes = net.ablations(host, seeds, gates, common)
    for left_out in range(4):
        alpha = ALPHA.clone()
        if left_out:
            alpha[:, left_out - 1] = 0
        spread = common[:, None].expand(-1, HOSTS, -1)
        wanted = net.logits(host, seeds, gates._replace(alpha=alpha), spread)
        torch.testing.assert_close(passes[left_out], wanted, rtol=0, atol=2e-6)


@NETS
def test_no_gradient_of_a_host_reaches_another(net: ConvHost | MLPHost) -> None:
    blocks, gates, images, labels = arena(net)
    trained = [block.clone().requires_grad_() for block in blocks]
    host, *seeds = named_weights(net, trained)
    cross_entropy(net.logits(host, seeds, gates, images)[:, 2], labels[:, 2]).backward()
    for block in trained:
        assert block.grad is not None
        assert block.grad[[0, 1, 3]].count_nonzero() == 0
        assert block.grad[2].count_nonzero() > 0


@NETS
def test_an_absent_seed_gets_no_gradient_and_a_masked_weight_neither(net: ConvHost | MLPHost) -> None:
    blocks, gates, images, labels = arena(net)
    trained = [block.clone().requires_grad_() for block in blocks]
    host, *seeds = named_weights(net, trained)
    cross_entropy(net.logits(host, seeds, gates, images).flatten(0, 1), labels.flatten()).backward()
    sizes = net.seed_sizes()
    for slot, block in enumerate(trained[1:]):
        assert block.grad is not None
        for env in range(HOSTS):
            there = bool(ALPHA[env, slot] + TRAIN[env, slot] > 0)
            used = int(block.grad[env].count_nonzero())
            assert used <= (sizes[slot][int(BLUEPRINT[env, slot])] if there else 0)
            assert not there or used > 2


def test_the_slot_is_its_formula_in_value_and_in_gradient() -> None:
    rng = generator()
    for alpha, train in ((0.0, 0.0), (0.0, 1.0), (0.3, 0.0), (0.8, 0.0), (1.0, 0.0)):
        h, w = (torch.randn(3, 2, 5, generator=rng, dtype=torch.float64).requires_grad_() for _ in range(2))
        gates = [torch.full((2,), gate, dtype=torch.float64) for gate in (alpha, train)]
        seen = seed_input(h, gates[1])
        out = blend_seed(h, (seen * w).tanh(), alpha=gates[0], train=gates[1])
        found = torch.autograd.grad(out.square().sum(), (h, w))

        z = ((h.detach() if train else h) * w).tanh()
        written = h + alpha * (z - h) + train * (z - z.detach())
        wanted = torch.autograd.grad(written.square().sum(), (h, w))
        torch.testing.assert_close(out, written, rtol=0, atol=1e-15)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
        assert alpha > 0 or torch.equal(out, h)
        assert alpha < 1 or torch.equal(out, z)


def test_a_blueprint_is_a_mask_of_one_weight() -> None:
    weight = torch.ones(3, 4, 4, KERNEL_TAPS)
    full, centre, diagonal = mask_kernel(weight, torch.tensor([0, 1, 2]))
    assert full.sum() == 4 * 4 * KERNEL_TAPS
    assert centre.sum() == 4 * 4
    assert bool(centre[..., CENTRE_TAP].all())
    assert diagonal.sum() == 4 * KERNEL_TAPS
    assert bool(diagonal[range(4), range(4)].all())
