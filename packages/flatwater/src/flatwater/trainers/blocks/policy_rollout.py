"""Acts with the policy of one kind of agents, and fills its rollout: a block of T steps of B agents."""

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.learner import bind_evaluation, forward_step, make_act, weight_views
from flatwater.envs.world import Array
from flatwater.rollouts.block import write_step_
from flatwater.trainers.blocks.state import CPU, PolicyPart


class PolicyRollout:
    """The policy of a kind of agents, bound to its rollout.

    Where it is the only one, the world writes into the rollout itself; arrays of a world of several kinds are copied.
    """

    def __init__(self, part: PolicyPart) -> None:
        """Bind the policy's weights, and views of the rollout's rows, into which the steps of a block write.

        `part` is the policy of one kind of agents in the state tree, with its block.
        """
        setup, rollout = part.setup, part.rollout
        self.setup, self.part = setup, part
        config, learner_parts = setup.config.learner, (setup.config.learner, setup.network, part.learner)
        self._weights = weight_views(setup.network, part.learner)
        self._act = make_act(*learner_parts, masked=setup.spaces.masked, has_teacher=setup.has_teacher)
        # In as many pieces as an epoch has minibatches, so that a piece takes no more memory than an update.
        self._evaluate_block_ = bind_evaluation(*learner_parts, rollout=rollout, pieces=config.own.minibatches)
        self._noise = torch.zeros(setup.agents, setup.network.actions.noise, device=setup.device)
        self._obs_rows = [*rollout["obs"]]
        # One tuple of arrays for each step of the block: action, alive and starts.
        columns = (rollout[name].numpy() for name in ("action", "alive", "starts"))
        self._step_rows: list[tuple[Array, Array, Array]] = list(zip(*columns, strict=True))

    def copy_inputs_(self, t: int, obs: Array, legal: Array | None) -> None:
        """Copy the observations and masks of the policy's own agents into row `t` of its rollout, before step `t`.

        `obs` and `legal` have those of all agents of the world.
        """
        self.part.rollout["obs"][t].copy_(self.part.own_obs(obs))
        if legal is not None and self.setup.spaces.masked:
            self.part.rollout["legal"][t].copy_(self.part.own_legal(legal))

    def copy_outcome_(self, t: int, outcome: tuple[Array, ...]) -> None:
        """Copy what step `t` brought the policy's own agents into row `t` of its rollout.

        `outcome` has reward, terminated and truncated of all agents of the world.
        """
        for name, values in zip(("reward", "terminated", "truncated"), outcome, strict=True):
            self.part.rollout[name][t].copy_(torch.from_numpy(self.part.own_rows(values)))

    def act_(self, t: int, is_over: Array, starts: Tensor, **teacher_inputs: Tensor) -> Array:
        """Return the actions of step `t`, [B, *action], after writing the policy's columns of row `t`.

        Agents that the teacher leads get the teacher's action. Memory, log-probability and value are written only if
        the policy computes them at each step.

        Args:
            t: number of the step in the block.
            is_over: whether each agent's episode is over, bool [B].
            starts: whether each agent's episode begins, bool [B].
            teacher_inputs: `led`, agents whose action is the teacher's, and `taught`, its actions; or none.
        """
        part, network, device = self.part, self.setup.network, self.setup.device
        unroll = self.setup.config.learner.unroll  # steps of a sequence
        # The memory before the first step of each sequence, from which the update recomputes the sequence.
        if network.policy.cells and t % unroll == 0:
            part.begun[t // unroll].copy_(part.memory)
        # Drawn for all agents, led or not, so that each step draws the same number of random numbers.
        noise = network.actions.noise_(self._noise, part.action_rng)
        action, is_alive, starts_row = self._step_rows[t]  # views, which the lines below write into
        np.logical_not(is_over, out=is_alive)
        starts_row[...] = starts.numpy()
        obs = self._obs_rows[t]
        if device != CPU:
            obs, starts = (rows.to(device, non_blocking=True) for rows in (obs, starts))
        mask_input = {"legal": part.rollout["legal"][t].to(device)} if self.setup.spaces.masked else {}
        step = self._act(obs=obs, memory=part.memory, starts=starts, noise=noise, **mask_input, **teacher_inputs)
        action[...] = step.action.to(CPU).numpy()
        # None for a policy that computes both after the block (`ActorCritic.evaluates_after_block`).
        if step.log_prob is not None and step.value is not None:
            write_step_(part.rollout, t, log_prob=step.log_prob, value=step.value)
            part.memory.copy_(step.memory)
        return action

    def write_next_value_(self, t: int, obs: Array) -> None:
        """Write the critic's value of the observations after step `t` into row `t`, as its `next_value`.

        `obs` has the observations of all agents of the world.
        """
        next_obs = self.part.own_obs(obs).to(self.setup.device)
        # The episode that step `t` belongs to goes on in these observations, or ended with them: its memory is read.
        no_starts = torch.zeros(len(next_obs), dtype=torch.bool, device=self.setup.device)
        output = forward_step(
            self.setup.network, self._weights, obs=next_obs, memory=self.part.memory, starts=no_starts
        )
        self.part.rollout["next_value"][t].copy_(output.value[0])  # the values [1, B] of one step

    def complete_values_(self) -> None:
        """Write the values of the block that are not written yet.

        A step's next value is the value of the next row, unless its episode ended with the step. The last row has no
        next row: its next value is written already.
        """
        rollout = self.part.rollout
        if self.setup.network.evaluates_after_block:  # else each step has written its value
            self._evaluate_block_()
        has_ended = rollout["terminated"][:-1] | rollout["truncated"][:-1]
        next_value = rollout["next_value"][:-1]
        next_value.copy_(torch.where(has_ended, next_value, rollout["value"][1:]))

    def truncate_(self, t: int) -> None:
        """Mark all episodes that step `t` has not terminated as truncated by it."""
        terminated, truncated = (self.part.rollout[name][t] for name in ("terminated", "truncated"))
        truncated.logical_or_(terminated.logical_not())
