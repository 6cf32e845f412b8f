"""Learning from every purchase that could have been made, in hindsight: for markets, which do not answer.

Prices do not depend on what a trader does, so the gain of every instrument on every training day, at every sale target,
is known once the exits are resolved: nothing has to be tried out to learn what it would have paid. What is left is to
say in advance which gains will be large, a contextual bandit with full information (Sinclair, Frujeri, Cheng, Marshall,
Barbalho, Li, Neville, Menache and Swaminathan 2023, "Hindsight learning for MDPs with exogenous inputs"; Moody and
Saffell 2001, "Learning to trade via direct reinforcement", differentiate a trader's profit in this way).

The loss of a member is minus the mean over days and instruments of

    sigmoid(SHARPNESS (coefficient - threshold)) * gain(sale target)

the gain that it expects of buying what it asks for. No environment is stepped, no critic is learnt, nothing is
replayed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.learners.adam import bind_step
from flatwater.learners.config import LearnerConfig
from flatwater.learners.gradients import ACTOR_LOSS, ACTOR_NORM, autocast
from flatwater.learners.learner import Learner
from flatwater.learners.phases import count_
from flatwater.nets.stack import Layout, Params, views

SHARPNESS = 10.0
"""How steeply the loss goes from not buying to buying around the threshold, in coefficients of [-1, 1]."""


class DaysActor(Protocol):
    """A policy that acts on each day of whole stretches."""

    @property
    def layout(self) -> Layout:
        """Its weights."""
        ...

    def over_days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P M K 2"]:
        """Coefficients and sale targets in [-1, 1] on every day of each stretch that has its whole context in it."""
        ...


@dataclass(frozen=True)
class Lesson:
    """Some stretches of days, and what every purchase on them came to."""

    seen: Float[Tensor, "p S N L F"]
    """Observations, the context of the first day included."""
    gain: Float[Tensor, "p M K G"]
    """Of a purchase on each day M of the stretches, by sale target; 0 where nothing could be bought."""


Draw = Callable[[int, int], Lesson]
"""Gathers the lesson of members low ... high - 1."""


def gain_at(gain: Float[Tensor, "*N G"], target: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """The gain at a sale target in [-1, 1], on straight lines between the G targets that were resolved."""
    place = (target + 1) / 2 * (gain.shape[-1] - 1)
    below = place.detach().floor().clamp(0, max(0, gain.shape[-1] - 2)).long().unsqueeze(-1)
    above = (below + 1).clamp(max=gain.shape[-1] - 1)
    return torch.lerp(gain.gather(-1, below), gain.gather(-1, above), place.unsqueeze(-1) - below).squeeze(-1)


def hindsight_loss(
    action: Float[Tensor, "P M K 2"], gain: Float[Tensor, "P M K G"], threshold: float
) -> Float[Tensor, "P"]:
    """Minus the mean gain of what each member asks for."""
    coefficient, target = action.unbind(-1)
    bought = torch.sigmoid(SHARPNESS * (coefficient - threshold))
    return -(bought * gain_at(gain, target)).mean((1, 2))


def make_hindsight_update(
    config: LearnerConfig,
    actor: DaysActor,
    learner: Learner,
    *,
    groups: Sequence[tuple[int, int]],
    threshold: float,
) -> Callable[[Sequence[Draw]], None]:
    """Bind an update of every member to the learner's storage.

    Args:
        config: rates.
        actor: the policies.
        learner: what is trained.
        groups: members [low, high) whose lessons stand in memory at once, in order.
        threshold: coefficient in [-1, 1] from which the environment buys.

    Returns:
        `update_(draws)`, one draw a micro-batch, without a host sync.
    """
    members, adam = len(learner.actor_adam.steps), learner.actor_adam
    weights = {
        span: {
            name: view.detach().requires_grad_()
            for name, view in views(learner.actor[slice(*span)], actor.layout).items()
        }
        for span in groups
    }
    homes = {span: list(views(adam.grad[slice(*span)], actor.layout).values()) for span in groups}
    step_ = bind_step(
        learner.actor[:members], adam, lr=config.actor_lr, weight_decay=config.weight_decay, clip=config.grad_clip
    )

    def update_(draws: Sequence[Draw]) -> None:
        adam.grad.zero_()
        for span in groups:
            for draw in draws:
                lesson = draw(*span)
                with autocast(config, lesson.gain.device):
                    action = actor.over_days(weights[span], lesson.seen)
                loss = hindsight_loss(action.to(lesson.gain.dtype), lesson.gain, threshold) / len(draws)
                grads = torch.autograd.grad(loss.sum(), list(weights[span].values()), materialize_grads=True)
                for home, grad in zip(homes[span], grads, strict=True):
                    home.add_(grad)
                learner.sums[ACTOR_LOSS, slice(*span)].add_(loss.detach())
        count_(learner.sums, ACTOR_NORM, *step_())
        learner.updates += 1
        learner.actor_updates += 1

    return update_
