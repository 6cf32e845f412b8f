"""Held-out episodes: one in each environment of a world of its own, on the same seeds for every player."""

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.ppo import bound_weights
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World, check_actions
from flatwater.trainers.blocks.collect import ask_teacher_
from flatwater.trainers.blocks.state import CPU, HELD, BlocksSetup, BlocksState
from flatwater.trainers.episodes import begin_, build_outcome, step_counted_


class HeldOutEvaluator:
    """The world of the held-out episodes, and its players."""

    def __init__(self, setup: BlocksSetup, run: BlocksState, world: World, teachers: dict[str, Teacher]) -> None:
        """Bind views of the state tree, which the world writes into; nothing is begun.

        Args:
            setup: constants of the run.
            run: state tree; held-out observations and scores are written by later steps.
            world: the world of held-out episodes.
            teachers: players by name, besides the policy.
        """
        self._setup, self._run = setup, run
        self._weights = bound_weights(setup.student, run.learner)
        self.world, self.teachers = world, teachers
        envs, agents = setup.held_out.envs, setup.held_out.agents
        self._grid = (envs, agents)
        held_out = run.held_out
        self.obs: Array = held_out.obs.view(envs, agents, *setup.held_out.obs).numpy()
        spaces = setup.held_out
        masks = run.legal.get(HELD)
        self._legal = None if masks is None else masks.view(envs, agents, -1).numpy()
        self._taught = torch.zeros(envs, agents, *spaces.action_shape, dtype=spaces.action_dtype)
        self._outcome = build_outcome(envs, agents)
        self._noise = torch.zeros(envs * agents, setup.student.actions.noise, device=setup.device)
        self.first_seed = HELD_OUT

    def play_(self, player: str, number: int) -> None:
        """Take step `number` of a player's episodes. An environment whose episode has ended plays on uncounted."""
        held_out = self._run.held_out
        if number == 0:
            self._begin_(np.ones(self._grid[0], np.bool_))
            held_out.done.zero_()
            held_out.scores[player].zero_()
        action = self._act_(player, first=number == 0)
        if self._legal is not None:
            check_actions(self._setup.held_out, self._legal, action, source=f"the {player}")
        step_arguments, returns = (
            (self.world, held_out.episodes, action, self.obs, self._outcome),
            held_out.scores[player],
        )
        ended = step_counted_(*step_arguments, done=held_out.done, paid=returns, legal=self._legal)
        if ended.any():
            self._begin_(ended)

    def _act_(self, player: str, *, first: bool) -> Array:
        """Return actions [E, A, *action]. An ended episode is played again from its seed, its memory not cleared.

        A student's action is drawn, as its teacher's is one of several. A policy without a teacher takes the likeliest.
        """
        held_out = self._run.held_out
        if player in self.teachers:
            return ask_teacher_(self.teachers[player], self.obs, self._taught, legal=self._legal).numpy()
        if first:
            held_out.memory.zero_()
        obs = held_out.obs.to(self._setup.device)
        # Memory is cleared at the first step alone: what comes after an episode's end is not counted.
        starts = torch.zeros(len(held_out.obs), dtype=torch.bool, device=self._setup.device)
        with torch.no_grad():
            choice = self._setup.student.choose(self._weights, obs, held_out.memory, starts)
        held_out.memory.copy_(choice.memory)
        masks = self._run.legal.get(HELD)
        legal = None if masks is None else masks.to(self._setup.device)
        policy = self._setup.student.actions.distribution(choice.logits, legal)
        drawn = policy.sample(self._draw_noise()) if self._setup.taught else policy.mode()
        action = drawn.to(CPU)
        return action.view(*self._grid, *action.shape[1:]).numpy()

    def _draw_noise(self) -> Tensor:
        return self._setup.student.actions.noise_(self._noise, self._run.generators["held out actions"])

    def _begin_(self, which: Array) -> None:
        """Begin the episodes of these environments, in the world and for all teachers."""
        # The same seed for an environment each time: all players and all evaluations play the same episodes.
        seeds = self.first_seed + np.arange(self._grid[0], dtype=np.int64)
        begin_(self.world, self._run.held_out.episodes, which, seeds, self.obs, legal=self._legal)
        for teacher in self.teachers.values():
            teacher.begin_(which)
