"""A small population and its batches, for the tests of learners."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flatwater.learners.config import LearnerConfig
from flatwater.learners.ddpg import make_update
from flatwater.learners.learner import Learner, build_learner
from flatwater.nets.mlp import MLPActor, MLPCritic
from flatwater.replay.batch import Batch

OBS, ACTION, HIDDEN, B = 5, 2, (8, 7), 6
CPU = torch.device("cpu")
ACTOR, CRITIC = MLPActor(OBS, ACTION, HIDDEN), MLPCritic(OBS, ACTION, HIDDEN)
ACTOR_SPEC, CRITIC_SPEC = ((OBS, *HIDDEN, ACTION), ACTOR.layout), ((OBS + ACTION, *HIDDEN, 1), CRITIC.layout)
Draw = Callable[[int, int], Batch]


@dataclass
class Population:
    config: LearnerConfig
    learner: Learner
    update_: Callable[[list[Draw]], Tensor]


def population(
    *,
    members: int = 3,
    groups: list[tuple[int, int]] | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **settings: object,
) -> Population:
    config = LearnerConfig(
        **{"algorithm": "ddpg", "batch_size": B, "micro_batches": 2, "critic_lr": 3e-4, "actor_lr": 1e-4} | settings
    )
    rng = torch.Generator().manual_seed(seed)
    learner = build_learner(config, ACTOR, CRITIC, members=members, rng=rng, device=CPU, dtype=dtype)
    return Population(config, learner, make_update(config, ACTOR, CRITIC, learner, groups=groups))


def batch_of(members: int, rng: torch.Generator, *, dtype: torch.dtype = torch.float64, weighted: bool = True) -> Batch:
    def normal(*shape: int) -> Tensor:
        return torch.randn(members, B, *shape, generator=rng, dtype=dtype)

    return Batch(
        obs=normal(OBS),
        action=normal(ACTION).clamp(-1, 1),
        reward=3 * normal(),
        discount=(normal() > -1).to(dtype),
        next_obs=normal(OBS),
        weight=normal().abs() if weighted else None,
    )


def members_of(batch: Batch, low: int, high: int) -> Batch:
    return Batch(
        obs=batch.obs[low:high],
        action=batch.action[low:high],
        reward=batch.reward[low:high],
        discount=batch.discount[low:high],
        next_obs=batch.next_obs[low:high],
        weight=None if batch.weight is None else batch.weight[low:high],
    )


def draws_of(batches: list[Batch]) -> list[Draw]:
    return [lambda low, high, batch=batch: members_of(batch, low, high) for batch in batches]


def blocks(learner: Learner) -> list[Tensor]:
    return [learner.actor, *learner.actor_targets, *learner.critics, *learner.critic_targets]
