"""DDPG and TD3 for a whole population at once (Lillicrap et al. 2016, algorithm 1; Fujimoto et al. 2018, algorithm 1).

An update: each member's critics move towards y = r + gamma Q'(s', pi'(s')); then its actor moves to where the critic's
value is higher, and the targets (') follow slowly. TD3 has two critics and takes the smaller value, puts clipped noise
on the target's action, and moves actor and targets at every n-th update only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.adam import Adam, Span, Step, bind_step
from flatwater.algorithms.api import (
    Algorithm,
    Draw,
    Explorer,
    Members,
    Networks,
    Setting,
    Spread,
    Update,
    accumulate_,
    add_,
    autocast,
    bind_compiled,
    count_step_,
    follow_,
    free,
    gathered_once,
    gradients,
    normal,
)
from flatwater.algorithms.config import AlgorithmConfig, DDPGConfig, TD3Config
from flatwater.nets.stack import Params, views
from flatwater.replay.batch import Batch
from flatwater.state.tree import state
from flatwater_watch.errors import require


@state
class DdpgMembers(Members):
    """Actors with critics, and the targets of both."""

    actor_target: Float[Tensor, "P+x n"]
    critics: list[Float[Tensor, "P+x m"]]
    """One critic; TD3 has two."""
    critic_targets: list[Float[Tensor, "P+x m"]]
    critic_adams: list[Adam]

    @property
    def trained(self) -> dict[str, tuple[Float[Tensor, "P+x n"], Adam]]:
        """Actor and critics."""
        critics = zip(self.critics, self.critic_adams, strict=True)
        return {"actor": (self.actor, self.actor_adam)} | {f"critic {n}": pair for n, pair in enumerate(critics)}

    @property
    def targets(self) -> list[tuple[Float[Tensor, "P+x n"], Float[Tensor, "P+x n"]]]:
        """Targets of actor and critics, each with the rows that it follows."""
        return [(self.actor_target, self.actor), *zip(self.critic_targets, self.critics, strict=True)]


def build(config: AlgorithmConfig, nets: Networks, setting: Setting) -> DdpgMembers:
    """Return initial weights, targets equal to them, and moments of zero."""
    actor, critic = nets.actor.layout, nets.critic.layout
    count = 2 if isinstance(config.own, TD3Config) else 1
    rows = setting.rows("actor", actor)
    critics = [setting.rows(f"critic {n}", critic) for n in range(count)]
    return DdpgMembers(
        actor=rows,
        actor_target=rows.clone(),
        critics=critics,
        critic_targets=[block.clone() for block in critics],
        actor_adam=setting.adam(actor.size),
        critic_adams=[setting.adam(critic.size) for _ in critics],
        tally=setting.tally("critic_loss", "actor_loss", "q", "critic_grad_norm", "actor_grad_norm"),
        seed=setting.seed,
        first=setting.first,
    )


@dataclass(frozen=True)
class DdpgWeights:
    """The networks of some members, as views of their rows: the storages never move."""

    actor: Params
    actor_target: Params
    critics: Sequence[Params]
    critic_targets: Sequence[Params]


def critic_target(
    config: AlgorithmConfig, nets: Networks, weights: DdpgWeights, batch: Batch, noise: Tensor | None
) -> Float[Tensor, "p B"]:
    """Return the value that Q(s, a) should have: y = r + gamma * discount * min over the critics of Q'(s', a').

    `discount` is 0 where the episode terminated, and 1 otherwise: a truncated episode goes on in s'.

    Args:
        config: precision and gamma; for TD3 the noise of target actions.
        nets: networks of actor and critic.
        weights: weights of p members; the targets are read.
        batch: B transitions for each of them.
        noise: standard normal numbers [p, B, *action] for TD3's target actions; None for DDPG.
    """
    settings = config.own
    with torch.no_grad(), autocast(config, batch.reward.device):
        action = nets.actor(weights.actor_target, batch.next_obs)
        if noise is not None:
            action = smooth_action(action, noise * settings.target_noise, settings.target_noise_clip)
        values = [nets.critic(critic, batch.next_obs, action) for critic in weights.critic_targets]
    # Values leave autocast as bfloat16; target and loss are taken in the reward's float32.
    smallest = values[0].to(batch.reward.dtype)
    for value in values[1:]:
        smallest = torch.minimum(smallest, value.to(batch.reward.dtype))
    gamma: float = settings.gamma
    return batch.reward + gamma * batch.discount * smallest


def smooth_action(action: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Return the target's action with clipped noise, kept in [-1, 1] (TD3's target policy smoothing)."""
    return (action + noise.clamp(-clip, clip)).clamp(-1, 1)


def critic_loss(td_error: Float[Tensor, "p B"], weight: Float[Tensor, "p B"] | None) -> Float[Tensor, "p"]:
    """Return the mean squared TD error of each member; `weight` corrects a prioritised draw (Schaul et al. 2016)."""
    squares = td_error.square()
    return (squares if weight is None else weight * squares).mean(1)


def actor_loss(value: Float[Tensor, "p B"]) -> Float[Tensor, "p"]:
    """Return minus the mean of Q(s, pi(s)): its gradient is the deterministic policy gradient (Silver et al. 2014)."""
    return -value.mean(1)


@dataclass(frozen=True)
class DdpgGradients:
    """Loss and gradient of one network in one micro-batch."""

    loss: Float[Tensor, "p"]
    grads: Sequence[Tensor]
    """Gradient of each weight, in the layout's order."""
    value: Float[Tensor, "p B"]


def critic_gradients(
    config: AlgorithmConfig, nets: Networks, weights: DdpgWeights, batch: Batch, noise: Tensor | None
) -> tuple[Sequence[DdpgGradients], Float[Tensor, "p B"]]:
    """Return each critic's gradients, and the value that it should have given.

    Args:
        config: precision, gamma and number of micro-batches, by which gradients are divided.
        nets: networks of actor and critic.
        weights: weights of p members.
        batch: B transitions for each of them.
        noise: standard normal numbers [p, B, *action] for TD3's target actions; None for DDPG.

    Returns:
        loss [p], gradients and Q [p, B] of each critic; the target [p, B], which is the same for all critics.
    """
    target = critic_target(config, nets, weights, batch, noise)
    results = []
    for critic in weights.critics:
        params = free(critic)
        with autocast(config, batch.reward.device):
            value = nets.critic(params, batch.obs, batch.action)
        value = value.to(batch.reward.dtype)
        loss = critic_loss(value - target, batch.weight)
        results.append(DdpgGradients(loss.detach(), gradients(loss / config.micro_batches, params), value.detach()))
    return results, target


def actor_gradients(config: AlgorithmConfig, nets: Networks, weights: DdpgWeights, batch: Batch) -> DdpgGradients:
    """Return the actor's gradients through the first critic (TD3, algorithm 1, takes the first of its two as well).

    Args:
        config: precision and number of micro-batches, by which gradients are divided.
        nets: networks of actor and critic.
        weights: weights of p members.
        batch: B transitions for each of them; only observations are read.

    Returns:
        loss [p], the gradients, and Q(s, actor(s)) [p, B].
    """
    params = free(weights.actor)
    with autocast(config, batch.reward.device):
        # The actor's weights alone are leaves: the gradient passes through the critic and is not taken by its weights.
        value = nets.critic(weights.critics[0], batch.obs, nets.actor(params, batch.obs))
    loss = actor_loss(value.to(batch.reward.dtype))
    return DdpgGradients(loss.detach(), gradients(loss / config.micro_batches, params), value.detach())


def make_update(config: AlgorithmConfig, nets: Networks, members: DdpgMembers, groups: Sequence[Span]) -> Update:
    """Bind an update of DDPG or TD3 to the population's storage; each span [low, high) of `groups` learns at once."""
    tally, count = members.tally, config.micro_batches
    weights = {span: member_weights(members, nets, span) for span in groups}
    # Views of the optimisers' gradients, which updates accumulate in.
    actor_homes = {span: views(members.actor_adam.grad[slice(*span)], nets.actor.layout) for span in groups}
    critic_homes = {
        span: [views(adam.grad[slice(*span)], nets.critic.layout) for adam in members.critic_adams] for span in groups
    }
    learn_critics = bind_compiled(config, critic_gradients, config, nets)
    learn_actor = bind_compiled(config, actor_gradients, config, nets)
    actor_step_, *critic_steps = bind_steps(config, members, groups)
    delay = config.own.policy_delay if isinstance(config.own, TD3Config) else 1

    def critics_(span: Span, number: int, batch: Batch) -> Tensor:
        """Add one group's critic gradients of one micro-batch to their homes; return the absolute TD errors [p, B]."""
        learnt, target = learn_critics(weights[span], batch, target_noise(config, members, span, number, batch))
        for home, critic in zip(critic_homes[span], learnt, strict=True):
            accumulate_(home, critic.grads, first=number == 0)
            add_(tally, "critic_loss", critic.loss, span)
        add_(tally, "q", learnt[0].value.mean(1), span)
        return (learnt[0].value - target).abs()

    def actor_(span: Span, number: int, batch: Batch) -> None:
        """Add one group's actor gradients of one micro-batch to their home."""
        learnt = learn_actor(weights[span], batch)
        accumulate_(actor_homes[span], learnt.grads, first=number == 0)
        add_(tally, "actor_loss", learnt.loss, span)

    def update_(draws: Sequence[Draw]) -> Tensor:
        """Learn from one draw a micro-batch; return the absolute TD errors [P, micro_batches, B]."""
        require(len(draws) == count, "draws", len(draws), f"{count} (micro_batches)")
        draws = gathered_once(draws, groups)
        errors = [
            torch.stack([critics_(span, n, draw(*span)) for n, draw in enumerate(draws)], dim=1) for span in groups
        ]
        for step_ in critic_steps:
            count_step_(tally, "critic_grad_norm", *step_())
        # After the critics: `target_noise` names its stream by the count, and a resume must draw the same.
        tally.updates += 1
        if tally.updates % delay == 0:
            for span in groups:
                # The critics have moved since these draws were gathered for them; the transitions are the same.
                for n, draw in enumerate(draws):
                    actor_(span, n, draw(*span))
            count_step_(tally, "actor_grad_norm", *actor_step_())
            follow_(members, config.own.tau)
        return torch.cat(errors)

    return update_


def member_weights(members: DdpgMembers, nets: Networks, span: Span) -> DdpgWeights:
    """Return the weights of members low ... high - 1."""
    actor, critic, rows = nets.actor.layout, nets.critic.layout, slice(*span)
    return DdpgWeights(
        actor=views(members.actor[rows], actor),
        actor_target=views(members.actor_target[rows], actor),
        critics=[views(block[rows], critic) for block in members.critics],
        critic_targets=[views(block[rows], critic) for block in members.critic_targets],
    )


def bind_steps(config: AlgorithmConfig, members: DdpgMembers, groups: Sequence[Span]) -> list[Step]:
    """Return the optimisers' steps: the actors' first, then each critic's."""
    count, settings = len(members.tally.skipped), config.own
    rates = [settings.actor_lr] + [settings.critic_lr] * len(members.critics)
    return [
        bind_step(rows[:count], adam, lr=lr, weight_decay=config.weight_decay, clip=config.grad_clip, groups=groups)
        for (rows, adam), lr in zip(members.trained.values(), rates, strict=True)
    ]


def target_noise(
    config: AlgorithmConfig, members: DdpgMembers, span: Span, micro_batch: int, batch: Batch
) -> Tensor | None:
    """Return standard normal numbers for TD3's target actions; None for DDPG.

    Args:
        config: names the algorithm.
        members: the population, whose seed and update count name the stream of numbers.
        span: the members [low, high) whose batch this is.
        micro_batch: number of the micro-batch.
        batch: its actions [p, B, *action] give the shape.
    """
    if not isinstance(config.own, TD3Config):
        return None
    return normal(members, span, batch.action, "target actions", micro_batch)


def noise_scale(own: DDPGConfig, updates: int) -> float:
    """Return the deviation of exploration noise after `updates` optimiser steps: it decays by each, down to a floor."""
    return max(own.noise * own.noise_decay**updates, own.noise_floor)


def make_explorer(config: AlgorithmConfig, members: DdpgMembers, spread: Spread) -> Explorer:
    """Return the policy's action with noise."""
    scale = noise_scale(config.own, members.tally.updates)
    return lambda actor, params, obs, rng: spread(actor(params, obs), scale, rng)


def read_noise(config: AlgorithmConfig, members: DdpgMembers) -> Mapping[str, float]:
    """Return the deviation of the exploration noise."""
    return {"noise/scale": noise_scale(config.own, members.tally.updates)}


DDPG = TD3 = Algorithm(build, make_update, make_explorer, read_noise)
