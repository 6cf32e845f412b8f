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

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import (
    Algorithm,
    Explorer,
    Networks,
    Setting,
    Spread,
    Update,
    as_leaves,
    autocast,
    gradients,
)
from flatwater.algorithms.config import AlgorithmConfig, DDPGConfig, TD3Config
from flatwater.algorithms.critics import (
    CriticMembers,
    CriticWeights,
    build_critics,
    critic_parts,
    regression_gradients,
    smallest_value,
)
from flatwater.algorithms.update import Part, Stage, StageResult, bind_update
from flatwater.nets.stack import Params, views
from flatwater.replay.batch import Batch
from flatwater.state.tree import state


@state
class DdpgMembers(CriticMembers):
    """Actors with one critic, or two in TD3, and the targets of all."""

    actor_target: Float[Tensor, "P+x n"]

    @property
    def targets(self) -> list[tuple[Float[Tensor, "P+x n"], Float[Tensor, "P+x n"]]]:
        """Targets of actor and critics, each with the rows that it follows."""
        return [(self.actor_target, self.actor), *zip(self.critic_targets, self.critics, strict=True)]


def build(config: AlgorithmConfig, nets: Networks, setting: Setting) -> DdpgMembers:
    """Return members with initial weights, targets that equal them, and moments of 0."""
    rows = setting.rows("actor", nets.actor.layout)
    critic_count = 2 if isinstance(config.own, TD3Config) else 1
    return DdpgMembers(
        actor=rows,
        actor_target=rows.clone(),
        actor_adam=setting.adam(nets.actor.layout.size),
        tally=setting.tally("critic_loss", "actor_loss", "q", "critic_grad_norm", "actor_grad_norm"),
        seed=setting.seed,
        first=setting.first,
        **build_critics(nets, setting, critic_count),
    )


@dataclass(frozen=True)
class DdpgWeights(CriticWeights):
    """The networks of some members, and the actor's target."""

    actor_target: Params


def critic_target(
    config: AlgorithmConfig, nets: Networks, weights: DdpgWeights, batch: Batch, noise: Tensor | None
) -> Float[Tensor, "p B"]:
    """Return the target of Q(s, a): y = r + gamma * discount * min over the critics of Q'(s', a').

    `discount` is 0 if the episode terminated, and 1 otherwise: a truncated episode goes on in s'.

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
    gamma: float = settings.gamma
    return batch.reward + gamma * batch.discount * smallest_value(values, batch.reward.dtype)


def smooth_action(action: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Return the target's action with clipped noise, kept in [-1, 1] (TD3's target policy smoothing)."""
    return (action + noise.clamp(-clip, clip)).clamp(-1, 1)


def actor_loss(value: Float[Tensor, "p B"]) -> Float[Tensor, "p"]:
    """Return minus the mean of Q(s, pi(s)): its gradient is the deterministic policy gradient (Silver et al. 2014)."""
    return -value.mean(1)


def critic_gradients(
    config: AlgorithmConfig, nets: Networks, weights: DdpgWeights, batch: Batch, noise: Tensor | None
) -> StageResult:
    """Return each critic's gradients of its squared error to `critic_target`."""
    return regression_gradients(config, nets, weights, batch, critic_target(config, nets, weights, batch, noise))


def actor_gradients(
    config: AlgorithmConfig, nets: Networks, weights: DdpgWeights, batch: Batch, _noise: Tensor | None
) -> StageResult:
    """Return the actor's gradients through the first critic (TD3, algorithm 1, takes the first of its two as well)."""
    params = as_leaves(weights.actor)
    with autocast(config, batch.reward.device):
        # The actor's weights alone are leaves: the gradient passes through the critic and is not taken by its weights.
        value = nets.critic(weights.critics[0], batch.obs, nets.actor(params, batch.obs))
    loss = actor_loss(value.to(batch.reward.dtype))
    grads = gradients(loss / config.micro_batches, params)
    return StageResult({"actor": grads}, [("actor_loss", loss.detach())])


def make_update(config: AlgorithmConfig, nets: Networks, members: DdpgMembers, groups: Sequence[Span]) -> Update:
    """Bind an update of DDPG or TD3 to the population's storage; each span [low, high) of `groups` learns at once."""
    settings, is_td3 = config.own, isinstance(config.own, TD3Config)
    delay = settings.policy_delay if is_td3 else 1  # actor and targets move at every n-th update
    actor_part = Part(nets.actor.layout, settings.actor_lr, "actor_grad_norm")
    critics = critic_parts(nets, members, settings.critic_lr)
    stages = [
        Stage(critic_gradients, critics, noise="target actions" if is_td3 else ""),
        Stage(actor_gradients, {"actor": actor_part}, every=delay),
    ]

    def member_weights(span: Span) -> DdpgWeights:
        """Return the weights of the members [low, high) of a span."""
        actor, critic, rows = nets.actor.layout, nets.critic.layout, slice(*span)
        return DdpgWeights(
            actor=views(members.actor[rows], actor),
            actor_target=views(members.actor_target[rows], actor),
            critics=[views(block[rows], critic) for block in members.critics],
            critic_targets=[views(block[rows], critic) for block in members.critic_targets],
        )

    return bind_update(
        config, nets, members, groups, stages=stages, weights=member_weights, tau=settings.tau, target_every=delay
    )


def noise_scale(own: DDPGConfig, updates: int) -> float:
    """Return the deviation of exploration noise after `updates` updates, each of which shrinks it, down to a floor."""
    return max(own.noise * own.noise_decay**updates, own.noise_floor)


def make_explorer(config: AlgorithmConfig, members: DdpgMembers, spread: Spread) -> Explorer:
    """Return a function that acts by the policy with exploration noise, which the function `spread` adds.

    The noise has the deviation that follows from the number of updates so far.
    """
    deviation = noise_scale(config.own, members.tally.updates)
    return lambda actor, params, obs, rng: spread(actor(params, obs), deviation, rng)


def read_noise(config: AlgorithmConfig, members: DdpgMembers) -> Mapping[str, float]:
    """Return the present deviation of the exploration noise as a metric, by name."""
    return {"noise/scale": noise_scale(config.own, members.tally.updates)}


DDPG = TD3 = Algorithm(build, make_update, explorer=make_explorer, numbers=read_noise)
