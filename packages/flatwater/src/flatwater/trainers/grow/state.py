"""The state of a run of growing networks and of its workers, how it is built, and the constants behind it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.learner import Learner, build_learner, step_columns, weight_views
from flatwater.envs.growing.baselines import BASELINES
from flatwater.envs.growing.observation import observation_size
from flatwater.envs.growing.own_host import find_host
from flatwater.envs.growing.pool import PER_HOST_FIELDS, GrowingEnvs, build_envs
from flatwater.envs.growing.spaces import HEADS, RELEVANT, Operation, head_sizes
from flatwater.envs.growing.task import Task
from flatwater.envs.world import PADDING
from flatwater.nets.actions import OperationActions
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.hosts import Host, ImageShape
from flatwater.nets.policy import build_statistics
from flatwater.rollouts.block import ColumnSpec, Rollout, build_rollout
from flatwater.state.allocation import filled_tensor
from flatwater.state.random import generator
from flatwater.state.tree import leaves, state
from flatwater.trainers.grow.config import GrowConfig
from flatwater.trainers.loop import Progress
from flatwater.trainers.on_policy import OnPolicySetup


@state
class HeldOutScores:
    """Returns of the held-out episodes, on the device until the round is settled."""

    policy: Float[Tensor, "K"]
    """Returns of the policy in the last evaluation; NaN before the first."""
    baselines: dict[str, Float[Tensor, "K"]]
    """Returns of each baseline on the same held-out episodes; played once, before training."""


@state
class GrowState:
    """The root of the state tree; its rollout is one episode of every environment.

    An episode is one sequence, so the memory before each sequence is zeros.
    """

    progress: Progress
    learner: Learner
    rollout: Rollout
    """The block that is learned from."""
    memory: Float[Tensor, "2 E M"]
    """Memory of the policy, on its device."""
    begun: Float[Tensor, "1 2 E M"]
    """Memory before the first step of each of the block's sequences."""
    generators: dict[str, torch.Generator]
    seeds: Int[Tensor, "E"]
    """Seeds of the round's episodes, which also decide whether a host is impaired."""
    envs: GrowingEnvs
    """The pool: it plays the training episodes and, between rounds, the held-out episodes."""
    scores: HeldOutScores


@state
class ActingWeights:
    """A worker's copy of the learner's weights, to act with."""

    block: Float[Tensor, "1 n"]
    statistics: dict[str, Tensor]


@state
class WorkerShare:
    """The state of a worker: a part of the environments, and the policy that acts in them."""

    policy: ActingWeights
    envs: GrowingEnvs
    memory: Float[Tensor, "2 E M"]


@dataclass(frozen=True)
class GrowSetup(OnPolicySetup):
    """Constants of a run, which are not state: configuration, hosts and the policy as functions."""

    config: GrowConfig
    image_shape: ImageShape
    """Sizes of the hosts' images."""

    @cached_property
    def net(self) -> Host:
        """The hosts' computation, as a function of their weights."""
        return find_host(self.config.host, self.config.env.host, self.image_shape, self.device)

    @cached_property
    def network(self) -> ActorCritic:
        """The policy for these hosts."""
        config, device, slots = self.config, self.device, len(self.net.seeds)
        _, *choices = head_sizes(config.env.lifecycle, slots)  # of each part of an action but the first, the operation
        # Without the first column, the operation itself, which is always relevant.
        relevant = torch.tensor([row[1:] for row in RELEVANT], device=device)
        actions = OperationActions(choices=tuple(choices), relevant=relevant, floor=config.policy.floor)
        obs, policy_config = observation_size(config.env, slots), config.policy
        layers = ActorCriticConfig(hidden=policy_config.hidden, memory=policy_config.memory)
        # Every number of an observation is normalised by its running statistics.
        measures = tuple(range(obs))
        network = ActorCritic((obs,), actions, PADDING, layers, device, measures=measures, scaling="deviations")
        return replace(network, autocast_bfloat16=config.learner.autocast == "bf16")


CONSUMERS = ("env seeds", "actions", "held out")
"""Consumers of random numbers, each with a generator of its own."""


def host_columns(setup: GrowSetup) -> dict[str, ColumnSpec]:
    """Return the rollout's columns about the hosts: observations, and results of a step."""
    slots = len(setup.net.seeds)
    return {
        "obs": ColumnSpec(setup.network.obs),
        "reward": ColumnSpec(),
        "terminated": ColumnSpec((), torch.bool),
        "truncated": ColumnSpec((), torch.bool),  # never
        "stage": ColumnSpec((slots,), torch.int64),
        "accuracy": ColumnSpec(),
        "rolled_back": ColumnSpec((), torch.bool),
    }


def build_grow(setup: GrowSetup, data: Task) -> GrowState:
    """Return the state of a new run. On the meta device it has shapes alone, for a memory plan."""
    config, network, device = setup.config, setup.network, setup.device
    zeros = partial(filled_tensor, 0, device=device)

    def nan_returns() -> Tensor:
        """Return NaN for each episode of an evaluation: not played yet."""
        return torch.full((config.evaluation_passes * config.envs,), torch.nan, device=device)

    learner = build_learner(
        network,
        sequences=config.envs,  # an episode is one sequence
        rng=generator(config.seed, "initial weights", device),
        device=device,
        metrics=setup.algorithm.metrics,
        target_kl=config.learner.target_kl,
    )
    action = ColumnSpec((len(HEADS),), torch.int64)
    init_action_bias_(setup, learner)
    return GrowState(
        progress=Progress(),
        learner=learner,
        rollout=build_rollout(
            host_columns(setup) | step_columns(action, legal=network.actions.outputs),
            steps=config.env.steps,
            batch=config.envs,
            device=device,
        ),
        seeds=torch.zeros(config.envs, dtype=torch.int64, device=device),
        envs=build_envs(config.env, count=config.envs, data=data, device=device, net=setup.net),
        memory=zeros(2, config.envs, network.policy.cells),
        begun=zeros(1, 2, config.envs, network.policy.cells),
        scores=HeldOutScores(policy=nan_returns(), baselines={name: nan_returns() for name in BASELINES}),
        generators={name: generator(config.seed, name, device) for name in CONSUMERS},
    )


def build_share(setup: GrowSetup, data: Task, count: int) -> WorkerShare:
    """Return a new worker's state with `count` environments.

    On the meta device it has shapes alone, for a memory plan.
    """
    config, network, device = setup.config, setup.network, setup.device
    zeros = partial(filled_tensor, 0, device=device)
    return WorkerShare(
        policy=ActingWeights(
            block=zeros(1, network.layout.size),
            statistics=build_statistics(network.obs[0], network.measures, device) if network.measures else {},
        ),
        envs=build_envs(config.env, count=count, data=data, device=device, net=setup.net),
        memory=zeros(2, count, network.policy.cells),
    )


def env_rows(envs: GrowingEnvs, memory: Float[Tensor, "2 E M"]) -> Iterator[tuple[str, Tensor]]:
    """Yield (path, tensor [E, ...]) of each tensor of the saved state that has a row for each environment."""
    for name in PER_HOST_FIELDS:
        branch = getattr(envs, name)
        if isinstance(branch, Tensor):
            yield f"{name}.", branch  # a tensor has no path below its field
            continue
        for leaf in leaves(branch):
            if isinstance(leaf.value, Tensor) and not leaf.derived:  # derived leaves are not saved
                yield f"{name}.{leaf.path}", leaf.value
    # As a view [E, 2, M], with the environments first like all other tensors.
    yield "memory", memory.transpose(0, 1)


def init_action_bias_(setup: GrowSetup, learner: Learner) -> None:
    """Set the initial biases of the operations' logits, so that the first policy chooses operations by its prior."""
    if not learner.block.is_meta:  # the plan has no values to set
        # A view of the block. The softmax of log p is p, scaled to a sum of 1.
        bias = weight_views(setup.network, learner)["action.bias"]
        bias[: len(Operation)].copy_(torch.tensor(setup.config.policy.prior).log())
