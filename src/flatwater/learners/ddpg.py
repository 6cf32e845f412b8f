"""DDPG and TD3 for a whole population at once: one update of every member, in place.

The blocks have one row for each member and `extra` rows more, for the champion: those are never trained. Members are
trained in groups of consecutive rows, which bounds what a batch and its activations take, and learn from their own
draws: a member's update is the same in any group and beside any other members.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.errors import require
from flatwater.learners.adam import Adam, build_adam
from flatwater.learners.config import DDPGConfig
from flatwater.learners.gradients import METRICS, SKIPPED, Rows, Rule, by_autograd, by_transform
from flatwater.learners.phases import Phases, Trained, compiled_phases, eager_phases
from flatwater.learners.protocols import Actor, Critic
from flatwater.nets.stack import Layout, init_
from flatwater.replay.batch import Batch
from flatwater.state.tree import state

Draw = Callable[[int, int], Batch]
"""Gathers one micro-batch of members low ... high - 1. It gives the same transitions each time it is called."""


@state
class Learner:
    """Networks, moments and counters of a population. Allocated whole by `build_learner`; updates write in place."""

    actor: Float[Tensor, "P+x n"]
    actor_target: Float[Tensor, "P+x n"]
    critics: list[Float[Tensor, "P+x m"]]
    """One for DDPG, two for TD3."""
    critic_targets: list[Float[Tensor, "P+x m"]]
    actor_adam: Adam
    critic_adams: list[Adam]
    rng: torch.Generator
    """Initial weights, then TD3's target noise."""
    sums: Float[Tensor, "M P"]
    """Losses, values, norms and skipped steps of each member since they were last read; rows as in METRICS."""
    skipped_total: Int[Tensor, "P"]
    """Steps that each member left out, over all its networks, in the round that was last read."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""
    actor_updates: int = 0
    """Updates of the actor since the sums were last read; fewer for TD3."""


def build_learner(
    config: DDPGConfig,
    actor: Actor,
    critic: Critic,
    *,
    members: int,
    extra: int = 1,
    rng: torch.Generator,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Learner:
    """Initial weights, targets equal to them, and moments of zero. On the meta device this is the plan."""

    def block(layout: Layout) -> Tensor:
        rows = torch.empty(members + extra, layout.size, dtype=dtype, device=device).fill_(0)
        init_(rows, layout, rng)
        return rows

    online = block(actor.layout)
    critics = [block(critic.layout) for _ in range(2 if config.algorithm == "td3" else 1)]
    return Learner(
        actor=online,
        actor_target=online.clone(),
        critics=critics,
        critic_targets=[rows.clone() for rows in critics],
        actor_adam=build_adam(members, actor.layout.size, dtype, device),
        critic_adams=[build_adam(members, critic.layout.size, dtype, device) for _ in critics],
        rng=rng,
        sums=torch.empty(len(METRICS), members, dtype=dtype, device=device).fill_(0),
        skipped_total=torch.empty(members, dtype=torch.int64, device=device).fill_(0),
    )


def make_update(
    config: DDPGConfig,
    actor: Actor,
    critic: Critic,
    learner: Learner,
    *,
    groups: Sequence[tuple[int, int]] | None = None,
) -> Callable[[Sequence[Draw]], Float[Tensor, "P G B"]]:
    """Bind an update to the learner's storage.

    Args:
        config: rates and algorithm.
        actor: the policies.
        critic: the action values.
        learner: what is trained.
        groups: members [low, high) whose batches stand in memory at once, in order; None for all of them.

    Returns:
        `update_(draws)`, one draw a micro-batch, gives |TD error| of each transition drawn, without a host sync.
    """
    spans = [(0, len(learner.actor_adam.steps))] if groups is None else list(groups)
    phases = _bind_phases(Rule(config, actor, critic, by_transform if config.compile else by_autograd), learner, spans)
    alone = len(spans) * config.micro_batches == 1

    def update_(draws: Sequence[Draw]) -> Tensor:
        require(len(draws) == config.micro_batches, "draws", len(draws), f"{config.micro_batches} (micro_batches)")
        errors = []
        for group, span in enumerate(spans):
            of_group = []
            for number, draw in enumerate(draws):
                batch = draw(*span)
                noise = _target_noise(config, learner, batch)
                of_group.append(phases.critic_gradients_(group, batch, noise, number == 0))
                if not alone:
                    del batch  # or it would stand in memory beside the next one
            errors.append(torch.stack(of_group, dim=1))
        phases.critic_step_()
        learner.updates += 1
        if config.algorithm == "ddpg" or learner.updates % config.policy_delay == 0:
            for group, span in enumerate(spans):
                for number, draw in enumerate(draws):
                    if not alone:
                        batch = draw(*span)
                    phases.actor_gradients_(group, batch, number == 0)
                    del batch
            phases.actor_step_()
            learner.actor_updates += 1
        return torch.cat(errors)

    return update_


def _bind_phases(rule: Rule, learner: Learner, spans: Sequence[tuple[int, int]]) -> Phases:
    everyone = _rows(learner, 0, len(learner.actor_adam.steps))
    trained = Trained(everyone, learner.actor_adam, tuple(learner.critic_adams))
    make = compiled_phases if rule.config.compile else eager_phases
    return make(rule, [_rows(learner, *span) for span in spans], trained)


def _rows(learner: Learner, low: int, high: int) -> Rows:
    return Rows(
        actor=learner.actor[low:high],
        actor_target=learner.actor_target[low:high],
        actor_grad=learner.actor_adam.grad[low:high],
        critics=tuple(block[low:high] for block in learner.critics),
        critic_targets=tuple(block[low:high] for block in learner.critic_targets),
        critic_grads=tuple(adam.grad[low:high] for adam in learner.critic_adams),
        sums=learner.sums[:, low:high],
    )


def _target_noise(config: DDPGConfig, learner: Learner, batch: Batch) -> Tensor | None:
    if config.algorithm == "ddpg":
        return None
    action = batch.action
    return torch.randn(action.shape, generator=learner.rng, device=action.device, dtype=action.dtype)


def read_losses_(learner: Learner) -> dict[str, float]:
    """Means over members and updates since the last reading, by metric name; then the sums start again from zero.

    The one place where a learner waits for its device: once a round. Empty where there was no update.
    """
    updates, actor_updates = learner.updates - learner.updates_read, learner.actor_updates
    learner.updates_read, learner.actor_updates = learner.updates, 0
    learner.skipped_total.copy_(learner.sums[SKIPPED].nan_to_num())
    # A copy also where the learner is on the CPU: the sums are zeroed before it is read.
    means = dict(zip(METRICS, learner.sums.to("cpu", torch.float64, copy=True), strict=True))
    learner.sums.zero_()
    if not updates:
        return {}
    critic_steps = updates * len(learner.critics)
    losses = {
        "train/critic_loss": means["critic_loss"].mean() / critic_steps,
        "train/q": means["q"].mean() / updates,
        "train/critic_grad_norm": means["critic_grad_norm"].mean() / critic_steps,
        "train/skipped": means["skipped"].sum(),
    }
    if actor_updates:
        losses["train/actor_loss"] = means["actor_loss"].mean() / actor_updates
        losses["train/actor_grad_norm"] = means["actor_grad_norm"].mean() / actor_updates
    return {name: float(value) for name, value in losses.items()}
