"""DDPG and TD3 for a whole population at once: one update of every member, in place.

Members are trained in groups of consecutive rows, which bounds what a batch and its activations take, and learn from
their own draws: a member's update is the same in any group and beside any other members.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.errors import require
from flatwater.learners.config import LearnerConfig
from flatwater.learners.gradients import Rows, Rule, by_autograd, by_transform
from flatwater.learners.learner import Learner
from flatwater.learners.phases import Phases, Trained, compiled_phases, eager_phases
from flatwater.learners.protocols import Actor, Critic
from flatwater.replay.batch import Batch

Draw = Callable[[int, int], Batch]
"""Gathers one micro-batch of members low ... high - 1. It gives the same transitions each time it is called."""


def make_update(
    config: LearnerConfig,
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
    algorithm = rule.config.algorithm
    require(bool(learner.critics), "learner.algorithm", algorithm, "ddpg or td3, which learn from transitions")
    everyone = _rows(learner, 0, len(learner.actor_adam.steps))
    trained = Trained(everyone, learner.actor_adam, tuple(learner.critic_adams))
    make = compiled_phases if rule.config.compile else eager_phases
    return make(rule, [_rows(learner, *span) for span in spans], trained)


def _rows(learner: Learner, low: int, high: int) -> Rows:
    return Rows(
        actor=learner.actor[low:high],
        actor_target=learner.actor_targets[0][low:high],
        actor_grad=learner.actor_adam.grad[low:high],
        critics=tuple(block[low:high] for block in learner.critics),
        critic_targets=tuple(block[low:high] for block in learner.critic_targets),
        critic_grads=tuple(adam.grad[low:high] for adam in learner.critic_adams),
        sums=learner.sums[:, low:high],
    )


def _target_noise(config: LearnerConfig, learner: Learner, batch: Batch) -> Tensor | None:
    if config.algorithm == "ddpg":
        return None
    action = batch.action
    return torch.randn(action.shape, generator=learner.rng, device=action.device, dtype=action.dtype)
