"""The collecting phase: T steps of every environment, written into the rollout."""

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Outcome, Teacher, World, build_outcome, check_actions
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater.rollouts.block import write_step_
from flatwater.trainers.blocks.opponents import EARLIER, deal_opponents, take_policy_
from flatwater.trainers.blocks.policy_rollout import PolicyRollout
from flatwater.trainers.blocks.state import (
    AFTER_BLOCK,
    EPISODES,
    RETURNS,
    STEPS,
    BlocksSetup,
    BlocksState,
    KindsState,
    policy_parts,
)
from flatwater.trainers.episodes import (
    ReportEnded,
    ask_teacher_,
    begin_,
    step_,
    view_episodes,
)
from flatwater.trainers.profile import Profile

TRUNCATED = 2
"""Index of `truncated` among the three outcomes that the world writes."""
AFTER_LAST_ROW = -1
"""Index of the observations after the block's last step in `BlockCollector._observations`."""
COLLECT = 1
"""Index of the collecting phase in a round."""


class BlockCollector:
    """The training world of a run and its teacher, bound to the tensors of the state tree that they write into."""

    def __init__(
        self, setup: BlocksSetup, run: BlocksState, world: World, teacher: Teacher | None, profile: Profile
    ) -> None:
        """Bind the tensors of the state tree that the world, the teacher and the policies write into in each step.

        No episode begins yet; `resume_episodes_` brings the world back to the episodes of a restored run.

        Args:
            setup: constants of the run.
            run: state tree; its rollout and episodes are written by later steps.
            world: the training world.
            teacher: the teacher that is asked in each step; None in a run without one.
            profile: takes the time of each part of a step.
        """
        self._setup, self._run, self._profile = setup, run, profile
        self.world, self.teacher = world, teacher
        self.reports: list[ReportEnded] = []
        """Functions that are called with the episodes that have ended."""
        spaces = setup.spaces
        envs, agents = spaces.envs, spaces.agents
        self._envs, self._agents, self._grid = envs, agents, (envs, agents)
        self._teacher_choices = torch.zeros(envs, agents, dtype=torch.int64)
        # One for each kind of agents; several have different spaces.
        self._policies = [PolicyRollout(part) for part in policy_parts(setup, run)]
        self._rows_are_copied = bool(spaces.kinds)
        """Whether the world writes beside the rollouts, as the rows of several kinds have another form."""
        self._bind_world_rows_()
        self._episodes = view_episodes(run.episodes)
        self._actions = np.zeros((*self._grid, *spaces.action_shape), spaces.action_type)
        """Actions of several kinds of agents, side by side."""
        self._earlier_policies = run.opponents.get(EARLIER)
        """Opponents in a game in turns; None in other environments."""
        self._game_sides = world.sides if isinstance(world, TurnsWorld) else 1
        self._starts = run.starts.numpy()
        """Whether each agent's next step is the first of an episode, bool [B]; a view."""

    def _bind_world_rows_(self) -> None:
        """Bind the arrays that the world writes into: of each step of the block, and of what comes after it."""
        run, spaces, steps = self._run, self._setup.spaces, self._setup.config.block
        next_obs = run.coming
        next_legal = [run.legal[AFTER_BLOCK]] if spaces.masked else []
        if self._rows_are_copied:
            # One buffer for all steps: each policy copies it to its rollout before the world writes into it again.
            obs_rows, legal_rows = [next_obs] * (steps + 1), next_legal * (steps + 1)
            self._outcomes: list[Outcome] = [build_outcome(*self._grid)] * steps
        else:
            rollout = self._policies[0].part.rollout
            obs_rows = [*rollout["obs"], next_obs]
            legal_rows = [*rollout["legal"], *next_legal] if next_legal else []
            columns = [rollout[name].view(-1, *self._grid).numpy() for name in ("reward", "terminated", "truncated")]
            self._outcomes = list(zip(*columns, strict=True))  # the rows of each step
        self._observations: list[Array] = [row.view(*self._grid, *spaces.obs).numpy() for row in obs_rows]
        masks = [row.view(*self._grid, -1).numpy() for row in legal_rows]
        # None at each step of a world without masks, so that both lists have the same indexes.
        self._legal_masks: list[Array | None] = [*masks] or [None] * len(obs_rows)

    @property
    def has_begun(self) -> bool:
        """Whether any step was ever taken."""
        return self._run.agent_steps > 0

    @property
    def current_obs(self) -> Array:
        """The next step's observations, [E, A, *obs]: of its row within a block, else those after the last block."""
        progress = self._run.progress
        is_within_block = progress.phase == COLLECT and progress.step > 0
        return self._observations[progress.step if is_within_block else AFTER_LAST_ROW]

    def step_(self, t: int) -> None:
        """Take step `t` of the block, and write it into row `t` of the rollout."""
        run, profile = self._run, self._profile
        profile.begin_()
        if t == 0:
            profile.clear_()
            self._begin_block_()
        teacher_actions = self._teacher_actions_(t)
        executed_actions = self._act_(t, teacher_actions)
        profile.end_part_("policy")
        legal = self._legal_masks[t]  # None in a world without masks
        if legal is not None:
            check_actions(self._setup.spaces, legal, executed_actions, source="the policy")
        # The world writes the next observations into the next row; after the last row, into `run.coming`.
        next_obs = self._observations[t + 1]
        has_ended = step_(
            self.world, self._episodes, executed_actions, next_obs, self._outcomes[t], legal=self._legal_masks[t + 1]
        )
        profile.end_part_("env")
        self._starts[...] = False  # `_begin_episodes_` sets it for episodes that begin below
        run.agent_steps += self._envs * self._agents
        profile.steps += self._envs * self._agents
        if self._rows_are_copied:  # else the world has written into the rollout itself
            for policy in self._policies:
                policy.copy_outcome_(t, self._outcomes[t])
        # The value after a truncated episode, and after the last row. Of a terminated episode no next value is read;
        # those of all other steps are copied from the next row at the end of the block.
        is_last = t == len(self._outcomes) - 1
        if is_last or np.count_nonzero(self._outcomes[t][TRUNCATED]):
            for policy in self._policies:
                policy.write_next_value_(t, next_obs)
        if is_last:
            self._end_block_()
        # Last, because a new episode's first observation overwrites the final observation of the old one.
        if np.count_nonzero(has_ended):
            for report_ in self.reports:
                report_(has_ended, run.episodes, next_obs)
            self._count_ended_episodes_(has_ended)
            self._begin_episodes_(has_ended, t + 1)
        profile.end_part_("store")

    def _teacher_actions_(self, t: int) -> Tensor | None:
        """Ask the teacher for its actions in step `t`, and return them, [B]; None without a teacher."""
        if self.teacher is None:
            return None
        legal = self._legal_masks[t]  # None in a world without masks
        choices = ask_teacher_(self.teacher, self._observations[t], self._teacher_choices, legal=legal)
        if legal is not None:
            check_actions(self._setup.spaces, legal, self._teacher_choices.numpy(), source="the teacher")
        self._profile.end_part_("teacher")
        return choices.flatten()

    def _act_(self, t: int, teacher_actions: Tensor | None) -> Array:
        """Return the actions of step `t`, [E, A, *action], after writing the policies' columns of row `t`.

        Args:
            t: number of the step in the block.
            teacher_actions: the teacher's actions [B, *action]; None without a teacher.
        """
        run, device = self._run, self._setup.device
        if not self._rows_are_copied:  # one policy acts for all agents
            policy, inputs = self._policies[0], {}
            if teacher_actions is not None:
                # `led` marks the agents for which the teacher's action is executed.
                inputs = {"led": run.led.to(device), "taught": teacher_actions.to(device)}
                write_step_(policy.part.rollout, t, taught=teacher_actions, led=run.led)
            action = policy.act_(t, policy.part.own_rows(self._episodes.over), run.starts, **inputs)
            return action.reshape(*self._grid, *action.shape[1:])
        starts = self._starts.reshape(self._grid)
        for policy in self._policies:  # each acts for its kind of agents, and writes into their columns
            policy.copy_inputs_(t, self._observations[t], self._legal_masks[t])
            own_starts = torch.from_numpy(policy.part.own_rows(starts))
            own_actions = policy.act_(t, policy.part.own_rows(self._episodes.over), own_starts)
            policy.part.write_actions_(own_actions, self._actions)
        return self._actions

    def _begin_block_(self) -> None:
        """Prepare row 0 of the next block: it gets the observations and masks after the last block.

        A new run begins its first episodes. The present policy is kept as an opponent if that is due, and the agents
        that the teacher leads are drawn anew.
        """
        run, config = self._run, self._setup.config
        if run.agent_steps == 0:
            self._begin_episodes_(np.ones(self._envs, np.bool_), AFTER_LAST_ROW)
        if self._earlier_policies is not None:
            learner = self._policies[0].part.learner
            take_policy_(self._earlier_policies, learner, run.progress.round, run.episodes.seeds.numpy())
        if not self._rows_are_copied:  # else `_act_` copies row 0 like all others
            self._policies[0].copy_inputs_(0, self._observations[AFTER_LAST_ROW], self._legal_masks[AFTER_LAST_ROW])
        if isinstance(config.learner, TeachingConfig):
            # One number for each agent and block: the teacher leads the agents whose number is below the schedule's.
            draws = torch.rand(len(run.led), generator=run.generators["lead"])
            torch.lt(draws, config.learner.lead.scheduled_value(run.agent_steps), out=run.led)

    def _end_block_(self) -> None:
        """Write the values of the block that are not written yet, and count the steps that the teacher led."""
        for policy in self._policies:
            policy.complete_values_()
        if self.teacher is not None:
            rollout = self._policies[0].part.rollout
            self._run.ended[STEPS].add_((rollout["led"] & rollout["alive"]).sum())

    def restart_episodes_(self) -> None:
        """Truncate the running episodes and begin new ones, because the world cannot be brought back to them."""
        progress = self._run.progress
        is_within_block = progress.phase == COLLECT and progress.step > 0
        if is_within_block:
            last_step = progress.step - 1
            for policy in self._policies:
                # Before new episodes overwrite the observations of the old ones.
                policy.write_next_value_(last_step, self._observations[progress.step])
                policy.truncate_(last_step)
        row = progress.step if is_within_block else AFTER_LAST_ROW  # of the new episodes' first observations
        self._begin_episodes_(np.ones(self._envs, np.bool_), row)

    def _count_ended_episodes_(self, has_ended: Array) -> None:
        """Add the episodes of the environments in the mask `has_ended`, bool [E], to the sums of ended episodes."""
        run, episodes, agents = self._run, self._run.episodes, self._agents
        mask = torch.from_numpy(has_ended)
        run.ended[EPISODES].add_(int(has_ended.sum()) * agents)  # an episode counts for each of its agents
        run.ended[RETURNS].add_(episodes.returns[mask].double().sum())
        if isinstance(run, KindsState):  # the kinds' returns are told apart, so they are summed by agent
            run.agent_returns.add_(episodes.returns[mask].double().sum(0))
        if self.teacher is None:  # with a teacher, `_end_block_` counts the steps that it led
            run.ended[STEPS].add_(int(episodes.steps[mask].sum()) * agents)

    def _begin_episodes_(self, env_mask: Array, row: int) -> None:
        """Begin episodes in the environments of `env_mask`, bool [E]; their observations go to row `row`."""
        run, episodes = self._run, self._run.episodes
        # Seeds are drawn for all environments, so that each call draws the same number of random numbers. Seeds of
        # training are below `HELD_OUT`.
        seeds = torch.randint(HELD_OUT, (len(env_mask),), generator=run.generators["world seeds"]).numpy()
        if self._earlier_policies is not None:  # then a seed also encodes the learner's side and its opponents
            last_seeds, round_ = episodes.seeds.numpy(), run.progress.round
            seeds = deal_opponents(self._earlier_policies, seeds, last_seeds, sides=self._game_sides, round_=round_)
        begin_(self.world, episodes, env_mask, seeds, self._observations[row], legal=self._legal_masks[row])
        if self.teacher is not None:
            self.teacher.begin_(env_mask)
        self._starts[...] = env_mask.repeat(self._agents)
