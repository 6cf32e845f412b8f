"""Gradients of actors and critics of some members, added to their gradient blocks.

The same functions run as they are, differentiated by torch's autograd, and inside a compiled graph, differentiated by
torch.func.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.learners.config import LearnerConfig
from flatwater.learners.losses import actor_loss, actor_slope, critic_loss, critic_slope, smooth, td_target
from flatwater.learners.protocols import Actor, Critic
from flatwater.nets.stack import Layout, Params, views
from flatwater.replay.batch import Batch

METRICS = ("critic_loss", "actor_loss", "q", "critic_grad_norm", "actor_grad_norm", "skipped")
"""Rows of `Rows.sums`."""
CRITIC_LOSS, ACTOR_LOSS, Q, CRITIC_NORM, ACTOR_NORM, SKIPPED = range(len(METRICS))


@dataclass(frozen=True)
class Rows:
    """Consecutive members' rows of every block."""

    actor: Float[Tensor, "p n"]
    actor_target: Float[Tensor, "p n"]
    actor_grad: Float[Tensor, "p n"]
    critics: tuple[Float[Tensor, "p m"], ...]
    critic_targets: tuple[Float[Tensor, "p m"], ...]
    critic_grads: tuple[Float[Tensor, "p m"], ...]
    sums: Float[Tensor, "M p"]


@dataclass(frozen=True)
class Net:
    """The named weights of one network."""

    online: Params
    """What is differentiated."""
    fixed: Params
    """The same storage, not differentiated."""
    target: Params
    grads: Params


@dataclass(frozen=True)
class Nets:
    """All networks of some members, as views of their rows."""

    actor: Net
    critics: tuple[Net, ...]
    sums: Float[Tensor, "M p"]


def bind(rows: Rows, actor: Layout, critic: Layout, *, leaves: bool) -> Nets:
    """The views of `rows`; those to be differentiated are autograd leaves where `leaves`."""

    def net(online: Tensor, target: Tensor, grad: Tensor, layout: Layout) -> Net:
        fixed = views(online, layout)
        free = {name: view.detach().requires_grad_() for name, view in fixed.items()} if leaves else fixed
        return Net(free, fixed, views(target, layout), views(grad, layout))

    critics = zip(rows.critics, rows.critic_targets, rows.critic_grads, strict=True)
    return Nets(
        net(rows.actor, rows.actor_target, rows.actor_grad, actor),
        tuple(net(*blocks, critic) for blocks in critics),
        rows.sums,
    )


# Names for the annotations of nested functions, which are evaluated while a graph is traced and cannot subscript there.
Weights = Sequence[Params]
Values = tuple[Tensor, ...]
"""[p, B] each."""
ValuesOf = Callable[[Weights], Values]
SlopesOf = Callable[[Values], Values]
"""Values -> the derivative of the loss by each of them."""
Gradients = Sequence[Tensor]
"""Of all weights, in order."""
Differentiate = Callable[[ValuesOf, SlopesOf, Weights], Gradients]
"""Losses are differentiated by hand (`learners/losses.py`), networks by torch."""


def by_autograd(values_of: ValuesOf, slopes_of: SlopesOf, params: Weights) -> Gradients:
    """For weights that are autograd leaves."""
    values = values_of(params)
    slopes = slopes_of(tuple(value.detach() for value in values))
    weights = [weight for named in params for weight in named.values()]
    return torch.autograd.grad(values, weights, slopes, materialize_grads=True)


def by_transform(values_of: ValuesOf, slopes_of: SlopesOf, params: Weights) -> Gradients:
    """For tracing."""
    values, pull_back, *_ = torch.func.vjp(values_of, [dict(named) for named in params])
    (grads,) = pull_back(slopes_of(values))
    return [grad for named in grads for grad in named.values()]


@dataclass(frozen=True)
class Rule:
    """What is computed from the weights and a batch."""

    config: LearnerConfig
    actor: Actor
    critic: Critic
    differentiate: Differentiate


def autocast(config: LearnerConfig, device: torch.device) -> AbstractContextManager[object]:
    """The precision of forward passes."""
    if device.type == "meta":  # a plan: torch knows no autocast there
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=config.autocast == "bf16")


def critic_gradients_(
    nets: Nets, rule: Rule, batch: Batch, smoothing: Tensor | None, *, first: bool
) -> Float[Tensor, "p B"]:
    """Add the critics' gradients on one micro-batch to their blocks, or write them where it is the `first`.

    Returns:
        |TD error| of the first critic: what a prioritised replay wants to know.
    """
    config, dtype = rule.config, batch.reward.dtype
    target = _target(nets, rule, batch, smoothing)
    seen: list[Tensor] = []

    def values_of(params: Weights) -> Values:
        with autocast(rule.config, batch.reward.device):
            values = [rule.critic(named, batch.obs, batch.action) for named in params]
        return tuple(value.to(dtype) for value in values)

    def slopes_of(values: Values) -> Values:
        seen.extend(values)
        return tuple(critic_slope(value - target, batch.weight) / config.micro_batches for value in values)

    grads = rule.differentiate(values_of, slopes_of, [net.online for net in nets.critics])
    _accumulate_(nets.critics, grads, first=first)
    errors = [value - target for value in seen]
    for error in errors:
        nets.sums[CRITIC_LOSS].add_(critic_loss(error, batch.weight), alpha=1 / config.micro_batches)
    nets.sums[Q].add_(seen[0].mean(1), alpha=1 / config.micro_batches)
    return errors[0].abs()


@torch.no_grad()
def _target(nets: Nets, rule: Rule, batch: Batch, smoothing: Tensor | None) -> Float[Tensor, "p B"]:
    config = rule.config
    with autocast(rule.config, batch.reward.device):
        action = rule.actor(nets.actor.target, batch.next_obs)
        if smoothing is not None:
            action = smooth(action, smoothing * config.target_noise, config.target_noise_clip)
        values = [rule.critic(net.target, batch.next_obs, action) for net in nets.critics]
    dtype = batch.reward.dtype
    return td_target(
        reward=batch.reward,
        discount=batch.discount,
        next_values=[value.to(dtype) for value in values],
        gamma=config.gamma,
    )


def actor_gradients_(nets: Nets, rule: Rule, batch: Batch, *, first: bool) -> None:
    """Add the actors' gradients on one micro-batch to their block, or write them where it is the `first`."""
    config, dtype = rule.config, batch.reward.dtype
    seen: list[Tensor] = []

    def values_of(params: Weights) -> Values:
        with autocast(rule.config, batch.reward.device):
            value = rule.critic(nets.critics[0].fixed, batch.obs, rule.actor(params[0], batch.obs))
        return (value.to(dtype),)

    def slopes_of(values: Values) -> Values:
        seen.extend(values)
        return (actor_slope(values[0]) / config.micro_batches,)

    grads = rule.differentiate(values_of, slopes_of, [nets.actor.online])
    _accumulate_([nets.actor], grads, first=first)
    nets.sums[ACTOR_LOSS].add_(actor_loss(seen[0]), alpha=1 / config.micro_batches)


def _accumulate_(nets: Sequence[Net], grads: Sequence[Tensor], *, first: bool) -> None:
    homes = [home for net in nets for home in net.grads.values()]
    for home, grad in zip(homes, grads, strict=True):
        if first:
            home.copy_(grad)
        else:
            home.add_(grad)
