"""Deep Q-learning for a whole population at once, where an action is a choice from a list (Mnih et al. 2015).

A network gives the value of each choice, and moves towards y = r + gamma max Q'(s', a); its target (') follows. Each of
these is a switch: *double* takes the choice that the network itself prefers, and the target's value of it (van Hasselt
et al. 2016); *duelling* gives the value of a state and the advantage of each choice (Wang et al. 2016), in the network;
*n steps* of reward come before the target's value (`replay.ring.gather`), and a *prioritised* replay draws what was
predicted worst (Schaul et al. 2016).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import (
    Algorithm,
    Explorer,
    Members,
    Networks,
    Setting,
    Spread,
    Update,
    ValueNetwork,
    as_leaves,
    autocast,
    gradients,
)
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.update import Part, Stage, StageResult, bind_update
from flatwater.nets.actions import draw_random_choice
from flatwater.nets.stack import Params, views
from flatwater.replay.batch import Batch
from flatwater.state.tree import state


@state
class DqnMembers(Members):
    """Networks of action values, by which the agents act, and their target networks."""

    actor_target: Float[Tensor, "P+x n"]

    @property
    def targets(self) -> list[tuple[Float[Tensor, "P+x n"], Float[Tensor, "P+x n"]]]:
        """The target, with the rows that it follows."""
        return [(self.actor_target, self.actor)]


def build(_config: AlgorithmConfig, nets: Networks, setting: Setting) -> DqnMembers:
    """Return members with initial weights, targets that equal them, and moments of 0."""
    rows = setting.rows("actor", nets.actor.layout)
    return DqnMembers(
        actor=rows,
        actor_target=rows.clone(),
        actor_adam=setting.adam(nets.actor.layout.size),
        tally=setting.tally("critic_loss", "q", "critic_grad_norm"),
        seed=setting.seed,
        first=setting.first,
    )


@dataclass(frozen=True)
class DqnWeights:
    """The weights of some members' networks, as views of their rows, which stay valid as no storage ever moves."""

    online: Params
    target: Params


def target_value(config: AlgorithmConfig, nets: Networks, weights: DqnWeights, batch: Batch) -> Float[Tensor, "p B"]:
    """Return the target of the chosen actions' values: y = r + gamma * discount * Q'(s', a').

    Args:
        config: precision, gamma, and `double`: whether a' is the online network's choice or the target network's.
        nets: networks, whose actor is the network of values.
        weights: weights of p members.
        batch: B transitions for each of them.
    """
    values = cast("ValueNetwork", nets.actor).values
    with torch.no_grad(), autocast(config, batch.reward.device):
        next_values = values(weights.target, batch.next_obs)
        choosing_values = values(weights.online, batch.next_obs) if config.own.double else next_values
        choice = choosing_values.argmax(-1, keepdim=True)
    gamma: float = config.own.gamma
    return batch.reward + gamma * batch.discount * next_values.gather(-1, choice).squeeze(-1).to(batch.reward.dtype)


def value_gradients(
    config: AlgorithmConfig, nets: Networks, weights: DqnWeights, batch: Batch, _noise: Tensor | None
) -> StageResult:
    """Return the gradients of the Huber loss between the chosen actions' values and `target_value`.

    Importance weights of a prioritised draw multiply the loss.
    """
    target = target_value(config, nets, weights, batch)
    params = as_leaves(weights.online)
    with autocast(config, batch.reward.device):
        values = cast("ValueNetwork", nets.actor).values(params, batch.obs)
    value = values.gather(-1, batch.action.long().unsqueeze(-1)).squeeze(-1).to(batch.reward.dtype)
    loss = smooth_l1_loss(value, target, reduction="none")  # of each transition, [p, B]
    # Of each member, [p]. Under the same name, so that the first is freed before the gradients are taken.
    loss = (loss if batch.weight is None else batch.weight * loss).mean(1)
    grads = gradients(loss / config.micro_batches, params)
    value = value.detach()
    sums = [("critic_loss", loss.detach()), ("q", value.mean(1))]
    return StageResult({"actor": grads}, sums, error=(value - target).abs())


def make_update(config: AlgorithmConfig, nets: Networks, members: DqnMembers, groups: Sequence[Span]) -> Update:
    """Bind an update of DQN to the population's storage; each span [low, high) of `groups` learns at once."""
    settings, layout = config.own, nets.actor.layout

    def member_weights(span: Span) -> DqnWeights:
        """Return the weights of the members [low, high) of a span."""
        rows = slice(*span)
        return DqnWeights(views(members.actor[rows], layout), views(members.actor_target[rows], layout))

    stages = [Stage(value_gradients, {"actor": Part(layout, settings.lr, "critic_grad_norm")})]
    return bind_update(
        config,
        nets,
        members,
        groups,
        stages=stages,
        weights=member_weights,
        tau=settings.tau,
        target_every=settings.target_every,
    )


def random_share(config: Any, updates: int) -> float:  # noqa: ANN401  (of a trainer that steps environments)
    """Return the share of random actions, epsilon, after `updates` updates.

    Args:
        config: settings of the learner: its schedule of epsilon, and how many updates follow how many steps.
        updates: number of updates so far.
    """
    # The schedule counts the steps of each environment; `own.updates` follow every `train_every` of them.
    env_steps = updates * config.train_every // config.own.updates
    share: float = config.own.epsilon.scheduled_value(env_steps)
    return share


def make_explorer(config: AlgorithmConfig, members: DqnMembers, _spread: Spread) -> Explorer:
    """Return a function that chooses the highest value, or at random with probability epsilon."""
    epsilon = random_share(config, members.tally.updates)

    def explore(actor: Any, params: Params, obs: Any, rng: torch.Generator) -> Tensor:  # noqa: ANN401  (any agent's)
        """Return the best choices, or random choices with the probability `epsilon`."""
        values: Tensor = actor.values(params, obs)
        greedy_choice = values.argmax(-1)
        shape, device = greedy_choice.shape, greedy_choice.device
        is_random = torch.rand(shape, generator=rng, device=device) < epsilon
        # Random choices are drawn for all agents, so the number of draws does not depend on `is_random`.
        if actor.masked:  # among the choices that are legal
            random_choice = draw_random_choice(values, rng)
        else:
            random_choice = torch.randint(values.shape[-1], shape, generator=rng, device=device)
        return torch.where(is_random, random_choice, greedy_choice)

    return explore


def read_epsilon(config: AlgorithmConfig, members: DqnMembers) -> Mapping[str, float]:
    """Return the present share of random actions as a metric, by name."""
    return {"noise/epsilon": random_share(config, members.tally.updates)}


DQN = Algorithm(build, make_update, explorer=make_explorer, numbers=read_epsilon, chooses=True)
