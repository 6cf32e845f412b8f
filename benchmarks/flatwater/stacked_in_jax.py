"""The other side of `bench_stacked.py --jax`: CleanRL's DDPG update of all members as one program, `jit` of `vmap`.

Needs JAX (`pip install jax`), which nothing else here does.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("bench_stacked.py --jax needs JAX: pip install jax")

Net = list[tuple[Any, Any]]
"""Weight and bias of each layer."""
BETA, BETA_OF_SQUARES, EPSILON = 0.9, 0.999, 1e-8


def net_of(layers: torch.nn.Module) -> Net:
    """The weights of a module of linear layers."""
    linear = [each for each in layers.children() if isinstance(each, torch.nn.Linear)]
    return [(jnp.asarray(each.weight.detach().numpy().T), jnp.asarray(each.bias.detach().numpy())) for each in linear]


def run(net: Net, x: Any) -> Any:  # noqa: ANN401
    """Linear layers with ReLU between them."""
    for weight, bias in net[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    return x @ net[-1][0] + net[-1][1]


def value(critic: Net, obs: Any, action: Any) -> Any:  # noqa: ANN401
    """Q of each row."""
    return run(critic, jnp.concatenate([obs, action], 1))[:, 0]


def adam(net: Net, moments: Any, gradient: Net, step: Any, lr: float) -> tuple[Net, Any]:  # noqa: ANN401
    """Do a step of Adam, as torch does it."""
    mean = jax.tree.map(lambda m, g: BETA * m + (1 - BETA) * g, moments[0], gradient)
    square = jax.tree.map(lambda s, g: BETA_OF_SQUARES * s + (1 - BETA_OF_SQUARES) * g * g, moments[1], gradient)

    def step_weight(weight: Any, m: Any, s: Any) -> Any:  # noqa: ANN401
        return weight - lr * (m / (1 - BETA**step)) / (jnp.sqrt(s / (1 - BETA_OF_SQUARES**step)) + EPSILON)

    return jax.tree.map(step_weight, net, mean, square), (mean, square)


def update(member: Any, batch: Any, *, gamma: float, tau: float, rates: tuple[float, float]) -> Any:  # noqa: ANN401
    """One member's state after its update."""
    obs, action, reward, discount, next_obs = batch
    actor, critic = member["actor"], member["critic"]
    following = value(member["critic_target"], next_obs, jnp.tanh(run(member["actor_target"], next_obs)))
    target, step = reward + discount * gamma * following, member["step"] + 1
    gradient = jax.grad(lambda net: jnp.mean((value(net, obs, action) - target) ** 2))(critic)
    critic, of_critic = adam(critic, member["of_critic"], gradient, step, rates[1])
    gradient = jax.grad(lambda net: -jnp.mean(value(critic, obs, jnp.tanh(run(net, obs)))))(actor)
    actor, of_actor = adam(actor, member["of_actor"], gradient, step, rates[0])
    followed = {
        f"{name}_target": jax.tree.map(lambda slow, fast: (1 - tau) * slow + tau * fast, member[f"{name}_target"], net)
        for name, net in (("actor", actor), ("critic", critic))
    }
    return followed | {"actor": actor, "critic": critic, "of_actor": of_actor, "of_critic": of_critic, "step": step}


def stacked_in_jax(
    members: Sequence[tuple[torch.nn.Module, torch.nn.Module]],
    batch: list[torch.Tensor],
    *,
    gamma: float,
    tau: float,
    rates: tuple[float, float],
) -> Callable[[], Any]:
    """A turn that updates all members at once, and returns their state.

    Args:
        members: actor and critic of each.
        batch: observations, actions, rewards, discounts and following observations, of all members.
        gamma: discount.
        tau: how fast targets follow.
        rates: of learning, actor's and critic's.
    """
    each = [_state(net_of(actor), net_of(critic)) for actor, critic in members]
    held = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)]
    given = tuple(jnp.asarray(field.numpy()) for field in batch)
    whole = jax.jit(jax.vmap(partial(update, gamma=gamma, tau=tau, rates=rates)), donate_argnums=0)

    def turn() -> Any:  # noqa: ANN401
        held[0] = jax.block_until_ready(whole(held[0], given))
        return held[0]

    return turn


def _state(actor: Net, critic: Net) -> dict[str, Any]:
    copied = {name: jax.tree.map(jnp.copy, net) for name, net in (("actor_target", actor), ("critic_target", critic))}
    moments = {
        name: (jax.tree.map(jnp.zeros_like, net), jax.tree.map(jnp.zeros_like, net))
        for name, net in (("of_actor", actor), ("of_critic", critic))
    }
    return copied | moments | {"actor": actor, "critic": critic, "step": jnp.zeros(())}
