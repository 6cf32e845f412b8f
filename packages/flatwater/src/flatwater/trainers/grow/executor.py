"""Executors play episodes in a pool of environments, a step of all at a time: in this process, or in workers.

Environments are computed in groups whose size follows from the configuration alone: each batched call computes one
group. Random numbers of a step are drawn for the whole pool, and each environment gets its row. So an environment's
numbers do not depend on the process that computes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.learner import ActingPolicy, make_act, weight_views
from flatwater.cluster.work_division import Span
from flatwater.envs.growing.baselines import BASELINES
from flatwater.envs.growing.lifecycle import OperationMasks
from flatwater.envs.growing.measures import last_accuracy
from flatwater.envs.growing.pool import GrowingEnvs, sub_pool
from flatwater.envs.growing.simulator import impaired_hosts, masks, observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS
from flatwater.trainers.grow.state import GrowSetup

EXPLORER, POLICY = "explorer", "policy"
"""Players besides the baselines: the policy that draws its actions to explore, and the policy's likeliest actions."""
EXPLORER_COLUMNS = ("obs", "legal", "action", "log_prob", "value", "reward", "stage", "accuracy", "rolled_back")
"""Columns of the rollout that the explorer's step returns."""
Columns = Mapping[str, Tensor]
"""Results of a step, by name, each [E, ...]."""


class GroupExecutor(Protocol):
    """An executor for a pool of hosts, the networks that grow; all executors give the same numbers.

    Until an episode's end, an executor may have newer environments than the state tree.
    """

    def begin_(self, seeds: Int[Tensor, "E"]) -> None:
        """Start an episode in every environment, with an empty memory."""

    def step_(self, player: str, noise: Float[Tensor, "E N"] | None) -> Columns:
        """Take a player's next step in every environment, and return its results by name.

        Args:
            player: `EXPLORER`, `POLICY`, or the name of a baseline.
            noise: random numbers of the player; None for a player that draws none.
        """
        ...


@dataclass(frozen=True)
class HostGroup:
    """Environments that are computed together, and the policy's memory of their episodes."""

    envs: GrowingEnvs
    memory: Float[Tensor, "2 g M"]


def split_groups(envs: GrowingEnvs, memory: Float[Tensor, "2 E M"], spans: Sequence[Span]) -> list[HostGroup]:
    """Return the groups of a pool, as views of its tensors; `spans` are the environments [first, end) of each."""
    if len(spans) == 1:  # the whole pool
        return [HostGroup(envs, memory)]
    return [HostGroup(sub_pool(envs, *span), memory[:, slice(*span)]) for span in spans]


class LocalGroupExecutor:
    """An executor in this process, which computes all groups one after the other."""

    def __init__(
        self,
        setup: GrowSetup,
        policy: ActingPolicy,
        envs: GrowingEnvs,
        memory: Float[Tensor, "2 E M"],
        spans: Sequence[Span],
    ) -> None:
        """Split the pool into groups, as views of its tensors, and bind the policy's weights.

        Args:
            setup: constants of the run.
            policy: weights of the policy.
            envs: the pool.
            memory: the policy's memory of the running episodes.
            spans: environments of each group.
        """
        self._setup, self._spans, self._groups = setup, spans, split_groups(envs, memory, spans)
        self._weights = weight_views(setup.network, policy)
        self._act = make_act(setup.config.learner, setup.network, policy, masked=True)

    def begin_(self, seeds: Int[Tensor, "E"]) -> None:
        """Begin episodes of these seeds: reset the pool and the policy's memory in place."""
        for span, group in zip(self._spans, self._groups, strict=True):
            reset_(group.envs, seeds[slice(*span)])
            group.memory.zero_()

    def step_(self, player: str, noise: Float[Tensor, "E N"] | None) -> Columns:
        """Step all groups in place; the columns [E, ...] of a single group are views of the state, else copies."""
        parts = []
        for span, group in zip(self._spans, self._groups, strict=True):
            group_noise = None if noise is None else noise[slice(*span)]
            parts.append(self._step_(player, group, group_noise))
        if len(parts) == 1:
            return parts[0]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _step_(self, player: str, group: HostGroup, noise: Tensor | None) -> Columns:
        """Step one group in place; the columns [g, ...] are views of its state, valid until the next step."""
        if player == EXPLORER:
            return self._explore_(group, noise)
        if player == POLICY:
            action = self._act_greedily_(group)
        else:
            action = BASELINES[player](group.envs, masks(group.envs), noise)
        reward = step_(group.envs, action)
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
        """Step one group in place with drawn actions of the policy; return the columns for the rollout."""
        envs, memory = group.envs, group.memory
        obs, legal = observe(envs), legal_rows(masks(envs))
        step = self._act(obs=obs, memory=memory, starts=envs.step == 0, noise=noise, legal=legal)
        assert step.log_prob is not None  # noqa: S101  (a policy with a memory computes both at each step)
        assert step.value is not None  # noqa: S101  (a policy with a memory computes both at each step)
        memory.copy_(step.memory)
        reward = step_(envs, step.action)
        return {
            "obs": obs,
            "legal": legal,
            "action": step.action,
            "log_prob": step.log_prob,
            "value": step.value,
            "reward": reward,
            "stage": envs.slots.stage,
            "accuracy": last_accuracy(envs.measures),
            "rolled_back": envs.measures.rolled_back,
        }

    def _act_greedily_(self, group: HostGroup) -> Int[Tensor, "g A"]:
        """Return the policy's likeliest actions, and update the group's memory."""
        network, envs, memory = self._setup.network, group.envs, group.memory
        group_size = memory.shape[1]  # of [2, g, M]
        # Whether each episode begins: False, as `begin_` has cleared the memory already when the episodes began.
        starts = torch.zeros(group_size, dtype=torch.bool, device=memory.device)
        with torch.no_grad():
            output = network.run_step(self._weights, observe(envs), memory, starts)
        memory.copy_(output.memory)
        legal = legal_rows(masks(envs))  # for each logit, whether its choice is legal
        return network.actions.distribution(output.logits, legal).mode()


def legal_rows(masks: OperationMasks) -> Bool[Tensor, "E R"]:
    """Return the masks of legal actions as rows, in the form of the policy's logits (`nets.actions`)."""
    # The first head chooses the operation, the others its arguments.
    return torch.cat([masks.operation, *(masks.choice_masks[head].flatten(1) for head in HEADS[1:])], dim=1)
