"""The collecting phase: T steps of every environment, written into the rollout."""

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.learner import bind_evaluation, forward_step, make_act, weight_views
from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World, check_actions
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater.rollouts.block import write_step_
from flatwater.trainers.blocks.opponents import EARLIER, deal_opponents, take_policy_
from flatwater.trainers.blocks.state import AFTER_BLOCK, CPU, EPISODES, RETURNS, STEPS, BlocksSetup, BlocksState
from flatwater.trainers.episodes import ReportEnded, ask_teacher_, begin_, step_, view_episodes
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
        """Bind views of the state tree; no episode begins yet. `resume_episodes_` brings the world to a restored run.

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
        self._weights = weight_views(setup.network, run.learner)
        config, learner_parts = setup.config.learner, (setup.config.learner, setup.network, run.learner)
        self._act = make_act(*learner_parts, masked=setup.spaces.masked, has_teacher=setup.has_teacher)
        self._evaluate_block_ = bind_evaluation(*learner_parts, rollout=run.rollout, pieces=config.own.minibatches)
        envs, agents = setup.spaces.envs, setup.spaces.agents
        self._envs, self._agents, self._grid = envs, agents, (envs, agents)
        self._teacher_choices = torch.zeros(envs, agents, dtype=torch.int64)
        # Views of the state tree: the world writes its observations and outcomes into the rollout itself.
        obs_rows = [*run.rollout["obs"], run.coming]
        self._obs_rows = obs_rows[:-1]
        self._observations: list[Array] = [row.view(*self._grid, *setup.spaces.obs).numpy() for row in obs_rows]
        masks = [*run.rollout["legal"], run.legal[AFTER_BLOCK]] if setup.spaces.masked else [None] * len(obs_rows)
        self._legal_masks: list[Array | None] = [
            row if row is None else row.view(*self._grid, -1).numpy() for row in masks
        ]
        self._episodes = view_episodes(run.episodes)
        # One tuple of arrays for each step of the block: reward, terminated and truncated.
        outcomes = (run.rollout[name].view(-1, *self._grid).numpy() for name in ("reward", "terminated", "truncated"))
        self._outcomes = list(zip(*outcomes, strict=True))
        self._earlier_policies = run.opponents.get(EARLIER)
        self._game_sides = world.sides if isinstance(world, TurnsWorld) else 1
        self._noise = torch.zeros(envs * agents, setup.network.actions.noise, device=setup.device)
        self._ended_agents, self._starts = run.episodes.over.numpy().reshape(-1), run.starts.numpy()
        # As above: action, alive and starts.
        columns = (run.rollout[name].numpy() for name in ("action", "alive", "starts"))
        self._step_rows: list[tuple[Array, Array, Array]] = list(zip(*columns, strict=True))

    @property
    def has_begun(self) -> bool:
        """Whether any step was ever taken."""
        return self._run.agent_steps > 0

    @property
    def current_obs(self) -> Array:
        """The next step's observations, [E, A, *obs]."""
        progress = self._run.progress
        collecting = progress.phase == COLLECT and progress.step > 0
        return self._observations[progress.step if collecting else AFTER_LAST_ROW]

    def step_(self, t: int) -> None:
        """Take step `t` of the block, and write it into row `t` of the rollout."""
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
        # The world writes the next observations into the next row; after the last row, into `run.coming`.
        next_obs = self._observations[t + 1]
        ended = step_(self.world, self._episodes, executed, next_obs, self._outcomes[t], legal=self._legal_masks[t + 1])
        profile.end_part_("env")
        self._starts[...] = False
        run.agent_steps += len(action)
        profile.steps += len(action)
        # A truncated episode has a next value, a terminated one has none. `_end_block_` copies those of all other
        # steps from the next row.
        is_last = t == len(self._outcomes) - 1
        if is_last or np.count_nonzero(self._outcomes[t][TRUNCATED]):
            self._write_next_value_(t)
        if is_last:
            self._end_block_()
        # Last, because a new episode's first observation overwrites the final observation of the old one.
        if np.count_nonzero(ended):
            for report_ in self.reports:
                report_(ended, run.episodes, next_obs)
            self._count_ended_(ended)
            self._begin_episodes_(ended, t + 1)
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
        """Return the actions of step `t`, [B, *action], after writing the policy's columns of row `t`.

        Agents that the teacher leads get the teacher's action. Memory, log-probability and value are written only if
        the policy computes them at each step.

        Args:
            t: number of the step in the block.
            teacher_actions: the teacher's actions [B, *action]; None without a teacher.
        """
        run, network, device = self._run, self._setup.network, self._setup.device
        # The memory before the first step of each sequence, from which the update recomputes the sequence.
        if network.policy.cells and t % (unroll := self._setup.config.learner.unroll) == 0:
            run.begun[t // unroll].copy_(run.memory)
        # Drawn for all agents, led or not, so that each step draws the same number of random numbers.
        noise = network.actions.noise_(self._noise, run.generators["actions"])
        teacher_inputs = {}
        if teacher_actions is not None:
            teacher_inputs = {"led": run.led.to(device), "taught": teacher_actions.to(device)}
        obs, starts = self._obs_rows[t], run.starts
        if device != CPU:
            obs, starts = (rows.to(device, non_blocking=True) for rows in (obs, starts))
        mask_input = {"legal": run.rollout["legal"][t].to(device)} if self._setup.spaces.masked else {}
        step = self._act(obs=obs, memory=run.memory, starts=starts, noise=noise, **mask_input, **teacher_inputs)
        action, is_alive, starts_row = self._step_rows[t]
        action[...] = step.action.to(CPU).numpy()
        np.logical_not(self._ended_agents, out=is_alive)
        starts_row[...] = self._starts
        # None for a policy that computes both after the block (`ActorCritic.evaluates_after_block`).
        if step.log_prob is not None and step.value is not None:
            write_step_(run.rollout, t, log_prob=step.log_prob, value=step.value)
            run.memory.copy_(step.memory)
        return action

    def _begin_block_(self) -> None:
        """Begin the first episodes in a new run, keep the present policy as an opponent if that is due, and fill row 0.

        Row 0 gets the observations and masks after the last block. The agents that the teacher leads are drawn anew.
        """
        run, config = self._run, self._setup.config
        if run.agent_steps == 0:
            self._begin_episodes_(np.ones(self._envs, np.bool_), AFTER_LAST_ROW)
        if self._earlier_policies is not None:
            take_policy_(self._earlier_policies, run.learner, run.progress.round, run.episodes.seeds.numpy())
        run.rollout["obs"][0].copy_(run.coming)
        if self._setup.spaces.masked:
            run.rollout["legal"][0].copy_(run.legal[AFTER_BLOCK])
        if isinstance(config.learner, TeachingConfig):
            chances = torch.rand(len(run.led), generator=run.generators["lead"])
            torch.lt(chances, config.learner.lead.scheduled_value(run.agent_steps), out=run.led)

    def _write_next_value_(self, t: int) -> None:
        """Write the value of the observations after step `t`, before new episodes overwrite them."""
        run, setup = self._run, self._setup
        next_obs = torch.from_numpy(self._observations[t + 1]).flatten(0, 1).to(setup.device)
        no_starts = torch.zeros(len(next_obs), dtype=torch.bool, device=setup.device)
        output = forward_step(setup.network, self._weights, obs=next_obs, memory=run.memory, starts=no_starts)
        run.rollout["next_value"][t].copy_(output.value[0])

    def _end_block_(self) -> None:
        """Write the values of the block that are not written yet, and count the steps that the teacher led.

        A step's next value is the value of the next row, unless its episode ended with the step. The last row has no
        next row: `step_` has written its next value.
        """
        run, rollout, network = self._run, self._run.rollout, self._setup.network
        if network.evaluates_after_block:
            self._evaluate_block_()
        has_ended = rollout["terminated"][:-1] | rollout["truncated"][:-1]
        next_value = rollout["next_value"][:-1]
        next_value.copy_(torch.where(has_ended, next_value, rollout["value"][1:]))
        if self.teacher is not None:
            run.ended[STEPS].add_((rollout["led"] & rollout["alive"]).sum())

    def restart_episodes_(self) -> None:
        """Truncate the running episodes and begin new ones, because the world cannot be brought back to them."""
        run, progress = self._run, self._run.progress
        collecting = progress.phase == COLLECT and progress.step > 0
        if collecting:
            last_step = progress.step - 1
            # Before new episodes overwrite the observations of the old ones.
            self._write_next_value_(last_step)
            terminated, truncated = (run.rollout[name][last_step] for name in ("terminated", "truncated"))
            # The last step ends every episode: those that it did not terminate are truncated.
            truncated.logical_or_(terminated.logical_not())
        self._begin_episodes_(np.ones(self._envs, np.bool_), progress.step if collecting else AFTER_LAST_ROW)

    def _count_ended_(self, ended: Array) -> None:
        """Add the episodes of the environments in the mask `ended`, bool [E], to the sums of ended episodes."""
        run, episodes, agents = self._run, self._run.episodes, self._agents
        mask = torch.from_numpy(ended)
        run.ended[EPISODES].add_(int(ended.sum()) * agents)
        run.ended[RETURNS].add_(episodes.returns[mask].double().sum())
        if self.teacher is None:  # with a teacher, `_end_block_` counts the steps that it led
            run.ended[STEPS].add_(int(episodes.steps[mask].sum()) * agents)

    def _begin_episodes_(self, begins: Array, row: int) -> None:
        """Begin episodes in the environments of the mask `begins`, bool [E]; their observations go to row `row`."""
        run, episodes = self._run, self._run.episodes
        # Seeds are drawn for all environments, so that each call draws the same number of random numbers.
        seeds = torch.randint(HELD_OUT, (len(begins),), generator=run.generators["world seeds"]).numpy()
        if self._earlier_policies is not None:
            last_seeds, round_ = episodes.seeds.numpy(), run.progress.round
            seeds = deal_opponents(self._earlier_policies, seeds, last_seeds, sides=self._game_sides, round_=round_)
        begin_(self.world, episodes, begins, seeds, self._observations[row], legal=self._legal_masks[row])
        if self.teacher is not None:
            self.teacher.begin_(begins)
        self._starts[...] = begins.repeat(self._agents)
