"""Executors play episodes in the pool, a step of all environments at a time: this process, or workers that do the same.

Environments are computed in groups, of a size that follows from the configuration alone: every batched call sees one
group. Random numbers of a step are drawn whole, and each environment is handed its row. So an environment's numbers
depend neither on the process that computes it nor on how groups are dealt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.ppo import ActingPolicy, bound_weights, make_act
from flatwater.cluster.share import Span
from flatwater.envs.growing.baselines import BASELINES
from flatwater.envs.growing.lifecycle import OperationMasks
from flatwater.envs.growing.measures import last_accuracy
from flatwater.envs.growing.simulator import GrowingEnvs, impaired_hosts, masks, observe, reset_, step_, sub_pool
from flatwater.envs.growing.spaces import HEADS
from flatwater.trainers import executor
from flatwater.trainers.grow.state import GrowSetup

EXPLORER, POLICY = "explorer", "policy"
"""Players besides the baselines: the policy with the draws and the floor that it learns with, and without them."""
EXPLORED = ("obs", "legal", "action", "log_prob", "value", "reward", "stage", "accuracy", "rolled_back")
"""Columns of the rollout that a step of the explorer gives."""
Columns = Mapping[str, Tensor]
"""Results of a step, by name, each [E, ...]."""


class GroupExecutor(executor.Executor, Protocol):
    """An executor for a pool of hosts; every executor gives the same numbers.

    It may keep newer environments elsewhere until an episode's end.
    """

    def begin_(self, seeds: Int[Tensor, "E"]) -> None:
        """Start an episode in every environment, with an empty memory."""

    def step_(self, player: str, noise: Float[Tensor, "E N"] | None) -> Columns:
        """Take a player's next step in every environment, and return its results.

        Args:
            player: `EXPLORER`, `POLICY`, or the name of a baseline.
            noise: random numbers of the player; None if it draws none.
        """
        ...


@dataclass(frozen=True)
class HostGroup:
    """Environments that are computed together."""

    envs: GrowingEnvs
    memory: Float[Tensor, "2 g M"]


def split_groups(envs: GrowingEnvs, memory: Float[Tensor, "2 E M"], spans: Sequence[Span]) -> list[HostGroup]:
    """Return the groups of a pool, in its storage."""
    if len(spans) == 1:
        # The pool itself, without a second tree of views.
        return [HostGroup(envs, memory)]
    return [HostGroup(sub_pool(envs, *span), memory[:, slice(*span)]) for span in spans]


class LocalGroupExecutor(executor.LocalExecutor):
    """This process computes all groups, one after the other."""

    def __init__(
        self,
        setup: GrowSetup,
        policy: ActingPolicy,
        envs: GrowingEnvs,
        memory: Float[Tensor, "2 E M"],
        spans: Sequence[Span],
    ) -> None:
        """Bind the state.

        Args:
            setup: constants of the run.
            policy: the weights that act.
            envs: the pool.
            memory: the policy's memory of its episodes.
            spans: the groups.
        """
        self._setup, self._spans, self._groups = setup, spans, split_groups(envs, memory, spans)
        self._weights = bound_weights(setup.network, policy)
        self._act = make_act(setup.config.learner, setup.network, policy, masked=True)

    def begin_(self, seeds: Int[Tensor, "E"]) -> None:
        """Reset the pool and its memory in place."""
        for span, group in zip(self._spans, self._groups, strict=True):
            reset_(group.envs, seeds[slice(*span)])
            group.memory.zero_()

    def step_(self, player: str, noise: Float[Tensor, "E N"] | None) -> Columns:
        """Step all groups in place; columns [E, ...] are views of the state where there is one group, else copies."""
        parts = [
            self._step_(player, group, None if noise is None else noise[slice(*span)])
            for span, group in zip(self._spans, self._groups, strict=True)
        ]
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _step_(self, player: str, group: HostGroup, noise: Tensor | None) -> Columns:
        """Take one group's step with a player's actions; columns are views of its state, valid until the next step."""
        if player == EXPLORER:
            return self._explore_(group, noise)
        if player == POLICY:
            action = self._likeliest_(group)
        else:
            action = BASELINES[player](group.envs, masks(group.envs), noise)
        reward = step_(group.envs, action)
        # Views of the state: a caller that keeps them over a step must copy.
        measures, slots = group.envs.measures, group.envs.slots
        return {
            "action": action,
            "success": measures.success,
            "reward": reward,
            "accuracy": last_accuracy(measures),
            "impaired": impaired_hosts(group.envs),
            "stage": slots.stage,
            "alpha": slots.alpha,
        }

    def _explore_(self, group: HostGroup, noise: Tensor | None) -> Columns:
        """Take one group's step with drawn actions of the policy; return the columns for the rollout."""
        envs, memory = group.envs, group.memory
        obs, legal = observe(envs), legal_rows(masks(envs))
        choice = self._act(obs=obs, memory=memory, starts=envs.step == 0, noise=noise, legal=legal)
        assert choice.log_prob is not None  # noqa: S101  (the policy remembers)
        assert choice.value is not None  # noqa: S101  (the policy remembers)
        # In place: the groups are views of the run's memory.
        memory.copy_(choice.memory)
        reward = step_(envs, choice.action)
        return {
            "obs": obs,
            "legal": legal,
            "action": choice.action,
            "log_prob": choice.log_prob,
            "value": choice.value,
            "reward": reward,
            "stage": envs.slots.stage,
            "accuracy": last_accuracy(envs.measures),
            "rolled_back": envs.measures.rolled_back,
        }

    def _likeliest_(self, group: HostGroup) -> Int[Tensor, "g A"]:
        """Return the policy's best action, without the draws and the floor that it learns with."""
        network, envs, memory = self._setup.network, group.envs, group.memory
        # No starts: `begin_` has cleared the memory.
        starts = torch.zeros(memory.shape[1], dtype=torch.bool, device=memory.device)
        with torch.no_grad():
            choice = network.run_step(self._weights, observe(envs), memory, starts)
        memory.copy_(choice.memory)
        return network.actions.distribution(choice.logits, legal_rows(masks(envs))).mode()


def legal_rows(masks: OperationMasks) -> Bool[Tensor, "E R"]:
    """Return the mask of legal actions, in the form of the policy's rows of logits (`nets.actions`)."""
    return torch.cat([masks.operation, *(masks.choice_masks[head].flatten(1) for head in HEADS[1:])], dim=1)
