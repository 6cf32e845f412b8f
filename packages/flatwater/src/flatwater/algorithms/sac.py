"""Soft Actor-Critic for a whole population at once.

A policy draws each part of an action from a normal distribution and squashes it with tanh. It is paid for entropy:
critics move towards y = r + gamma (min Q'(s', a') - temperature * log pi(a'|s')), the actor to where
min Q - temperature * log pi is higher, and each member's temperature to where its entropy is the target entropy
(Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any, NamedTuple, Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from flatwater.algorithms.adam import Adam, Span
from flatwater.algorithms.api import (
    Actor,
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
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.critics import (
    CriticMembers,
    CriticWeights,
    build_critics,
    critic_parts,
    regression_gradients,
    smallest_value,
)
from flatwater.algorithms.update import Part, Stage, StageResult, bind_update
from flatwater.nets.stack import Layout, Params, Weight, views
from flatwater.replay.batch import Batch
from flatwater.state.tree import state

LOG_DEVIATION = (-5.0, 2.0)
"""Bounds of the log-deviation before squashing: exp(-5) is all but certain, exp(2) all but saturates tanh."""
CRITICS = 2
"""Critics of each member; targets take the smaller of their values."""


class GaussianActor(Actor, Protocol):
    """A policy with a distribution over actions; called, it gives the squashed mean."""

    def gaussian(self, params: Params, obs: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401  (any agent's)
        """Return mean and log-deviation [P, B, *action] before tanh. A part of log-deviation -inf is not drawn."""


TEMPERATURE = Layout({"log": Weight((1,), fan_in=0)})
"""Layout of a member's log-temperature, which is trained like a network."""


@state
class SacMembers(CriticMembers):
    """Actors with two critics, target networks that follow the critics slowly, and a temperature for each member."""

    log_temperature: Float[Tensor, "P+x 1"]
    temperature_adam: Adam

    @property
    def trained(self) -> dict[str, tuple[Float[Tensor, "P+x n"], Adam]]:
        """Rows of actor, critics and temperature, and their optimisers, by name."""
        return self.actor_and_critics | {"temperature": (self.log_temperature, self.temperature_adam)}


def build(config: AlgorithmConfig, nets: Networks, setting: Setting) -> SacMembers:
    """Return members with initial weights, targets that equal them, and moments of 0."""
    # As `TEMPERATURE`, with the initial value.
    initial_temperature = Layout({"log": Weight((1,), fan_in=0, start=log(config.own.temperature))})
    return SacMembers(
        actor=setting.rows("actor", nets.actor.layout),
        log_temperature=setting.rows("temperature", initial_temperature),
        actor_adam=setting.adam(nets.actor.layout.size),
        temperature_adam=setting.adam(1),
        tally=setting.tally("critic_loss", "actor_loss", "q", "entropy", "critic_grad_norm", "actor_grad_norm"),
        seed=setting.seed,
        first=setting.first,
        **build_critics(nets, setting, CRITICS),
    )


@dataclass(frozen=True)
class SacWeights(CriticWeights):
    """The networks of some members, and their temperatures."""

    log_temperature: Float[Tensor, "p 1"]


class DrawnAction(NamedTuple):
    """An action that was drawn, and what its log-probability is computed from; each [P, B, *action]."""

    action: Tensor
    """The action in [-1, 1]."""
    raw: Tensor
    """The random parts before squashing."""
    log_deviation: Tensor
    """Log-deviations within `LOG_DEVIATION`."""
    is_drawn: Tensor
    """Whether a part is random."""


def draw_action(mean: Tensor, log_deviation: Tensor, noise: Tensor) -> DrawnAction:
    """Return an action in [-1, 1], and the numbers from which `sample_action` computes its log-probability.

    The arguments are those of `sample_action`: mean and log-deviation before tanh, and standard normal noise.
    """
    is_drawn = ~log_deviation.isneginf()
    # 0 for parts that are not drawn: finite numbers, so that no gradient becomes NaN; `sample_action` masks them.
    log_deviation = log_deviation.masked_fill(~is_drawn, 0).clamp(*LOG_DEVIATION)
    raw = mean.masked_fill(~is_drawn, 0) + log_deviation.exp() * noise
    return DrawnAction(torch.where(is_drawn, raw.tanh(), mean.tanh()), raw, log_deviation, is_drawn)


def sample_action(
    mean: Float[Tensor, "P B *action"], log_deviation: Float[Tensor, "P B *action"], noise: Tensor
) -> tuple[Float[Tensor, "P B *action"], Float[Tensor, "P B"], Float[Tensor, "P B"]]:
    """Return an action in [-1, 1], its log-probability, and how many of its parts are random.

    Args:
        mean: means before squashing.
        log_deviation: log-deviations before squashing; a part of -inf is not random: it is tanh(mean), and adds
            nothing to the log-probability.
        noise: standard normal, of the action's shape.
    """
    action, raw, log_deviation, is_drawn = draw_action(mean, log_deviation, noise)
    # log(1 - tanh(raw)^2) = 2 (log 2 - raw - softplus(-2 raw)), which does not lose its digits far from 0.
    log_derivative = 2 * (log(2) - raw - softplus(-2 * raw))
    # Change of variables through tanh (Haarnoja et al. 2018, appendix C).
    log_prob = -(noise.square() + log(2 * pi)) / 2 - log_deviation - log_derivative
    # Summed over the parts of an action, whatever its shape.
    action_log_prob = log_prob.masked_fill(~is_drawn, 0).flatten(2).sum(2)
    return action, action_log_prob, is_drawn.flatten(2).sum(2)


def actor_loss(
    value: Float[Tensor, "p B"], log_prob: Float[Tensor, "p B"], temperature: Float[Tensor, "p 1"]
) -> Float[Tensor, "p"]:
    """Return the actor's loss: the mean of temperature * log pi - Q."""
    return (temperature * log_prob - value).mean(1)


def temperature_loss(
    log_temperature: Float[Tensor, "p 1"], log_prob: Float[Tensor, "p B"], target_entropy: Float[Tensor, "p B"]
) -> Float[Tensor, "p"]:
    """Return the temperature's loss, whose gradient raises a temperature while the entropy is below its target."""
    # Detached: this loss trains the temperature alone, and not the policy.
    return -(log_temperature * (log_prob + target_entropy).detach()).mean(1)


def critic_target(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, noise: Tensor
) -> Float[Tensor, "p B"]:
    """Return the target of Q(s, a): r + gamma * discount * (min Q'(s', a') - temperature * log pi(a'|s')).

    `discount` is 0 if the episode terminated, and 1 otherwise.

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
        soft = smallest_value(values, dtype) - weights.log_temperature.exp() * log_prob
    gamma: float = config.own.gamma
    return batch.reward + gamma * batch.discount * soft


def critic_gradients(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, noise: Tensor
) -> StageResult:
    """Return each critic's gradients of its squared error to `critic_target`, whose actions are drawn by `noise`."""
    return regression_gradients(config, nets, weights, batch, critic_target(config, nets, weights, batch, noise))


def actor_gradients(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, noise: Tensor
) -> StageResult:
    """Return the actor's gradients through both critics, and the temperature's gradient.

    Args:
        config: precision, target entropy of each part of an action, and number of micro-batches.
        nets: networks of actor and critic.
        weights: weights of p members.
        batch: B transitions for each of them; only observations are read.
        noise: standard normal numbers [p, B, *action], from which the actions are drawn.
    """
    dtype = batch.reward.dtype
    params, log_temperature = as_leaves(weights.actor), as_leaves({"log": weights.log_temperature})
    with autocast(config, batch.reward.device):
        mean, log_deviation = cast("GaussianActor", nets.actor).gaussian(params, batch.obs)
    action, log_prob, random_parts = sample_action(mean.to(dtype), log_deviation.to(dtype), noise)
    with autocast(config, batch.reward.device):
        values = [nets.critic(critic, batch.obs, action) for critic in weights.critics]
    loss = actor_loss(smallest_value(values, dtype), log_prob, weights.log_temperature.exp())
    grads = gradients(loss / config.micro_batches, params)
    # The target is for each random part: an action with fewer random parts has less entropy.
    entropy_loss = temperature_loss(log_temperature["log"], log_prob, config.own.entropy * random_parts)
    return StageResult(
        # Both gradients are taken before the actor's step; the temperature steps after it.
        {"actor": grads, "temperature": gradients(entropy_loss / config.micro_batches, log_temperature)},
        [("actor_loss", loss.detach()), ("entropy", -log_prob.detach().mean(1))],
    )


def make_update(config: AlgorithmConfig, nets: Networks, members: SacMembers, groups: Sequence[Span]) -> Update:
    """Bind an update of SAC to the population's storage; each span [low, high) of `groups` learns at once."""
    # Critics and actor draw from separate streams, so that the draws of one do not shift those of the other.
    return bind_sac_update(config, nets, members, groups, critic_gradients, actor_gradients, noise=("critics", "actor"))


def bind_sac_update(
    config: AlgorithmConfig,
    nets: Networks,
    members: SacMembers,
    groups: Sequence[Span],
    *learn: Callable[..., StageResult],
    noise: tuple[str, str] = ("", ""),
) -> Update:
    """Return a function that updates the critics first, and then actor and temperature.

    Args:
        config: settings of the algorithm.
        nets: networks of actor and critic.
        members: the population.
        groups: spans of members.
        learn: two functions: the first returns the critics' gradients, the second those of actor and temperature.
        noise: names of the streams from which these two functions get random numbers; empty if they draw none.
    """
    settings = config.own
    learn_critics, learn_actor = learn
    critic_noise, actor_noise = noise
    actor_and_temperature = {
        "actor": Part(nets.actor.layout, settings.actor_lr, "actor_grad_norm"),
        "temperature": Part(TEMPERATURE, settings.temperature_lr),
    }
    stages = [
        Stage(learn_critics, critic_parts(nets, members, settings.critic_lr), noise=critic_noise),
        Stage(learn_actor, actor_and_temperature, noise=actor_noise),
    ]

    def member_weights(span: Span) -> SacWeights:
        """Return the weights of the members [low, high) of a span."""
        critic, rows = nets.critic.layout, slice(*span)
        return SacWeights(
            actor=views(members.actor[rows], nets.actor.layout),
            critics=[views(block[rows], critic) for block in members.critics],
            critic_targets=[views(block[rows], critic) for block in members.critic_targets],
            log_temperature=members.log_temperature[rows],
        )

    return bind_update(config, nets, members, groups, stages=stages, weights=member_weights, tau=settings.tau)


def make_explorer(_config: AlgorithmConfig, _members: SacMembers, _spread: Spread) -> Explorer:
    """Return a function that draws actions from the policy, which learns its own amount of exploration."""

    def explore(actor: GaussianActor, params: Params, obs: Any, rng: torch.Generator) -> Tensor:  # noqa: ANN401  (any agent's)
        """Return actions [P, B, *action] in [-1, 1] on observations [P, B, ...], drawn from the actor's policy."""
        mean, log_deviation = actor.gaussian(params, obs)
        noise = torch.randn(mean.shape, generator=rng, device=mean.device, dtype=mean.dtype)
        return draw_action(mean, log_deviation, noise).action

    return explore


def mean_temperature(_config: AlgorithmConfig, members: SacMembers) -> Mapping[str, float]:
    """Return the members' mean temperature as a metric, by name."""
    member_count = len(members.tally.skipped)  # a number for each member; the rows after theirs are the champion's
    return {"temperature": float(members.log_temperature[:member_count].exp().mean())}


SAC = Algorithm(
    build,
    make_update,
    explorer=make_explorer,
    numbers=mean_temperature,
    gaussian=True,
    choosing="flatwater.algorithms.discrete_sac:DISCRETE_SAC",
)
