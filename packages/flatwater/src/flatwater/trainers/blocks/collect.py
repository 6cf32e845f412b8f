"""The collecting phase: T steps of every environment, written where they are learned from."""

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.config import TeachingConfig
from flatwater.algorithms.ppo import bind_evaluation, bound_weights, forward_step, make_act
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World, check_actions
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater.rollouts.block import write_step_
from flatwater.trainers.blocks.opponents import EARLIER, deal_opponents, take_policy_
from flatwater.trainers.blocks.state import COMING, CPU, BlocksSetup, BlocksState
from flatwater.trainers.episodes import ReportEnded, ask_teacher_, begin_, step_, view_episodes
from flatwater.trainers.profile import Profile

TRUNCATED = 2
"""Place of `truncated` among the three outcomes that the world writes."""
COLLECT = 1
"""Place of the phase in a round."""


class BlockCollector:
    """The world of a run, and its teacher, with the arrays that they write into, bound once."""

    def __init__(
        self, setup: BlocksSetup, run: BlocksState, world: World, teacher: Teacher | None, profile: Profile
    ) -> None:
        """Bind views; begin nothing. Where the run is in an episode, the world must be as well (`play_again_`).

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
        """Each is called with the episodes that have ended."""
        self._weights = bound_weights(setup.network, run.learner)
        config, learner_parts = setup.config.learner, (setup.config.learner, setup.network, run.learner)
        self._act = make_act(*learner_parts, masked=setup.spaces.masked, has_teacher=setup.has_teacher)
        self._judge_ = bind_evaluation(*learner_parts, rollout=run.rollout, parts=config.minibatches)
        envs, agents = setup.spaces.envs, setup.spaces.agents
        self._grid = (envs, agents)
        self._teacher_choices = torch.zeros(envs, agents, dtype=torch.int64)
        # Views of the state tree: the world writes its observations and outcomes into the rollout itself.
        obs_rows = [*run.rollout["obs"], run.coming]
        self._obs_rows = obs_rows[:-1]
        self._observations: list[Array] = [row.view(*self._grid, *setup.spaces.obs).numpy() for row in obs_rows]
        masks = [*run.rollout["legal"], run.legal[COMING]] if setup.spaces.masked else [None] * len(obs_rows)
        self._legal_masks: list[Array | None] = [
            row if row is None else row.view(*self._grid, -1).numpy() for row in masks
        ]
        self._episodes = view_episodes(run.episodes)
        ends = (run.rollout[name].view(-1, *self._grid).numpy() for name in ("reward", "terminated", "truncated"))
        self._outcomes = list(zip(*ends, strict=True))
        self._earlier, self._sides = run.opponents.get(EARLIER), world.sides if isinstance(world, TurnsWorld) else 1
        self._noise = torch.zeros(envs * agents, setup.network.actions.noise, device=setup.device)
        self._ended_agents, self._starts = run.episodes.over.numpy().reshape(-1), run.starts.numpy()
        columns = (run.rollout[name].numpy() for name in ("action", "alive", "starts"))
        self._step_rows: list[tuple[Array, Array, Array]] = list(zip(*columns, strict=True))

    @property
    def has_begun(self) -> bool:
        """Whether any step was ever taken."""
        return self._run.agent_steps > 0

    @property
    def seen_now(self) -> Array:
        """The next step's observations, [E, A, *obs]."""
        progress = self._run.progress
        collecting = progress.phase == COLLECT and progress.step > 0
        return self._observations[progress.step if collecting else -1]

    def step_(self, t: int) -> None:
        """Take step `t` of the block: teacher and policy act, one action is executed, and the step goes to row `t`."""
        run, profile = self._run, self._profile
        profile.begin_()
        if t == 0:
            profile.clear_()
            self._begin_block_()
        teacher_actions = self._teacher_actions_(t)
        action = self._act_(t, teacher_actions)
        if teacher_actions is not None:
            write_step_(run.rollout, t, taught=teacher_actions, led=run.led)
        profile.end_part_("policy")
        executed = action.reshape(*self._grid, *action.shape[1:])
        if (legal := self._legal_masks[t]) is not None:
            check_actions(self._setup.spaces, legal, executed, source="the policy")
        # The world writes the next observation into the next row; `coming` is the row after the last.
        next_rows = self._observations[t + 1], self._outcomes[t]
        ended = step_(self.world, self._episodes, executed, *next_rows, legal=self._legal_masks[t + 1])
        profile.end_part_("env")
        self._starts[...] = False
        run.agent_steps += len(action)
        profile.steps += len(action)
        # Other steps have their next value in the next row, or none where the episode terminated.
        is_last = t == len(self._outcomes) - 1
        if is_last or np.count_nonzero(self._outcomes[t][TRUNCATED]):
            self._write_next_value_(t)
        if is_last:
            self._end_block_()
        # Last: a new episode's first observation overwrites the old episode's last.
        if np.count_nonzero(ended):
            for report_ in self.reports:
                report_(ended, run.episodes, next_rows[0])
            self._end_(ended, t + 1)
        profile.end_part_("store")

    def _teacher_actions_(self, t: int) -> Tensor | None:
        """Return the teacher's actions in step `t`; None without a teacher."""
        if self.teacher is None:
            return None
        choices = ask_teacher_(self.teacher, self._observations[t], self._teacher_choices, legal=self._legal_masks[t])
        if (legal := self._legal_masks[t]) is not None:
            check_actions(self._setup.spaces, legal, self._teacher_choices.numpy(), source="the teacher")
        self._profile.end_part_("teacher")
        return choices.flatten()

    def _act_(self, t: int, teacher_actions: Tensor | None) -> Array:
        """Choose the actions of step `t`, write them into row `t` of the rollout, and return them, [B, *action].

        Where the teacher leads an agent, the teacher's action is executed. The row also gets a mask of the agents whose
        episode goes on, and one of those whose episode begins; `run.begun` gets the memory at the start of each unroll.
        Unless values are computed after the block, log-probability, value and the new memory are written as well.

        Args:
            t: number of the step in the block.
            teacher_actions: the teacher's actions; None without a teacher.
        """
        run, network, device = self._run, self._setup.network, self._setup.device
        # Before the step, as a sequence is learned from with the memory before its first step.
        if network.policy.cells and t % (unroll := self._setup.config.learner.unroll) == 0:
            run.begun[t // unroll].copy_(run.memory)
        # For all agents, led or not: how far the generator moves follows from the step alone.
        noise = network.actions.noise_(self._noise, run.generators["actions"])
        teacher = {}
        if teacher_actions is not None:
            teacher = {"led": run.led.to(device), "taught": teacher_actions.to(device)}
        obs, starts = self._obs_rows[t], run.starts
        if device != CPU:
            obs, starts = (x.to(device, non_blocking=True) for x in (obs, starts))
        mask = {"legal": run.rollout["legal"][t].to(device)} if self._setup.spaces.masked else {}
        step = self._act(obs=obs, memory=run.memory, starts=starts, noise=noise, **mask, **teacher)
        action, alive, starts_row = self._step_rows[t]
        action[...] = step.action.to(CPU).numpy()
        np.logical_not(self._ended_agents, out=alive)
        starts_row[...] = self._starts
        # Without memory both are computed in one pass after the block (`ActorCritic.values_later`).
        if step.log_prob is not None and step.value is not None:
            write_step_(run.rollout, t, log_prob=step.log_prob, value=step.value)
            run.memory.copy_(step.memory)
        return action

    def _begin_block_(self) -> None:
        """Copy the last block's end to the first row, and draw the agents that the teacher leads."""
        run, config = self._run, self._setup.config
        if run.agent_steps == 0:
            self._end_(np.ones(self._grid[0], np.bool_), -1)
            # Beginning counts the episodes before as ended, and there were none.
            run.ended.zero_()
        if self._earlier is not None:
            take_policy_(self._earlier, run.learner, run.progress.round, run.episodes.seeds.numpy())
        run.rollout["obs"][0].copy_(run.coming)
        if self._setup.spaces.masked:
            run.rollout["legal"][0].copy_(run.legal[COMING])
        if isinstance(config.learner, TeachingConfig):
            chances = torch.rand(len(run.led), generator=run.generators["lead"])
            torch.lt(chances, config.learner.lead.scheduled_value(run.agent_steps), out=run.led)

    def _write_next_value_(self, t: int) -> None:
        """Write the value of the observation after step `t`, before any new episode begins."""
        run, setup = self._run, self._setup
        next_obs = torch.from_numpy(self._observations[t + 1]).flatten(0, 1).to(setup.device)
        no_starts = torch.zeros(len(next_obs), dtype=torch.bool, device=setup.device)
        output = forward_step(setup.network, self._weights, obs=next_obs, memory=run.memory, starts=no_starts)
        run.rollout["next_value"][t].copy_(output.value[0])

    def _end_block_(self) -> None:
        """Write each step's next value: the next step's value, except for agents that have ended, which have it."""
        run, rollout, network = self._run, self._run.rollout, self._setup.network
        if network.values_later:
            self._judge_()
        has_ended = rollout["terminated"][:-1] | rollout["truncated"][:-1]
        next_value = rollout["next_value"][:-1]
        next_value.copy_(torch.where(has_ended, next_value, rollout["value"][1:]))
        if self.teacher is not None:
            run.ended[2].add_((rollout["led"] & rollout["alive"]).sum())

    def restart_episodes_(self) -> None:
        """Begin new episodes where the run is, because its world cannot come back: running episodes are cut there."""
        run, progress = self._run, self._run.progress
        collecting = progress.phase == COLLECT and progress.step > 0
        if collecting:
            last_step = progress.step - 1
            self._write_next_value_(last_step)  # of what was seen there, before new episodes are
            terminated, truncated = (run.rollout[name][last_step] for name in ("terminated", "truncated"))
            truncated.logical_or_(terminated.logical_not())
        ended_before = run.ended.clone()  # an episode that is cut like this has not ended
        self._end_(np.ones(self._grid[0], np.bool_), progress.step if collecting else -1)
        run.ended.copy_(ended_before)

    def _end_(self, ended: Array, row: int) -> None:
        """Count the episodes of `ended`, bool [E], and begin new episodes, whose observations go to `row`."""
        run, episodes = self._run, self._run.episodes
        which = torch.from_numpy(ended)
        run.ended[0].add_(int(ended.sum()) * self._grid[1])
        run.ended[1].add_(episodes.returns[which].double().sum())
        if self.teacher is None:
            run.ended[2].add_(int(episodes.steps[which].sum()) * self._grid[1])
        # A seed for every environment, ended or not: the generator moves alike.
        seeds = torch.randint(HELD_OUT, (len(ended),), generator=run.generators["world seeds"]).numpy()
        if self._earlier is not None:
            last_seeds, round_ = episodes.seeds.numpy(), run.progress.round
            seeds = deal_opponents(self._earlier, seeds, last_seeds, sides=self._sides, round_=round_)
        begin_(self.world, episodes, ended, seeds, self._observations[row], legal=self._legal_masks[row])
        if self.teacher is not None:
            self.teacher.begin_(ended)
        self._starts[...] = ended.repeat(self._grid[1])
