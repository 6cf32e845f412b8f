"""Soft Actor-Critic for a whole population at once.

A policy draws each part of an action from a normal distribution and squashes it with tanh. It is paid for entropy:
critics move towards y = r + gamma (min Q'(s', a') - temperature * log pi(a'|s')), the actor to where
min Q - temperature * log pi is higher, and each member's temperature to where its entropy is the one that is wanted
(Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any, Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from flatwater.algorithms.adam import Adam, Span, bind_step
from flatwater.algorithms.api import (
    Actor,
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
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.nets.stack import Layout, Params, Weight, views
from flatwater.replay.batch import Batch
from flatwater.state.tree import state
from flatwater_watch.errors import require

LOG_DEVIATION = (-5.0, 2.0)
"""Bounds of the log-deviation before squashing: exp(-5) is all but certain, exp(2) all but saturates tanh."""
CRITICS = 2
"""Critics of each member: the smaller of their values is learned from."""


class GaussianActor(Actor, Protocol):
    """A policy with a distribution over actions; called, it gives the squashed mean."""

    def gaussian(self, params: Params, obs: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401  (any agent's)
        """Return mean and log-deviation [P, B, *action] before tanh. A part of log-deviation -inf is not drawn."""


@state
class SacMembers(Members):
    """Actors with two critics, the targets of these, and a temperature for each member."""

    critics: list[Float[Tensor, "P+x m"]]
    critic_targets: list[Float[Tensor, "P+x m"]]
    critic_adams: list[Adam]
    log_temperature: Float[Tensor, "P+x 1"]
    temperature_adam: Adam

    @property
    def trained(self) -> dict[str, tuple[Float[Tensor, "P+x n"], Adam]]:
        """Actor, critics and temperature."""
        critics = zip(self.critics, self.critic_adams, strict=True)
        return {
            "actor": (self.actor, self.actor_adam),
            **{f"critic {n}": pair for n, pair in enumerate(critics)},
            "temperature": (self.log_temperature, self.temperature_adam),
        }

    @property
    def targets(self) -> list[tuple[Float[Tensor, "P+x n"], Float[Tensor, "P+x n"]]]:
        """Targets of the critics, each with the rows that it follows."""
        return [*zip(self.critic_targets, self.critics, strict=True)]


def build(config: AlgorithmConfig, nets: Networks, setting: Setting) -> SacMembers:
    """Return initial weights, targets equal to them, and moments of zero."""
    actor, critic = nets.actor.layout, nets.critic.layout
    rows = setting.rows("actor", actor)
    critics = [setting.rows(f"critic {n}", critic) for n in range(CRITICS)]
    return SacMembers(
        actor=rows,
        critics=critics,
        critic_targets=[block.clone() for block in critics],
        log_temperature=setting.rows("temperature", Layout({"log": Weight((1,), 0, log(config.own.temperature))})),
        actor_adam=setting.adam(actor.size),
        critic_adams=[setting.adam(critic.size) for _ in critics],
        temperature_adam=setting.adam(1),
        tally=setting.tally("critic_loss", "actor_loss", "q", "entropy", "critic_grad_norm", "actor_grad_norm"),
        seed=setting.seed,
        first=setting.first,
    )


@dataclass(frozen=True)
class SacWeights:
    """The networks of some members, as views of their rows: the storages never move."""

    actor: Params
    critics: Sequence[Params]
    critic_targets: Sequence[Params]
    log_temperature: Float[Tensor, "p 1"]


def sample_action(
    mean: Float[Tensor, "P B *action"], log_deviation: Float[Tensor, "P B *action"], noise: Tensor
) -> tuple[Float[Tensor, "P B *action"], Float[Tensor, "P B"], Float[Tensor, "P B"]]:
    """Return an action in [-1, 1], its log-probability, and how many of its parts were drawn.

    Args:
        mean: means before squashing.
        log_deviation: log-deviations before squashing; a part of -inf is tanh(mean), and counts nothing.
        noise: standard normal, of the action's shape.
    """
    is_drawn = ~log_deviation.isneginf()
    log_deviation = log_deviation.masked_fill(~is_drawn, 0).clamp(*LOG_DEVIATION)
    raw = mean.masked_fill(~is_drawn, 0) + log_deviation.exp() * noise
    action = torch.where(is_drawn, raw.tanh(), mean.tanh())
    # log(1 - tanh(raw)^2) = 2 (log 2 - raw - softplus(-2 raw)), which does not lose its digits far from 0.
    log_derivative = 2 * (log(2) - raw - softplus(-2 * raw))
    # Change of variables through tanh (Haarnoja et al. 2018, appendix C).
    log_prob = -(noise.square() + log(2 * pi)) / 2 - log_deviation - log_derivative
    return action, log_prob.masked_fill(~is_drawn, 0).flatten(2).sum(2), is_drawn.flatten(2).sum(2)


def smaller_value(values: Sequence[Tensor]) -> Tensor:
    """Return the smaller of two critics' values."""
    return torch.minimum(*values)


def critic_loss(td_error: Float[Tensor, "p B"], weight: Float[Tensor, "p B"] | None) -> Float[Tensor, "p"]:
    """Return the mean squared TD error of each member; `weight` corrects a prioritised draw (Schaul et al. 2016)."""
    squares = td_error.square()
    return (squares if weight is None else weight * squares).mean(1)


def actor_loss(
    value: Float[Tensor, "p B"], log_prob: Float[Tensor, "p B"], temperature: Float[Tensor, "p 1"]
) -> Float[Tensor, "p"]:
    """Return the actor's loss: the mean of temperature * log pi - Q."""
    return (temperature * log_prob - value).mean(1)


def temperature_loss(
    log_temperature: Float[Tensor, "p 1"], log_prob: Float[Tensor, "p B"], wanted: Float[Tensor, "p B"]
) -> Float[Tensor, "p"]:
    """Return a loss that falls as the temperature rises while the entropy is below the wanted one, and vice versa."""
    # Detached: the policy must not learn to change its entropy for the temperature's sake.
    return -(log_temperature * (log_prob + wanted).detach()).mean(1)


def critic_target(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, noise: Tensor
) -> Float[Tensor, "p B"]:
    """Return the value that Q should have: r + gamma * discount * (min Q'(s', a') - temperature * log pi(a'|s')).

    `discount` is 0 where the episode terminated, and 1 otherwise.

    Args:
        config: precision and gamma.
        nets: networks of actor and critic.
        weights: weights of p members; the critics' targets are read, and the actor.
        batch: B transitions for each of them.
        noise: standard normal numbers [p, B, *action], from which a' is drawn.
    """
    dtype = batch.reward.dtype
    with torch.no_grad():
        with autocast(config, batch.reward.device):
            mean, log_deviation = cast("GaussianActor", nets.actor).gaussian(weights.actor, batch.next_obs)
        # Squashing and log-probability in float32: bfloat16's 8 bits lose log(1 - tanh^2).
        action, log_prob, _ = sample_action(mean.to(dtype), log_deviation.to(dtype), noise)
        with autocast(config, batch.reward.device):
            values = [nets.critic(critic, batch.next_obs, action) for critic in weights.critic_targets]
        soft = smaller_value([value.to(dtype) for value in values]) - weights.log_temperature.exp() * log_prob
    gamma: float = config.own.gamma
    return batch.reward + gamma * batch.discount * soft


@dataclass(frozen=True)
class SacGradients:
    """Loss and gradient of one network in one micro-batch."""

    loss: Float[Tensor, "p"]
    grads: Sequence[Tensor]
    """Gradient of each weight, in the layout's order."""
    value: Float[Tensor, "p B"]
    """Q of a critic; the log-probability of an actor."""


def critic_gradients(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, noise: Tensor
) -> tuple[Sequence[SacGradients], Float[Tensor, "p B"]]:
    """Return each critic's gradients, and the value that it should have given.

    Args:
        config: precision, gamma and number of micro-batches, by which gradients are divided.
        nets: networks of actor and critic.
        weights: weights of p members.
        batch: B transitions for each of them.
        noise: standard normal numbers [p, B, *action] for the next actions.

    Returns:
        loss [p], gradients and Q [p, B] of each critic; the target [p, B], which is the same for both.
    """
    target = critic_target(config, nets, weights, batch, noise)
    results = []
    for critic in weights.critics:
        params = free(critic)
        with autocast(config, batch.reward.device):
            value = nets.critic(params, batch.obs, batch.action)
        value = value.to(batch.reward.dtype)
        loss = critic_loss(value - target, batch.weight)
        results.append(SacGradients(loss.detach(), gradients(loss / config.micro_batches, params), value.detach()))
    return results, target


def actor_gradients(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, noise: Tensor
) -> tuple[SacGradients, Tensor]:
    """Return the actor's gradients through both critics, and the temperature's gradient.

    Args:
        config: precision, target entropy of each part of an action, and number of micro-batches.
        nets: networks of actor and critic.
        weights: weights of p members.
        batch: B transitions for each of them; only observations are read.
        noise: standard normal numbers [p, B, *action], from which the actions are drawn.

    Returns:
        loss [p], gradients and log-probability [p, B] of the actor; the gradient of the log of the temperature [p, 1].
    """
    dtype = batch.reward.dtype
    params, log_temperature = free(weights.actor), free({"log": weights.log_temperature})
    with autocast(config, batch.reward.device):
        mean, log_deviation = cast("GaussianActor", nets.actor).gaussian(params, batch.obs)
    action, log_prob, drawn_parts = sample_action(mean.to(dtype), log_deviation.to(dtype), noise)
    with autocast(config, batch.reward.device):
        values = [nets.critic(critic, batch.obs, action) for critic in weights.critics]
    loss = actor_loss(smaller_value([value.to(dtype) for value in values]), log_prob, weights.log_temperature.exp())
    learnt = SacGradients(loss.detach(), gradients(loss / config.micro_batches, params), log_prob.detach())
    # By parts that were drawn: an action of which fewer are drawn has less entropy to give.
    entropy_loss = temperature_loss(log_temperature["log"], log_prob, config.own.entropy * drawn_parts)
    (temperature_grad,) = gradients(entropy_loss / config.micro_batches, log_temperature)
    return learnt, temperature_grad


def make_update(config: AlgorithmConfig, nets: Networks, members: SacMembers, groups: Sequence[Span]) -> Update:
    """Bind an update of SAC to the population's storage; each span [low, high) of `groups` learns at once."""
    tally, count, settings = members.tally, config.micro_batches, config.own
    weights = {span: member_weights(members, nets, span) for span in groups}
    homes = {name: {span: adam.grad[slice(*span)] for span in groups} for name, (_, adam) in members.trained.items()}
    learn_critics = bind_compiled(config, critic_gradients, config, nets)
    learn_actor = bind_compiled(config, actor_gradients, config, nets)
    step_ = bind_steps(config, members, groups)

    def critics_(span: Span, number: int, batch: Batch) -> Tensor:
        """Add one group's critic gradients of one micro-batch to their homes; return the absolute TD errors [p, B]."""
        # Streams of their own for critics and actor: another number of draws of one does not move the other's.
        noise = normal(members, span, batch.action, "critics", number)
        learnt, target = learn_critics(weights[span], batch, noise)
        for n, critic in enumerate(learnt):
            accumulate_(views(homes[f"critic {n}"][span], nets.critic.layout), critic.grads, first=number == 0)
            add_(tally, "critic_loss", critic.loss, span)
        add_(tally, "q", learnt[0].value.mean(1), span)
        return (learnt[0].value - target).abs()

    def actor_(span: Span, number: int, batch: Batch) -> None:
        """Add one group's gradients of actor and temperature, of one micro-batch, to their homes."""
        learnt, heat_grad = learn_actor(weights[span], batch, normal(members, span, batch.action, "actor", number))
        accumulate_(views(homes["actor"][span], nets.actor.layout), learnt.grads, first=number == 0)
        accumulate_({"log": homes["temperature"][span]}, [heat_grad], first=number == 0)
        add_(tally, "actor_loss", learnt.loss, span)
        add_(tally, "entropy", -learnt.value.mean(1), span)

    def update_(draws: Sequence[Draw]) -> Tensor:
        """Learn from one draw a micro-batch; return the absolute TD errors [P, micro_batches, B]."""
        require(len(draws) == count, "draws", len(draws), f"{count} (micro_batches)")
        draws = gathered_once(draws, groups)
        errors = [
            torch.stack([critics_(span, n, draw(*span)) for n, draw in enumerate(draws)], dim=1) for span in groups
        ]
        for n in range(CRITICS):
            count_step_(tally, "critic_grad_norm", *step_[f"critic {n}"]())
        for span in groups:
            for n, draw in enumerate(draws):
                actor_(span, n, draw(*span))
        count_step_(tally, "actor_grad_norm", *step_["actor"]())
        # After the actor's step, from the log-probabilities before it: `actor_` left the gradient in its home.
        step_["temperature"]()
        follow_(members, settings.tau)
        # Last: the actor's draws are named by the same count as the critics'.
        tally.updates += 1
        return torch.cat(errors)

    return update_


def member_weights(members: SacMembers, nets: Networks, span: Span) -> SacWeights:
    """Return the weights of members low ... high - 1."""
    critic, rows = nets.critic.layout, slice(*span)
    return SacWeights(
        actor=views(members.actor[rows], nets.actor.layout),
        critics=[views(block[rows], critic) for block in members.critics],
        critic_targets=[views(block[rows], critic) for block in members.critic_targets],
        log_temperature=members.log_temperature[rows],
    )


def bind_steps(config: AlgorithmConfig, members: SacMembers, groups: Sequence[Span]) -> dict[str, Any]:
    """Return the optimisers' steps, by name. A temperature is one number: it does not decay, nor is it clipped."""
    count, settings = len(members.tally.skipped), config.own
    rates = {"actor": settings.actor_lr, "temperature": settings.temperature_lr}
    steps = {}
    for name, (rows, adam) in members.trained.items():
        decay, clip = (0.0, 0.0) if name == "temperature" else (config.weight_decay, config.grad_clip)
        steps[name] = bind_step(
            rows[:count], adam, lr=rates.get(name, settings.critic_lr), weight_decay=decay, clip=clip, groups=groups
        )
    return steps


def make_explorer(_config: AlgorithmConfig, _members: SacMembers, _spread: Spread) -> Explorer:
    """Return actions drawn from the policy: how far they spread is learned."""

    def explore(actor: GaussianActor, params: Params, obs: Any, rng: torch.Generator) -> Tensor:  # noqa: ANN401
        """Return an action in [-1, 1] for each observation, drawn from the actor's distribution.

        Args:
            actor: the networks' function.
            params: weights of P members.
            obs: [P, B, ...].
            rng: a generator on the actor's device.

        Returns:
            [P, B, *action].
        """
        mean, log_deviation = actor.gaussian(params, obs)
        noise = torch.randn(mean.shape, generator=rng, device=mean.device, dtype=mean.dtype)
        return sample_action(mean, log_deviation, noise)[0]

    return explore


def mean_temperature(_config: AlgorithmConfig, members: SacMembers) -> Mapping[str, float]:
    """Return the members' mean temperature."""
    return {"temperature": float(members.log_temperature[: len(members.tally.skipped)].exp().mean())}


SAC = Algorithm(build, make_update, make_explorer, mean_temperature, gaussian=True)
