"""The stacked ReLU networks against torch modules, member by member, with their gradients."""

import pytest
import torch
from torch import Tensor, nn

from flatwater.nets.mlp import NARROW_OUTPUTS, MLPActor, MLPCritic
from flatwater.nets.stack import Layout, init_, views

P, B = 3, 5


def block_of(layout: Layout) -> Tensor:
    block = torch.empty(P, layout.size, dtype=torch.float64)
    init_(block, layout, torch.Generator().manual_seed(0))
    return block


def modules(params: dict[str, Tensor], member: int, layers: int) -> nn.Sequential:
    """One member's network of torch.nn.Linear layers, sharing no arithmetic with the stacked one."""
    found: list[nn.Module] = []
    for layer in range(layers):
        weight = params[f"{layer}.weight"][member]
        if layer == 0 and "0.action" in params:
            weight = torch.cat([weight, params["0.action"][member]])
        linear = nn.Linear(*weight.shape, dtype=weight.dtype)
        linear.load_state_dict({"weight": weight.T, "bias": params[f"{layer}.bias"][member]})
        found += [linear, nn.ReLU()]
    return nn.Sequential(*found[:-1])


@pytest.mark.parametrize("actions", [1, 2, NARROW_OUTPUTS + 1])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 6, 4)])
def test_values_and_gradients_are_those_of_separate_modules(actions: int, hidden: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(1)
    actor = MLPActor(4, actions, hidden)
    block = block_of(actor.layout)
    obs = torch.randn(P, B, 4, generator=rng, dtype=torch.float64).requires_grad_()
    params = {name: view.clone().requires_grad_() for name, view in views(block, actor.layout).items()}

    action = actor(params, obs)
    slope = torch.randn(action.shape, generator=rng, dtype=torch.float64)
    grads = torch.autograd.grad(action, [*params.values(), obs], slope)

    named = dict(zip([*params, "obs"], grads, strict=True))
    for p in range(P):
        one, own = modules(params, p, len(hidden) + 1), obs[p].detach().requires_grad_()
        expected = torch.tanh(one(own))
        expected.backward(slope[p])
        torch.testing.assert_close(action[p], expected, rtol=0, atol=1e-14)
        torch.testing.assert_close(named["obs"][p], own.grad, rtol=0, atol=1e-14)
        for layer, module in enumerate(one[::2]):
            torch.testing.assert_close(named[f"{layer}.weight"][p], module.weight.grad.T, rtol=0, atol=1e-13)
            torch.testing.assert_close(named[f"{layer}.bias"][p], module.bias.grad, rtol=0, atol=1e-13)


@pytest.mark.parametrize("hidden", [(8,), (8, 6, 4)])
def test_a_critic_is_one_network_of_observation_and_action(hidden: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(1)
    critic = MLPCritic(4, 2, hidden)
    params = {name: view.clone() for name, view in views(block_of(critic.layout), critic.layout).items()}
    obs, action = (torch.randn(P, B, n, generator=rng, dtype=torch.float64) for n in (4, 2))
    action.requires_grad_()

    value = critic(params, obs, action)
    (slope,) = torch.autograd.grad(value.sum(), action)

    for p in range(P):
        own = torch.cat([obs[p], action[p].detach()], dim=1).requires_grad_()
        expected = modules(params, p, len(hidden) + 1)(own).squeeze(1)
        expected.sum().backward()
        torch.testing.assert_close(value[p], expected, rtol=0, atol=1e-14)
        torch.testing.assert_close(slope[p], own.grad[:, 4:], rtol=0, atol=1e-14)


def test_the_two_parts_of_a_critics_first_matrix_start_by_the_law_of_the_whole() -> None:
    """Uniform in +-1/sqrt(inputs) with the inputs of both parts, as torch.nn.Linear(8 + 8, ...) starts."""
    critic = MLPCritic(8, 8, (400,))
    named = views(block_of(critic.layout), critic.layout)

    for part in ("0.weight", "0.action", "0.bias"):
        assert named[part].abs().max() <= 0.25
        assert named[part].abs().max() > 0.24


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_bfloat16_gives_the_same_numbers_roughly(hidden: tuple[int, ...]) -> None:
    actor = MLPActor(4, 2, hidden)
    params = {name: view.float().requires_grad_() for name, view in views(block_of(actor.layout), actor.layout).items()}
    obs = torch.randn(P, B, 4, generator=torch.Generator().manual_seed(1))

    exact = actor(params, obs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = actor(params, obs)
    grads = [torch.autograd.grad(action.float().sum(), list(params.values())) for action in (exact, rounded)]

    torch.testing.assert_close(rounded.float(), exact, rtol=0.02, atol=0.02)
    for fine, coarse in zip(*grads, strict=True):
        assert coarse.dtype == torch.float32
        torch.testing.assert_close(coarse, fine, rtol=0.1, atol=0.1)
