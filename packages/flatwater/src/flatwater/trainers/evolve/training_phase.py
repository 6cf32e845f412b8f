"""The training phase: one step of every environment, then updates of every member from all members' transitions."""

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.api import check_result_shape, perturb
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World, build_outcome, check_actions
from flatwater.nets.actions import draw_random_choice, mask_logits
from flatwater.nets.mlp import add_mask
from flatwater.nets.stack import views
from flatwater.replay.ring import append_, start_
from flatwater.trainers.episodes import ReportEnded, begin_, step_, view_episodes
from flatwater.trainers.evolve.learning import bind_learning
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.evolve.state import EPISODES, RETURNS, TRAINING, Population
from flatwater.trainers.profile import Profile

PARTS = ("actor", "env", "store", "update")
"""Parts of a step, in the order in which the profile shows them."""


class TrainingPhase:
    """Steps all members in their training world, stores their transitions, and updates all from the shared replay.

    It is the `Collector` of a population's trainer.
    """

    def __init__(self, setup: EvolveSetup, run: Population, world: World, profile: Profile) -> None:
        """Bind the tensors of the state tree that the world and the members write into in each step.

        No episode begins yet; `resume_episodes_` brings the world back to the episodes of a restored run.

        Args:
            setup: constants of the run.
            run: state tree; the world writes its observations into it.
            world: the world that the population learns in.
            profile: takes the time of each part of a step.
        """
        self._setup, self._run, self._profile = setup, run, profile
        self.world = world
        self.teacher: Teacher | None = None
        """No teacher, which other collectors may have."""
        self.reports: list[ReportEnded] = []
        """Functions that are called with the episodes that have ended."""
        # A view with an axis of one agent: the world writes its observations into the state tree.
        self.current_obs: Array = run.coming.numpy()[:, None]
        self._legal = run.legal.get(TRAINING)
        self._legal_array: Array | None = None if self._legal is None else self._legal.numpy()[:, None]
        self._outcome, self._episodes = build_outcome(setup.spaces.envs, 1), view_episodes(run.episodes)
        # Views without the axis of agents, of which there is one.
        self._outcome_columns = [torch.from_numpy(column[:, 0]) for column in self._outcome]
        # The members' weights by name, without the champion's, whose row is the last.
        self._actors = views(run.learner.actor[: setup.config.population.size], setup.nets.actor.layout)
        self._learn_ = bind_learning(setup, run)

    @property
    def has_begun(self) -> bool:
        """Whether any step was ever taken."""
        return self._run.transitions > 0

    def step_(self, number: int) -> None:
        """Take step `number` of a generation: act, store the transitions, and update if updates are due.

        Updates are due after every `train_every` steps, once the replay has `warmup` transitions.
        """
        run, config, profile = self._run, self._setup.config, self._profile
        if number == 0:
            profile.clear_()
        profile.begin_()
        if run.transitions == 0:  # the first step of a new run
            self._begin_episodes_(np.ones(len(run.coming), np.bool_))
        action = self._act_()
        profile.end_part_("actor")
        executed_actions = self._setup.world_actions(action)[:, None]  # with an axis of one agent
        if self._legal_array is not None:
            check_actions(self._setup.spaces, self._legal_array, executed_actions, source="the policy")
        step_arguments = self.world, self._episodes, executed_actions, self.current_obs, self._outcome
        has_ended = step_(*step_arguments, legal=self._legal_array)
        profile.end_part_("env")
        reward, terminated, truncated = self._outcome_columns
        append_(
            run.ring,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            # `coming` has the next observations already: the world wrote them into its view `current_obs`.
            next_obs=add_mask(run.coming, self._legal),
        )
        run.transitions += len(action)
        if has_ended.any():
            for report_ in self.reports:
                report_(has_ended, run.episodes, self.current_obs)
            run.ended[EPISODES].add_(int(has_ended.sum()))
            run.ended[RETURNS].add_(run.episodes.returns[torch.from_numpy(has_ended)].double().sum())
            # After `append_`, because a new episode's first observation overwrites the final one of the old episode.
            self._begin_episodes_(has_ended)
        profile.steps += len(action)
        profile.end_part_("store")
        steps_taken = run.transitions // len(action)  # each step adds a transition for each environment
        if steps_taken % config.learner.train_every == 0 and run.transitions >= config.replay.warmup:
            for _ in range(config.learner.own.updates):
                self._learn_()
        profile.end_part_("update")

    def _act_(self) -> Tensor:
        """Return an action for each environment, [N, *action]: its member's with exploration, or in the warm-up random.

        The warm-up lasts until the replay has `warmup` transitions.
        """
        setup, run = self._setup, self._run
        config, device = setup.config, setup.device
        if run.transitions < config.replay.warmup:
            # A separate generator, so that the length of the warm-up does not shift the draws of exploration.
            rng, shape = run.generators["warmup"], (len(run.coming), *setup.spaces.action_shape)
            if self._legal is not None:
                logits = mask_logits(torch.zeros(self._legal.shape), self._legal)  # equal where a choice is legal
                return draw_random_choice(logits.to(device), rng)
            if setup.algorithm.chooses:
                return torch.randint(len(setup.spaces.actions), shape, generator=rng, device=device)
            return torch.rand(shape, generator=rng, device=device).mul_(2).sub_(1)  # from [0, 1) to [-1, 1)
        rows = add_mask(run.coming, self._legal).to(device)  # networks read the mask after the observation
        obs = rows.view(config.population.size, config.population.envs, -1)
        # Bound again at each step, because the deviation of its noise follows from the number of updates.
        explore = setup.algorithm.explorer(config.learner, run.learner, perturb)
        with torch.no_grad():
            action = explore(setup.nets.actor, self._actors, obs, run.generators["exploration"])
        check_result_shape(config.learner, "explorer", action, (*obs.shape[:2], *setup.spaces.action_shape))
        return action.flatten(0, 1)

    def restart_episodes_(self) -> None:
        """Truncate the running episodes and begin new ones, because the world cannot be brought back to them."""
        self._begin_episodes_(np.ones(len(self._run.coming), np.bool_))

    def _begin_episodes_(self, env_mask: Array) -> None:
        """Begin episodes in the world and in the replay, in the environments of `env_mask`, bool [E]."""
        run = self._run
        # Seeds are drawn for all environments, so that each call draws the same number of random numbers. Seeds of
        # training are below `HELD_OUT`.
        seeds = torch.randint(HELD_OUT, (len(env_mask),), generator=run.generators["world seeds"]).numpy()
        begin_(self.world, run.episodes, env_mask, seeds, self.current_obs, legal=self._legal_array)
        envs = torch.from_numpy(env_mask).nonzero().squeeze(1)
        start_(run.ring, envs.to(self._setup.device), add_mask(run.coming, self._legal)[envs])
