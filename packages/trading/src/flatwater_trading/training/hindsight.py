"""Learning from every purchase that could have been made, in hindsight: for markets, which do not react to a trader.

Prices do not depend on a trader's actions, so the gain of every instrument on every training day, at every sale target,
is known once the exits are resolved: no purchase has to be tried out to learn its gain. It remains to predict which
gains will be large, a contextual bandit with full information (Sinclair, Frujeri, Cheng, Marshall,
Barbalho, Li, Neville, Menache and Swaminathan 2023, "Hindsight learning for MDPs with exogenous inputs"; Moody and
Saffell 2001, "Learning to trade via direct reinforcement", differentiate a trader's profit in this way).

The loss of a member is minus the mean over days and instruments of

    sigmoid(SHARPNESS (coefficient - threshold)) * gain(sale target)

which is the expected gain of the purchases that the member asks for. No environment is stepped, no critic is learned,
nothing is replayed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.adam import Span, bind_step
from flatwater.algorithms.api import (
    Algorithm,
    Draw,
    Explorer,
    Members,
    Network,
    Networks,
    Setting,
    Spread,
    Update,
    accumulate_,
    add_to_tally_,
    as_leaves,
    autocast,
    bind_compiled,
    count_step_,
    gradients,
)
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.nets.stack import Params, views

SHARPNESS = 10.0
"""Steepness of the loss between not buying and buying, around the threshold, in coefficients of [-1, 1]."""


class DaysActor(Network, Protocol):
    """A policy that acts on each day of a stretch in one pass."""

    def over_days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P M K 2"]:
        """Return coefficients and sale targets in [-1, 1] on each day of a stretch with its whole context in it."""


class BuyThreshold(Protocol):
    """The threshold of purchases, in the place of the critic: no value has to be estimated."""

    threshold: float
    """Coefficient in [-1, 1] from which the environment buys."""


@dataclass(frozen=True)
class HindsightBatch:
    """Stretches of days, and the gain of every purchase on them."""

    observations: Float[Tensor, "p S N L F"]
    """Observations of p members' S stretches, the context of the first day included."""
    gain: Float[Tensor, "p M K G"]
    """Gain of a purchase on each day M of the stretches, by sale target; 0 if nothing could be bought."""


def build_hindsight_members(_config: AlgorithmConfig, nets: Networks, setting: Setting) -> Members:
    """Allocate the population: actors, and the moments of their optimizer; the function `build` of `HINDSIGHT`.

    There is no critic, as gains are known. No setting of the configuration is needed.
    """
    return Members(
        actor=setting.rows("actor", nets.actor.layout),
        actor_adam=setting.adam(nets.actor.layout.size),
        tally=setting.tally("actor_loss", "actor_grad_norm"),
        seed=setting.seed,
        first=setting.first,
    )


def interpolate_gain(gain: Float[Tensor, "*N G"], target: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Return the gain at any sale target in [-1, 1], linear between the known gains at G evenly spaced targets."""
    # The known gains are numbered from 0, at target -1, to `last`, at target 1; a position may lie between two of them.
    last = gain.shape[-1] - 1
    position = (target + 1) / 2 * last
    # Detached, so that the gradient by the target is the slope between the two neighbouring gains. With a single known
    # gain, both neighbours are this one.
    lower_index = position.detach().floor().clamp(0, max(0, last - 1)).long().unsqueeze(-1)
    upper_index = (lower_index + 1).clamp(max=last)
    lower_gain, upper_gain = gain.gather(-1, lower_index), gain.gather(-1, upper_index)
    return torch.lerp(lower_gain, upper_gain, position.unsqueeze(-1) - lower_index).squeeze(-1)


def hindsight_loss(
    action: Float[Tensor, "P M K 2"], gain: Float[Tensor, "P M K G"], threshold: float
) -> Float[Tensor, "P"]:
    """Return minus the mean gain of the purchases that each member asks for."""
    coefficient, target = action.unbind(-1)
    # A smooth step in place of the environment's hard one, which has no gradient.
    bought_share = torch.sigmoid(SHARPNESS * (coefficient - threshold))
    return -(bought_share * interpolate_gain(gain, target)).mean((1, 2))


def make_update(config: AlgorithmConfig, nets: Networks, members: Members, groups: Sequence[Span]) -> Update:
    """Bind an update of every member to the population's storage.

    Args:
        config: settings of the algorithm.
        nets: an actor over days; `nets.critic` holds the buy threshold, as no value is estimated.
        members: weights, optimizer's moments and tally, all updated in place.
        groups: members [low, high) that learn together, one group after the other.

    Returns:
        A function that does an update; it returns None, as no value is estimated.
    """
    adam, tally = members.actor_adam, members.tally
    actor: DaysActor = cast("Any", nets.actor)
    known_threshold: BuyThreshold = cast("Any", nets.critic)  # this algorithm's networks: see `nets` above
    weights_by_group = {span: views(members.actor[slice(*span)], actor.layout) for span in groups}
    # Views in which the gradients of a group's weights are added up over the micro-batches.
    gradient_views = {span: views(adam.grad[slice(*span)], actor.layout) for span in groups}
    step_ = bind_step(
        members.actor[: len(tally.skipped)],  # without the champion's row, which follows those of the members
        adam,
        lr=config.own.actor_lr,
        weight_decay=config.weight_decay,
        clip=config.grad_clip,
        groups=groups,
    )

    def loss_and_gradients(params: Params, batch: HindsightBatch) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of a batch, and the gradients of its share of the update."""
        leaves = as_leaves(params)
        with autocast(config, batch.gain.device):
            action = actor.over_days(leaves, batch.observations)
        # In the gains' float32 and outside of autocast, as means of gains lose digits in bfloat16.
        loss = hindsight_loss(action.to(batch.gain.dtype), batch.gain, known_threshold.threshold)
        return loss.detach(), gradients(loss / config.micro_batches, leaves)

    compiled_loss = bind_compiled(config, loss_and_gradients)

    def update_(draws: Sequence[Draw]) -> None:
        """Take one step of every member, by the gradients of all micro-batches together; `draws` gather them."""
        # Each draw is used before the next: draws share a buffer, which the next draw overwrites.
        for span in groups:
            for number, draw in enumerate(draws):
                loss, grads = compiled_loss(weights_by_group[span], draw(*span))
                accumulate_(gradient_views[span], grads, first=number == 0)
                add_to_tally_(tally, "actor_loss", loss, span)
        count_step_(tally, "actor_grad_norm", *step_())
        tally.updates += 1

    return update_


def make_explorer(_config: AlgorithmConfig, _members: Any, _spread: Spread) -> Explorer:  # noqa: ANN401  (unused)
    """Return the actor's own actions, without noise, as members do not learn from played transitions."""
    return lambda actor, params, obs, _rng: actor(params, obs)


HINDSIGHT = Algorithm(build_hindsight_members, make_update, make_explorer)
