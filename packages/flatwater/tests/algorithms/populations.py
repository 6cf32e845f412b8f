"""A small population and its batches, for the tests of learners."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields

import torch
from torch import Tensor

from flatwater.algorithms.api import Members, Networks, Setting, Update, find_algorithm
from flatwater.nets.mlp import MLPActor, MLPCritic
from flatwater.replay.batch import Batch
from flatwater_trading.training.learner import LearnerConfig

OBS, ACTION, HIDDEN, B = 5, 2, (8, 7), 6
CPU = torch.device("cpu")
ACTOR, CRITIC = MLPActor(OBS, ACTION, HIDDEN), MLPCritic(OBS, ACTION, HIDDEN)
NETS = Networks(ACTOR, CRITIC)
DRAWN = Networks(MLPActor(OBS, ACTION, HIDDEN, drawn=True), CRITIC)
ACTOR_SPEC, CRITIC_SPEC = ((OBS, *HIDDEN, ACTION), ACTOR.layout), ((OBS + ACTION, *HIDDEN, 1), CRITIC.layout)
Draw = Callable[[int, int], Batch]
OWN = {f.name: f.default_factory for f in fields(LearnerConfig) if f.default_factory is not MISSING}
"""The class of each algorithm's settings."""


@dataclass
class Population:
    config: LearnerConfig
    learner: Members
    update_: Update


def population(
    *,
    members: int = 3,
    groups: list[tuple[int, int]] | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    first: int = 0,
    **settings: object,
) -> Population:
    config = settings_of(settings)
    algorithm = find_algorithm(config)
    nets = DRAWN if algorithm.gaussian else NETS
    learner = algorithm.build(config, nets, Setting(members=members, seed=seed, first=first, device=CPU, dtype=dtype))
    return Population(config, learner, algorithm.make_update(config, nets, learner, groups or [(0, members)]))


def settings_of(settings: Mapping[str, object]) -> LearnerConfig:
    """Shared settings, and those of the chosen algorithm, by name."""
    named = {"algorithm": "ddpg", "batch_size": B, "micro_batches": 2, "critic_lr": 3e-4, "actor_lr": 1e-4} | settings
    shared = {f.name: named.pop(f.name) for f in fields(LearnerConfig) if f.name in named}
    return LearnerConfig(**shared, **{shared["algorithm"]: OWN[shared["algorithm"]](**named)})


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
