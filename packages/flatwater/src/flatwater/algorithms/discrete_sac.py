"""Soft Actor-Critic where an action is a choice from a list (Christodoulou 2019), for a whole population at once.

Expectations over actions are sums over the list, and nothing is drawn: critics give the value of every choice and move
towards y = r + gamma sum_a' pi(a'|s') (min Q'(s', a') - temperature * log pi(a'|s')), the actor to where
sum_a pi(a|s) (min Q(s, a) - temperature * log pi(a|s)) is higher, and each member's temperature to where its entropy is
the wanted share of a uniform choice's. All else is as in `sac.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import (
    Algorithm,
    Explorer,
    Networks,
    Spread,
    Update,
    ValueNetwork,
    as_leaves,
    autocast,
    gradients,
)
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.critics import regression_gradients, smallest_value
from flatwater.algorithms.sac import (
    SacMembers,
    SacWeights,
    bind_sac_update,
    build,
    mean_temperature,
    temperature_loss,
)
from flatwater.algorithms.update import StageResult
from flatwater.nets.actions import IMPOSSIBLE_LOGIT
from flatwater.nets.stack import Layout, Params
from flatwater.replay.batch import Batch


@dataclass(frozen=True)
class ChosenValue:
    """A `Critic` of one choice, made of a network that gives the values of all choices."""

    net: ValueNetwork

    @property
    def layout(self) -> Layout:
        """The weights of one member."""
        return self.net.layout

    def __call__(self, params: Params, obs: Any, action: Tensor) -> Float[Tensor, "P B"]:  # noqa: ANN401  (any agent's)
        """Return Q of each observation and its choice, [P, B]."""
        return self.net.values(params, obs).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def choice_log_probs(
    config: AlgorithmConfig, nets: Networks, params: Params, obs: Tensor, dtype: torch.dtype
) -> Float[Tensor, "p B A"]:
    """Return the policy's log-probability of every choice on each observation, in the precision `dtype`."""
    with autocast(config, obs.device):
        logits = cast("ValueNetwork", nets.actor).values(params, obs)
    return logits.to(dtype).log_softmax(-1)


def smallest_values(
    config: AlgorithmConfig, nets: Networks, critics: Sequence[Params], obs: Tensor, dtype: torch.dtype
) -> Float[Tensor, "p B A"]:
    """Return the smallest of the critics' values for every choice on each observation."""
    with autocast(config, obs.device):
        values = [cast("ValueNetwork", nets.critic).values(critic, obs) for critic in critics]
    return smallest_value(values, dtype)


def soft_value(
    values: Float[Tensor, "p B A"], log_probs: Float[Tensor, "p B A"], temperature: Float[Tensor, "p 1"]
) -> Float[Tensor, "p B"]:
    """Return the soft value of each observation: the sum over all choices of pi (Q - temperature * log pi)."""
    return (log_probs.exp() * (values - temperature.unsqueeze(-1) * log_probs)).sum(-1)


def critic_gradients(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, _noise: Tensor | None
) -> StageResult:
    """Return each critic's gradients of its squared error to r + gamma * discount * (soft value of s').

    Args:
        config: precision, gamma and number of micro-batches.
        nets: networks of logits and of values.
        weights: weights of p members; the critics' targets are read, and the actor.
        batch: B transitions for each of them.
        _noise: not read: nothing is drawn.
    """
    dtype = batch.reward.dtype
    with torch.no_grad():
        log_probs = choice_log_probs(config, nets, weights.actor, batch.next_obs, dtype)
        values = smallest_values(config, nets, weights.critic_targets, batch.next_obs, dtype)
        soft = soft_value(values, log_probs, weights.log_temperature.exp())
    gamma: float = config.own.gamma
    target = batch.reward + gamma * batch.discount * soft
    # The regression moves one value: that of the choice that was taken.
    networks = Networks(nets.actor, ChosenValue(nets.critic))
    return regression_gradients(config, networks, weights, batch, target)


def actor_gradients(
    config: AlgorithmConfig, nets: Networks, weights: SacWeights, batch: Batch, _noise: Tensor | None
) -> StageResult:
    """Return the gradients of actor and temperature; only the batch's observations are read."""
    dtype = batch.reward.dtype
    params, log_temperature = as_leaves(weights.actor), as_leaves({"log": weights.log_temperature})
    log_probs = choice_log_probs(config, nets, params, batch.obs, dtype)
    with torch.no_grad():
        values = smallest_values(config, nets, weights.critics, batch.obs, dtype)
    loss = -soft_value(values, log_probs, weights.log_temperature.exp()).mean(1)
    grads = gradients(loss / config.micro_batches, params)
    entropy = -(log_probs.exp() * log_probs).sum(-1).detach()
    # The wanted share of the entropy of a uniform choice: log n for n choices.
    share = config.own.choice_entropy
    if nets.actor.masked:
        # The legal choices are counted: an illegal one's log-probability is about `IMPOSSIBLE_LOGIT`.
        target_entropy = share * (log_probs.detach() > IMPOSSIBLE_LOGIT / 2).sum(-1).to(dtype).log()
    else:
        target_entropy = torch.full_like(entropy, share * log(log_probs.shape[-1]))
    # The expected log-probability of a choice is minus the entropy.
    entropy_loss = temperature_loss(log_temperature["log"], log_prob=-entropy, target_entropy=target_entropy)
    return StageResult(
        {"actor": grads, "temperature": gradients(entropy_loss / config.micro_batches, log_temperature)},
        [("actor_loss", loss.detach()), ("entropy", entropy.mean(1))],
    )


def make_update(config: AlgorithmConfig, nets: Networks, members: SacMembers, groups: Sequence[Span]) -> Update:
    """Bind an update to the population's storage; each span [low, high) of `groups` learns at once."""
    return bind_sac_update(config, nets, members, groups, critic_gradients, actor_gradients)


def draw_choice(logits: Float[Tensor, "*any A"], rng: torch.Generator) -> Int[Tensor, "*any"]:
    """Return choices drawn from the softmax of logits; the generator is on their device."""
    # The Gumbel-max trick: minus the logarithm of an exponential number is Gumbel noise, with which a choice's logit is
    # the largest with the choice's softmax probability.
    log_exponential = torch.empty_like(logits).exponential_(generator=rng).log_()
    return (logits - log_exponential).argmax(-1)


def make_explorer(_config: AlgorithmConfig, _members: SacMembers, _spread: Spread) -> Explorer:
    """Return a function that draws each choice from the policy; the policy learns its own amount of exploration."""

    def explore(actor: Any, params: Params, obs: Any, rng: torch.Generator) -> Tensor:  # noqa: ANN401  (any agent's)
        """Return choices [P, B] on observations [P, B, ...], drawn from the actor's policy."""
        return draw_choice(actor.values(params, obs), rng)

    return explore


DISCRETE_SAC = Algorithm(
    build, make_update, explorer=make_explorer, numbers=mean_temperature, gaussian=True, chooses=True
)
