"""The four phases of an update, as they run eagerly or compiled.

Critics' gradients, critics' step, actors' gradients, actors' step with the targets. Gradients are taken group by group,
so that no more than one group's batch stands in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from flatwater.learners.adam import Adam, bind_step
from flatwater.learners.gradients import (
    ACTOR_NORM,
    CRITIC_NORM,
    SKIPPED,
    Rows,
    Rule,
    actor_gradients_,
    bind,
    critic_gradients_,
)
from flatwater.replay.batch import Batch

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Trained:
    """What steps: the rows of all members, and their optimisers."""

    rows: Rows
    actor_adam: Adam
    critic_adams: tuple[Adam, ...]


@dataclass(frozen=True)
class Phases:
    """In the order of an update. Gradients are taken on one group of members, steps on all of them."""

    critic_gradients_: Callable[[int, Batch, Tensor | None, bool], Tensor]
    """Group, batch, target noise, whether it is the update's first batch -> |TD error| [p, B]."""
    critic_step_: Callable[[], None]
    actor_gradients_: Callable[[int, Batch, bool], None]
    actor_step_: Callable[[], None]
    """The actors' step, then all targets."""


def eager_phases(rule: Rule, groups: Sequence[Rows], trained: Trained) -> Phases:
    """Everything bound once: the storages never move."""
    bound = [bind(group, rule.actor.layout, rule.critic.layout, leaves=True) for group in groups]
    return Phases(
        lambda group, batch, noise, first: critic_gradients_(bound[group], rule, batch, noise, first=first),
        _critic_step(rule, trained),
        lambda group, batch, first: actor_gradients_(bound[group], rule, batch, first=first),
        _actor_step(rule, trained),
    )


def compiled_phases(rule: Rule, groups: Sequence[Rows], trained: Trained) -> Phases:
    """Gradients as one compiled graph each: target, forward, backward, accumulation and sums.

    The steps stay as they are: torch's fused AdamW takes half the time of its compiled formula.
    """
    actor, critic = rule.actor.layout, rule.critic.layout

    def critic_gradients(group: Rows, batch: Batch, noise: Tensor | None, *, first: bool) -> Tensor:
        return critic_gradients_(bind(group, actor, critic, leaves=False), rule, batch, noise, first=first)

    def actor_gradients(group: Rows, batch: Batch, *, first: bool) -> None:
        actor_gradients_(bind(group, actor, critic, leaves=False), rule, batch, first=first)

    critic_graph, actor_graph = _compiled(critic_gradients), _compiled(actor_gradients)
    return Phases(
        lambda group, batch, noise, first: critic_graph(groups[group], batch, noise, first=first),
        _critic_step(rule, trained),
        lambda group, batch, first: actor_graph(groups[group], batch, first=first),
        _actor_step(rule, trained),
    )


def _compiled(function: F) -> F:
    return cast("F", torch.compile(function, fullgraph=True, dynamic=False))


def _critic_step(rule: Rule, trained: Trained) -> Callable[[], None]:
    config, rows = rule.config, trained.rows
    steps = [
        bind_step(block, adam, lr=config.critic_lr, weight_decay=config.weight_decay, clip=config.grad_clip)
        for block, adam in zip(rows.critics, trained.critic_adams, strict=True)
    ]

    def critic_step_() -> None:
        for step_ in steps:
            count_(rows.sums, CRITIC_NORM, *step_())

    return critic_step_


def _actor_step(rule: Rule, trained: Trained) -> Callable[[], None]:
    config, rows = rule.config, trained.rows
    step_ = bind_step(
        rows.actor, trained.actor_adam, lr=config.actor_lr, weight_decay=config.weight_decay, clip=config.grad_clip
    )

    def actor_step_() -> None:
        count_(rows.sums, ACTOR_NORM, *step_())
        follow_(rows, config.tau)

    return actor_step_


def count_(sums: Tensor, row: int, norm: Tensor, finite: Tensor) -> None:
    """Add a step's gradient norms, and the members that left it out, to the sums of the round."""
    sums[row].add_(norm)
    sums[SKIPPED].add_(~finite)


def follow_(rows: Rows, tau: float) -> None:
    """Move every target towards its network by the share `tau` (polyak averaging)."""
    rows.actor_target.lerp_(rows.actor, tau)
    for target, online in zip(rows.critic_targets, rows.critics, strict=True):
        target.lerp_(online, tau)
