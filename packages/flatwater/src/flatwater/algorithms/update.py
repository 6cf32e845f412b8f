"""One update of any algorithm that learns from replayed transitions: stages, one after the other.

A stage sums gradients over every draw of the update, group by group; then its networks' optimisers step, so that the
next stage sees the new weights. Last, target networks move. An algorithm brings its stages, each with a pure function
from weights and a batch to gradients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.adam import Span, Step, bind_step
from flatwater.algorithms.api import (
    Draw,
    Members,
    Networks,
    Update,
    accumulate_,
    add_to_tally_,
    bind_compiled,
    count_step_,
    draw_normal,
    keep_single_batch,
    move_targets_,
)
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.schedules import scheduled_rate
from flatwater.nets.stack import Layout, views
from flatwater.replay.batch import Batch
from flatwater_watch.errors import require


@dataclass(frozen=True)
class StageResult:
    """Gradients, errors and sums of a stage for one micro-batch of p members."""

    grads: Mapping[str, Sequence[Tensor]]
    """Gradients of each network, by its name in `Members.trained`, in its layout's order."""
    sums: Sequence[tuple[str, Float[Tensor, "p"]]]
    """Numbers for the tally, by the name of the sum."""
    error: Float[Tensor, "p B"] | None = None
    """Absolute TD error of each transition, for a prioritised replay."""


@dataclass(frozen=True)
class Part:
    """One network that a stage trains."""

    layout: Layout
    lr: float
    norm: str = ""
    """Name of the tally's sum of its gradient norms. A part without a name, such as a temperature, is neither clipped
    nor decayed."""


@dataclass(frozen=True)
class Stage:
    """Networks that learn together."""

    learn: Callable[[Any, Networks, Any, Batch, Any], StageResult]
    """A pure function of configuration, networks, weights of p members, their batch, and noise."""
    parts: Mapping[str, Part]
    """Weights that the stage trains, by the name in `Members.trained`; the optimisers step in this order."""
    noise: str = ""
    """Name of the stream of standard normal numbers [p, B, *action] that it draws from. Left out: it draws none."""
    every: int = 1
    """It learns in each n-th update."""


def bind_update(
    config: AlgorithmConfig,
    nets: Networks,
    members: Members,
    groups: Sequence[Span],
    *,
    stages: Sequence[Stage],
    weights: Callable[[Span], Any],
    tau: float,
    target_every: int = 1,
) -> Update:
    """Return a function that takes one update of the population in place; each group's members learn together.

    Args:
        config: number of micro-batches, weight decay, clipping, and whether to compile.
        nets: networks of actor and critic.
        members: the population, or a share of it.
        groups: spans of members [low, high).
        stages: stages in their order. The TD errors come from the first stage.
        weights: returns the weights of a span, as views of their rows.
        tau: share by which targets move to their networks.
        target_every: targets move in each n-th update.
    """
    tally, micro_batches = members.tally, config.micro_batches
    group_weights = {span: weights(span) for span in groups}
    bound_stages = [_bind_stage(config, nets, members, group_weights, stage) for stage in stages]

    def update_(draws: Sequence[Draw]) -> Tensor | None:
        """Take one update of all members; return |TD error| [P, micro_batches, B], or None if no stage gives any.

        Each of `draws` gathers one micro-batch of some members.
        """
        require(len(draws) == micro_batches, "draws", len(draws), f"{micro_batches} (micro_batches)")
        draws = keep_single_batch(draws, groups)  # a single batch is gathered here, once for all stages
        errors = []
        for stage in bound_stages:
            if (tally.updates + 1) % stage.every == 0:
                errors += [stage.learn_group_(span, draws) for span in groups]
                stage.step_()
        if (tally.updates + 1) % target_every == 0:
            move_targets_(members, tau)
        # Last, because streams of noise are named by this count: all stages of an update must read the same.
        tally.updates += 1
        td_errors = [error for error in errors if error is not None]
        return torch.cat(td_errors) if td_errors else None

    return update_


@dataclass(frozen=True)
class _BoundStage:
    """A stage over the storage of a population."""

    members: Members
    weights: Mapping[Span, Any]
    """Weights of each group, as views of its rows."""
    learn: Callable[[Any, Batch, Tensor | None], StageResult]
    """`Stage.learn` with configuration and networks bound, compiled if the configuration says so."""
    gradient_views: Mapping[str, Mapping[Span, Mapping[str, Tensor]]]
    """Views of the optimisers' gradients, by network and group, which updates accumulate in."""
    steps: Sequence[tuple[str, Step]]
    """For each network, the name of the tally's sum of its gradient norms, empty for none, and its optimiser step."""
    noise: str
    every: int

    def learn_group_(self, span: Span, draws: Sequence[Draw]) -> Tensor | None:
        """Add up the gradients of one group of p members over all micro-batches, which `draws` gather.

        Returns:
            |TD error| [p, micro_batches, B]; None if the stage gives no such errors.
        """
        errors = []
        for number, draw in enumerate(draws):
            # Each stage gathers the same transitions again: all batches together may not fit into memory.
            batch: Batch = draw(*span)
            noise = draw_normal(self.members, span, batch.action, self.noise, number) if self.noise else None
            result = self.learn(self.weights[span], batch, noise)
            for name, grads in result.grads.items():
                accumulate_(self.gradient_views[name][span], grads, first=number == 0)
            for name, value in result.sums:
                add_to_tally_(self.members.tally, name, value, span)
            if result.error is not None:
                errors.append(result.error)
        return torch.stack(errors, dim=1) if errors else None

    def step_(self) -> None:
        """Take an optimiser step of each of the stage's networks, and record the gradient norms."""
        for norm_name, step_network_ in self.steps:
            norms, finite = step_network_()
            if norm_name:
                count_step_(self.members.tally, norm_name, norms, finite)


def _bind_stage(
    config: AlgorithmConfig, nets: Networks, members: Members, weights: Mapping[Span, Any], stage: Stage
) -> _BoundStage:
    """Bind a stage to the rows, moments and gradients of the networks that it trains.

    Args:
        config: weight decay, clipping, schedule of learning rates, and whether to compile.
        nets: networks of actor and critic.
        members: the population, or a share of it.
        weights: each group's weights, as views of its rows, by the group's span of members.
        stage: the networks that learn together, and the function that gives their gradients.
    """
    member_count = len(members.tally.skipped)  # which has a number for each member
    gradient_views = {}
    steps = []
    for name, part in stage.parts.items():
        rows, adam = members.trained[name]
        gradient_views[name] = {span: views(adam.grad[slice(*span)], part.layout) for span in weights}
        # A part without a norm, such as a temperature, is neither decayed nor clipped.
        decay, clip = (config.weight_decay, config.grad_clip) if part.norm else (0.0, 0.0)
        rate = scheduled_rate(config, part.lr, lambda: members.tally.updates)
        spans = [*weights]
        step_ = bind_step(rows[:member_count], adam, lr=rate, weight_decay=decay, clip=clip, groups=spans)
        steps.append((part.norm, step_))
    learn = bind_compiled(config, stage.learn, config, nets)
    return _BoundStage(
        members=members,
        weights=weights,
        learn=learn,
        gradient_views=gradient_views,
        steps=steps,
        noise=stage.noise,
        every=stage.every,
    )
